"""An eval setting as a registry file declares it: which images, what is done to them, what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.data.samples import Dataset
from testbed.data.transforms import StandardTransform
from testbed.entries.checks import check_count, check_name, checked_indices, checked_tags
from testbed.entries.functions import argument_names
from testbed.entries.model import Model
from testbed.errors import EntryError
from testbed.metrics.accuracy import accuracy_topk


@dataclass(frozen=True)
class EvalSetting:
    """One way to test a classifier: which images, what is done to them, what is measured."""

    name: str
    dataset: Dataset | None = None
    size: int | None = None
    perturbation_fn_cpu: Callable[..., Any] | None = None
    perturbation_fn_gpu: Callable[..., Any] | None = None
    metrics_fn: Callable[..., Mapping[str, Any]] = accuracy_topk
    class_sublist: Sequence[int] | None = None
    adversarial_attack: Mapping[str, Any] | None = None
    idx_subsample_list: Sequence[int] | None = None
    derived_from: str | None = None
    parent_eval_setting: str | None = None
    transform: Callable[[Any], Any] | None = None
    probe: Callable[..., Any] | None = None
    tags: tuple[str, ...] = ()
    version: int = 1
    controls: tuple[str, ...] = ()  # settings that are run whenever this one is, since it says nothing without them
    resize: str | None = None  # "whole": the whole picture at the model's input size, not its own resize and crop
    noise_key: str = field(init=False, repr=False)
    arguments: Mapping[str, frozenset[str]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name("eval setting", self.name)
        owner = f"eval setting '{self.name}'"
        if self.derived_from == self.name:
            raise EntryError(f"{owner}: cannot be derived from itself")
        if self.dataset is None and self.derived_from is None:
            raise EntryError(f"{owner}: needs a dataset, or derived_from another setting")
        if self.dataset is not None and not isinstance(self.dataset, Dataset):
            raise EntryError(
                f"{owner}: dataset must be a StandardDataset, ArrayDataset or ManifestDataset, "
                f"got {type(self.dataset).__name__}"
            )
        if self.size is not None:
            check_count(owner, "size", self.size)
        check_count(owner, "version", self.version)
        if self.transform is not None and not callable(self.transform):
            raise EntryError(f"{owner}: transform must be callable, got {self.transform!r}")
        if self.resize not in (None, "whole"):
            raise EntryError(f"{owner}: resize must be 'whole' or None, got {self.resize!r}")
        self._check_indices(owner)
        arguments = {}
        for kind in ("perturbation_fn_cpu", "perturbation_fn_gpu", "metrics_fn", "probe"):
            function = getattr(self, kind)
            if function is not None:
                arguments[kind] = argument_names(function, kind, owner)
        if self.derived_from is not None and (self.perturbation_fn_cpu or self.perturbation_fn_gpu):
            raise EntryError(f"{owner}: a derived setting reads stored logits and cannot perturb images")
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "tags", checked_tags(owner, self.tags))
        object.__setattr__(self, "controls", tuple(self.controls))
        # A derived setting that must be run directly draws the noise of the setting it comes from.
        object.__setattr__(self, "noise_key", self.derived_from or self.name)

    def _check_indices(self, owner: str) -> None:
        for label in ("class_sublist", "idx_subsample_list"):
            values = getattr(self, label)
            if values is None:
                continue
            values = checked_indices(tuple(values))
            if values is None:
                raise EntryError(f"{owner}: {label} must be a non-empty list of indices from 0 on")
            if label == "class_sublist" and len(set(values)) != len(values):
                raise EntryError(f"{owner}: class_sublist names a class twice")
            object.__setattr__(self, label, values)

    def transforms_for(self, model: Model) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
        """What a picture goes through before it is perturbed: this setting's transform, then the model's."""
        own = model.transform
        if self.resize == "whole" and own is not None:
            if not isinstance(own, StandardTransform):
                raise EntryError(
                    f"'{self.name}' shows whole pictures at the model's input size: expected a StandardTransform "
                    f"that tells it, the transform of '{model.name}' is {type(own).__name__}"
                )
            own = own.whole()
        return self.transform, own

    def over(self, parent: EvalSetting) -> EvalSetting:
        """This derived setting as one that could be run directly, on its parent's images."""
        names = ["dataset", "perturbation_fn_cpu", "perturbation_fn_gpu", "adversarial_attack", "transform", "resize"]
        names += ["probe", "class_sublist", "idx_subsample_list"]
        inherited = {n: getattr(parent, n) for n in names if getattr(self, n) is None}
        if self.class_sublist is not None and parent.class_sublist is not None:
            # It names columns of the parent's logits, which are columns of the model's.
            inherited["class_sublist"] = tuple(parent.class_sublist[i] for i in self.class_sublist)
        direct = replace(self, derived_from=None, **inherited)
        object.__setattr__(direct, "noise_key", parent.noise_key)
        return direct
