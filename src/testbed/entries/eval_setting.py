"""An eval setting as a registry file declares it: which images, what is done to them, what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from testbed.data.rows import Rows, rows_of
from testbed.data.samples import Dataset, Samples
from testbed.data.transforms import StandardTransform
from testbed.entries.checks import check_count, check_name, checked_indices, checked_tags
from testbed.entries.functions import argument_names
from testbed.errors import EntryError
from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.labels import OWN, meaning_of_targets

if TYPE_CHECKING:
    from testbed.entries.model import Model

# What a setting takes from the one whose images it shows, where it declares nothing of its own.
_INHERITED = (
    *("dataset", "perturbation_fn_cpu", "perturbation_fn_gpu", "adversarial_attack", "transform", "resize"),
    *("probe", "class_sublist", "idx_subsample_list"),
)


@dataclass(frozen=True)
class EvalSetting:
    """One way to test a classifier. Give it a dataset, or another setting to take logits or images from."""

    name: str

    # ---- which images ----
    dataset: Dataset | None = None
    size: int | None = None  # how many images it must have; another number is a warning
    # ---- what is done to them, in this order: transform, perturbation_fn_cpu, perturbation_fn_gpu ----
    perturbation_fn_cpu: Callable[..., Any] | None = None
    perturbation_fn_gpu: Callable[..., Any] | None = None
    # ---- what is measured ----
    metrics_fn: Callable[..., Mapping[str, Any]] = accuracy_topk
    # ---- which of them: classes (columns of the logits), and places in the dataset ----
    class_sublist: Sequence[int] | None = None
    adversarial_attack: Mapping[str, Any] | None = None  # recorded, and given to a classify function that takes it
    idx_subsample_list: Sequence[int] | None = None
    derived_from: InitVar[str | None] = None  # the older word: logits_from, or images_from for a setting with a probe
    parent_eval_setting: str | None = None  # the clean setting it is compared with
    transform: Callable[[Any], Any] | None = None  # on the picture, before the model's own transform
    probe: Callable[..., Any] | None = None  # sees the model, and records arrays beside the logits
    tags: tuple[str, ...] = ()
    version: int = 1  # raise it when images, noise or metrics change: results of two versions are never mixed
    controls: tuple[str, ...] = ()  # settings that are run whenever this one is, since it says nothing without them
    resize: str | None = None  # "whole": the whole picture at the model's input size, not its own resize and crop
    # ---- what it takes from another setting ----
    logits_from: str | None = None  # rows and columns of that setting's stored logits: no forward pass
    images_from: str | None = None  # the same images, with a forward pass of its own
    noise_from: str | None = None  # draw the random numbers of that setting; without it those of its own name
    # Whether a class_sublist leaves images and labels as they are. None: as the metrics_fn tells, which is yes where
    # labels have a numbering of their own. A setting that inherits its class_sublist inherits this with it.
    keeps_labels: bool | None = None

    arguments: Mapping[str, frozenset[str]] = field(init=False, repr=False)  # what each of its functions takes
    targets_are: str | None = field(init=False, repr=False)  # as its metrics_fn declares: testbed.metrics.labels

    def __post_init__(self, derived_from: str | None) -> None:
        check_name("eval setting", self.name)
        owner = f"eval setting '{self.name}'"
        if derived_from is not None:
            word = "images_from" if self.probe is not None else "logits_from"
            if getattr(self, word) not in (None, derived_from):
                raise EntryError(f"{owner}: derived_from and {word} say the same thing; give {word}")
            object.__setattr__(self, word, derived_from)
        self._check_origin(owner)
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
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "tags", checked_tags(owner, self.tags))
        object.__setattr__(self, "controls", tuple(self.controls))
        try:
            object.__setattr__(self, "targets_are", meaning_of_targets(self.metrics_fn))
        except ValueError as error:
            raise EntryError(f"{owner}: {error}") from error

    def _check_origin(self, owner: str) -> None:
        """Where its images come from: one dataset, or one other setting."""
        if self.logits_from is not None and self.images_from is not None:
            raise EntryError(f"{owner}: give logits_from or images_from, not both")
        if self.name in (self.logits_from, self.images_from):
            raise EntryError(f"{owner}: cannot be derived from itself")
        if self.dataset is None and self.taken_from is None:
            raise EntryError(f"{owner}: needs a dataset, or another setting as logits_from or images_from")
        if self.dataset is not None and not isinstance(self.dataset, Dataset):
            raise EntryError(
                f"{owner}: dataset must be a StandardDataset, ArrayDataset or ManifestDataset, "
                f"got {type(self.dataset).__name__}"
            )
        if self.logits_from is not None:
            if self.perturbation_fn_cpu or self.perturbation_fn_gpu:
                raise EntryError(f"{owner}: with logits_from it reads stored logits and cannot perturb images")
            if self.probe is not None:
                raise EntryError(f"{owner}: a probe looks at the model, so it needs images_from instead of logits_from")

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

    @property
    def taken_from(self) -> str | None:
        """The setting whose images it shows, whether it reads that one's logits or runs the model itself."""
        return self.logits_from or self.images_from

    @property
    def parent(self) -> str | None:
        """The setting it is compared with, or else the one it is taken from."""
        return self.parent_eval_setting or self.taken_from

    @property
    def noise_key(self) -> str:
        """The name that seeds its random numbers. A setting taken from another shows the noise of that one."""
        return self.noise_from or self.taken_from or self.name

    @property
    def choice(self) -> tuple[Sequence[int] | None, Sequence[int] | None, bool]:
        """By what it chooses its rows: settings of one dataset with the same choice take the same rows."""
        keeps_labels = self.targets_are == OWN if self.keeps_labels is None else self.keeps_labels
        return self.class_sublist, self.idx_subsample_list, keeps_labels

    def rows(self, samples: Samples, limit: int | None = None) -> Rows:
        """The rows of an evaluation of this setting; it must have a dataset of its own (see `over`)."""
        return rows_of(samples, *self.choice, limit)

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
        """This setting as one that can be run by itself, on its parent's images."""
        inherited = {name: getattr(parent, name) for name in _INHERITED if getattr(self, name) is None}
        if self.class_sublist is None:
            inherited["keeps_labels"] = parent.choice[2]
        if self.class_sublist is not None and parent.class_sublist is not None:
            # It names columns of the parent's logits, which are columns of the model's.
            inherited["class_sublist"] = tuple(parent.class_sublist[i] for i in self.class_sublist)
        return replace(self, logits_from=None, images_from=None, noise_from=parent.noise_key, **inherited)
