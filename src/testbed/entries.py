"""What a registry entry is: a model or an eval setting, declared once and checked when it is made.

Nothing here imports torch: entries hold functions that load weight when a worker calls them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from testbed.data.labels import timm_wnids
from testbed.data.samples import Dataset
from testbed.data.transforms import StandardTransform
from testbed.errors import EntryError
from testbed.metrics.accuracy import accuracy_topk

# The names a function of each kind may take; arguments are passed by these names.
KNOWN_ARGUMENTS = {
    "classify": ("images", "model", "class_sublist", "adversarial_attack", "rng"),
    "metrics_fn": ("logits", "targets", "image_paths", "model", "extras"),
    "perturbation_fn_cpu": ("image", "rng"),
    "perturbation_fn_gpu": ("images", "model", "targets", "rng"),
    "probe": ("images", "model", "targets", "logits", "image_paths", "rng"),
}


def argument_names(function: Callable[..., Any], kind: str, owner: str) -> frozenset[str]:
    """Which of the known arguments `function` takes. A required argument outside the list is refused."""
    known = KNOWN_ARGUMENTS[kind]
    if not callable(function):
        raise EntryError(f"{owner}: {kind} must be a function, got {function!r}")
    try:
        parameters = _parameters(function) if _is_hashable(function) else _parameters.__wrapped__(function)
    except ValueError:  # a builtin without a signature takes its first argument by position only
        raise EntryError(f"{owner}: {kind} has no readable signature; wrap it in a function") from None
    taken: set[str] = set()
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            taken.update(known)
        elif parameter.name in known and parameter.kind is not parameter.VAR_POSITIONAL:
            taken.add(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise EntryError(
                f"{owner}: {kind} takes '{parameter.name}', which is not passed to it; it may take {', '.join(known)}"
            )
    return frozenset(taken)


@lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Looked up once per function: hundreds of settings share theirs, and every command makes them all."""
    call = type(function).__call__
    if inspect.isfunction(call) and not hasattr(function, "__signature__"):  # objects of one class share theirs too
        return _parameters(call)[1:]
    return tuple(inspect.signature(function).parameters.values())


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=64)
def _indices(values: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The values as whole numbers; None where there are none, or negative ones."""
    numbers = tuple(int(v) for v in values)
    return numbers if numbers and min(numbers) >= 0 else None


def call_by_name(function: Callable[..., Any], names: frozenset[str], **offered: Any) -> Any:
    """Call `function` with those of the offered arguments that it takes."""
    return function(**{name: value for name, value in offered.items() if name in names})


@dataclass(frozen=True)
class StandardNormalization:
    """(x - mean) / std on the device, after every perturbation. BGR flips the channels first."""

    mean: Sequence[float]
    std: Sequence[float]
    input_space: str = "RGB"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(float(v) for v in self.mean))
        object.__setattr__(self, "std", tuple(float(v) for v in self.std))
        if len(self.mean) != 3 or len(self.std) != 3:
            raise EntryError(
                f"StandardNormalization: expected three means and three stds, got {self.mean} and {self.std}"
            )
        if min(self.std) <= 0:
            raise EntryError(f"StandardNormalization: std must be above 0, got {self.std}")
        if self.input_space not in ("RGB", "BGR"):
            raise EntryError(f"StandardNormalization: input_space must be RGB or BGR, got {self.input_space!r}")


def check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise EntryError(f"{kind}: name must be a non-empty string, got {name!r}")
    if name != name.strip() or any(c in name for c in "*?[]\n\t"):
        raise EntryError(f"{kind} {name!r}: a name has no outer spaces and none of * ? [ ]")


def _check_count(owner: str, label: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EntryError(f"{owner}: {label} must be at least 1, got {value!r}")


def _checked_tags(owner: str, tags: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise EntryError(f"{owner}: tags must be a list of words, got the string {tags!r}")
    return tuple(tags)


@dataclass(frozen=True)
class Model:
    """One classifier: how its images are prepared, how it is loaded, how it is called."""

    name: str
    transform: Callable[[Any], Any] | None  # PIL image -> PIL image or array in [0, 1]; None takes it as it is
    classifier_loader: Callable[[], Any]
    eval_batch_size: int
    normalization: StandardNormalization | Callable[[Any], Any] | None = None
    classify: Callable[..., Any] | None = None
    arch: str | None = None
    adversarial_batch_size: int | None = None
    feature_layer: str | None = None
    explain_layer: str | None = None
    tags: tuple[str, ...] = ()
    checkpoint: str | os.PathLike[str] | None = None  # a weights file for the network that classifier_loader makes
    classes: Sequence[str] | str | None = None  # the wnid of each output, or the name of a list that timm carries
    columns: Sequence[int] | None = None  # or which outputs are the setting's classes, in the setting's order
    missing_classes: str = "refuse"  # a setting with classes the model lacks; "never": they are never predicted
    classify_arguments: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name("model", self.name)
        owner = f"model '{self.name}'"
        if self.transform is not None and not callable(self.transform):
            raise EntryError(f"{owner}: transform must be callable or None, got {self.transform!r}")
        if not callable(self.classifier_loader):
            raise EntryError(
                f"{owner}: classifier_loader must be a function that returns the classifier, "
                f"got {type(self.classifier_loader).__name__}"
            )
        _check_count(owner, "eval_batch_size", self.eval_batch_size)
        if self.adversarial_batch_size is not None:
            _check_count(owner, "adversarial_batch_size", self.adversarial_batch_size)
        known = self.normalization is None or isinstance(self.normalization, StandardNormalization)
        if not known and not callable(self.normalization):
            raise EntryError(
                f"{owner}: normalization must be a StandardNormalization, a function or None, "
                f"got {self.normalization!r}"
            )
        taken: frozenset[str] = frozenset()
        if self.classify is not None:
            taken = argument_names(self.classify, "classify", owner)
            if not {"images", "model"} <= taken:
                raise EntryError(f"{owner}: classify must take images and model, it takes {sorted(taken)}")
        object.__setattr__(self, "classify_arguments", taken)
        object.__setattr__(self, "tags", _checked_tags(owner, self.tags))
        self._check_classes(owner)

    def _check_classes(self, owner: str) -> None:
        if self.classes is not None and self.columns is not None:
            raise EntryError(f"{owner}: classes and columns say the same thing; give one of them")
        if self.missing_classes not in ("refuse", "never"):
            raise EntryError(f"{owner}: missing_classes must be 'refuse' or 'never', got {self.missing_classes!r}")
        if self.columns is not None:
            columns = _indices(tuple(self.columns))
            if columns is None:
                raise EntryError(f"{owner}: columns must be a non-empty list of indices from 0 on")
            object.__setattr__(self, "columns", columns)
        if isinstance(self.classes, str):
            timm_wnids(self.classes)  # known, or refused with the names there are
        elif self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
            if len(set(self.classes)) != len(self.classes):
                raise EntryError(f"{owner}: classes names a class twice")

    def batch_size_for(self, setting: EvalSetting) -> int:
        """Attacks hold gradients, so they run on smaller batches."""
        if setting.adversarial_attack is None:
            return self.eval_batch_size
        return self.adversarial_batch_size or max(self.eval_batch_size // 8, 1)


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
            _check_count(owner, "size", self.size)
        _check_count(owner, "version", self.version)
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
        object.__setattr__(self, "tags", _checked_tags(owner, self.tags))
        object.__setattr__(self, "controls", tuple(self.controls))
        # A derived setting that must be run directly draws the noise of the setting it comes from.
        object.__setattr__(self, "noise_key", self.derived_from or self.name)

    def _check_indices(self, owner: str) -> None:
        for label in ("class_sublist", "idx_subsample_list"):
            values = getattr(self, label)
            if values is None:
                continue
            values = _indices(tuple(values))
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
