"""A model as a registry file declares it: how its images are prepared, how it is loaded, how it is called.

Nothing here imports torch: an entry holds functions, and a worker that calls them loads what they need.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.data.labels import timm_wnids
from testbed.entries.checks import check_count, check_name, checked_indices, checked_tags
from testbed.entries.functions import argument_names
from testbed.entries.made_of import Ensemble, Probe
from testbed.errors import EntryError

if TYPE_CHECKING:
    from testbed.entries.eval_setting import EvalSetting


@dataclass(frozen=True)
class StandardNormalization:
    """(x - mean) / std, computed on the device after all perturbations. BGR reverses the channels first."""

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


@dataclass(frozen=True)
class Model:
    """One classifier: how its images are prepared, how it is loaded, how it is called."""

    name: str
    transform: Callable[[Any], Any] | None  # PIL image -> PIL image or array in [0, 1]; None: unchanged
    classifier_loader: Callable[[], Any]
    eval_batch_size: int
    normalization: StandardNormalization | Callable[[Any], Any] | None = None
    classify: Callable[..., Any] | None = None
    arch: str | None = None
    adversarial_batch_size: int | None = None
    feature_layer: str | None = None
    explain_layer: str | None = None
    tags: tuple[str, ...] = ()
    checkpoint: str | os.PathLike[str] | None = None  # a weights file, loaded into the network of classifier_loader
    classes: Sequence[str] | str | None = None  # the wnid of each output, or the name of a class list in timm
    columns: Sequence[int] | None = None  # alternatively: the output of each class of a setting, in its order
    missing_classes: str = "refuse"  # for classes that the model lacks; "never": they are never predicted
    own_classes: Sequence[str] | int | None = None  # outputs that are no ImageNet classes: their names, or how many
    input_note: str = ""  # what is assumed of its input: told before a run, and recorded
    no_classes: str = ""  # why its outputs are no classes at all; such a model gives features and is not scored
    # The setting whose plain pictures give the statistics of batch normalisation, once the weights are loaded.
    statistics_from: EvalSetting | None = None
    # Name in a result's `weights_files` -> where the file is today: one that has changed makes the result outdated.
    # Names that are not in it are looked for among local weights. None: stored results stand.
    weights_paths: Mapping[str, Path] | None = None
    own_weights: bool = True  # whether it is a network that --checkpoint can load a file into
    opaque: str = ""  # why nobody can look into the network or ask it for gradients
    made_of: Ensemble | Probe | None = None  # other models, for a string such as ensemble:A+B
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
        check_count(owner, "eval_batch_size", self.eval_batch_size)
        if self.adversarial_batch_size is not None:
            check_count(owner, "adversarial_batch_size", self.adversarial_batch_size)
        known = self.normalization is None or isinstance(self.normalization, StandardNormalization)
        if not known and not callable(self.normalization):
            raise EntryError(
                f"{owner}: normalization must be a StandardNormalization, a function or None, "
                f"got {self.normalization!r}"
            )
        arguments: frozenset[str] = frozenset()
        if self.classify is not None:
            arguments = argument_names(self.classify, "classify", owner)
            if not {"images", "model"} <= arguments:
                raise EntryError(f"{owner}: classify must take images and model, it takes {sorted(arguments)}")
        object.__setattr__(self, "classify_arguments", arguments)
        object.__setattr__(self, "tags", checked_tags(owner, self.tags))
        self._check_classes(owner)

    def _check_classes(self, owner: str) -> None:
        given = [word for word in ("classes", "columns", "own_classes") if getattr(self, word) is not None]
        if len(given) > 1:
            raise EntryError(f"{owner}: {' and '.join(given)} say the same thing; give one of them")
        if self.missing_classes not in ("refuse", "never"):
            raise EntryError(f"{owner}: missing_classes must be 'refuse' or 'never', got {self.missing_classes!r}")
        if self.columns is not None:
            columns = checked_indices(tuple(self.columns))
            if columns is None:
                raise EntryError(f"{owner}: columns must be a non-empty list of indices from 0 on")
            object.__setattr__(self, "columns", columns)
        if isinstance(self.classes, str):
            timm_wnids(self.classes)  # an unknown name raises an error that lists the known ones
        elif self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
            if len(set(self.classes)) != len(self.classes):
                raise EntryError(f"{owner}: classes names a class twice")
        if isinstance(self.own_classes, int):
            check_count(owner, "own_classes", self.own_classes)
        elif self.own_classes is not None:
            if isinstance(self.own_classes, str) or not self.own_classes:
                raise EntryError(
                    f"{owner}: own_classes must name each output or be their number, got {self.own_classes!r}"
                )
            object.__setattr__(self, "own_classes", tuple(map(str, self.own_classes)))

    def batch_size_for(self, setting: EvalSetting) -> int:
        """The batch size for a setting; smaller for attacks, whose gradients need memory."""
        if setting.adversarial_attack is None:
            return self.eval_batch_size
        # An eighth, as in the ImageNet Testbed.
        return self.adversarial_batch_size or max(self.eval_batch_size // 8, 1)
