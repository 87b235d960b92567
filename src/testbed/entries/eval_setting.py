"""An eval setting as a registry file declares it: its images, their perturbation, its metrics."""

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

# Fields that a setting with logits_from or images_from inherits from that setting where its own are None.
_INHERITED = (
    *("dataset", "perturbation_fn_cpu", "perturbation_fn_gpu", "adversarial_attack", "transform", "resize"),
    *("probe", "class_sublist", "idx_subsample_list"),
)


_RESIZES = ("whole", "256/224")


@dataclass(frozen=True)
class EvalSetting:
    """One way to test a classifier. It needs a dataset, or another setting as `logits_from` or `images_from`."""

    name: str

    # ---- which images ----
    dataset: Dataset | None = None
    size: int | None = None  # expected number of images; a difference is reported as a warning
    # ---- what is done to them, in this order: transform, perturbation_fn_cpu, perturbation_fn_gpu ----
    perturbation_fn_cpu: Callable[..., Any] | None = None
    perturbation_fn_gpu: Callable[..., Any] | None = None
    # ---- what is measured ----
    metrics_fn: Callable[..., Mapping[str, Any]] = accuracy_topk
    # ---- a part of it: class_sublist are columns of the logits, idx_subsample_list places in the dataset ----
    class_sublist: Sequence[int] | None = None
    adversarial_attack: Mapping[str, Any] | None = None  # recorded; passed to a classify function that takes it
    idx_subsample_list: Sequence[int] | None = None
    derived_from: InitVar[str | None] = None  # the older name of logits_from, and of images_from for a probe
    parent_eval_setting: str | None = None  # the clean setting it is compared with
    transform: Callable[[Any], Any] | None = None  # on the picture, before the model's own transform
    probe: Callable[..., Any] | None = None  # gets model and batch; its arrays are stored beside the logits
    tags: tuple[str, ...] = ()
    version: int = 1  # raise it when images, noise or metrics change; results of two versions are never mixed
    controls: tuple[str, ...] = ()  # settings that are run with this one, since its numbers need them for comparison
    # In place of the model's own resize and crop. "whole": the whole picture at the model's input size, nothing is
    # cropped; "256/224": the shorter side to 256/224 of the input size, then the centre.
    resize: str | None = None
    # ---- what it takes from another setting ----
    logits_from: str | None = None  # reads rows and columns of that setting's stored logits; no forward pass
    images_from: str | None = None  # the same images, with a forward pass of its own
    noise_from: str | None = None  # the setting whose name seeds the random numbers; None: see noise_key
    # Whether images and labels stay as they are under a class_sublist, which then only selects columns. None: yes if
    # the metrics_fn declares labels with a numbering of their own. It is inherited together with the class_sublist.
    keeps_labels: bool | None = None

    # Function of this setting -> names of the arguments it takes.
    arguments: Mapping[str, frozenset[str]] = field(init=False, repr=False)
    targets_are: str | None = field(init=False, repr=False)  # what metrics_fn declares: see testbed.metrics.labels

    def __post_init__(self, derived_from: str | None) -> None:
        check_name("eval setting", self.name)
        owner = f"eval setting '{self.name}'"
        if derived_from is not None:
            word = "images_from" if self.probe is not None else "logits_from"
            if getattr(self, word) not in (None, derived_from):
                raise EntryError(f"{owner}: derived_from and {word} say the same thing; give {word}")
            object.__setattr__(self, word, derived_from)  # the way to set a field of a frozen dataclass
        self._check_origin(owner)
        if self.size is not None:
            check_count(owner, "size", self.size)
        check_count(owner, "version", self.version)
        if self.transform is not None and not callable(self.transform):
            raise EntryError(f"{owner}: transform must be callable, got {self.transform!r}")
        if self.resize not in (None, *_RESIZES):
            raise EntryError(f"{owner}: resize must be {' or '.join(map(repr, _RESIZES))} or None, got {self.resize!r}")
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
        """Its images must come from one dataset or from one other setting."""
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
        """The setting whose images it uses: the one it reads logits from, or runs the model on again."""
        return self.logits_from or self.images_from

    @property
    def parent(self) -> str | None:
        """The setting it is compared with; without one, the setting it is taken from."""
        return self.parent_eval_setting or self.taken_from

    @property
    def noise_key(self) -> str:
        """The name that seeds its random numbers. A setting taken from another has the same noise as that one."""
        return self.noise_from or self.taken_from or self.name

    @property
    def choice(self) -> tuple[Sequence[int] | None, Sequence[int] | None, bool]:
        """What determines its rows: settings of one dataset that are equal in this use the same rows."""
        keeps_labels = self.targets_are == OWN if self.keeps_labels is None else self.keeps_labels
        return self.class_sublist, self.idx_subsample_list, keeps_labels

    def rows(self, samples: Samples, limit: int | None = None) -> Rows:
        """The rows that an evaluation uses. The setting must have a dataset; `over` resolves one that has none."""
        return rows_of(samples, *self.choice, limit)

    def transforms_for(self, model: Model) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
        """The transforms before any perturbation, in order: this setting's, then the model's."""
        own = model.transform
        if self.resize is not None and own is not None:
            if not isinstance(own, StandardTransform):
                raise EntryError(
                    f"'{self.name}' shows pictures at the model's input size: expected a StandardTransform "
                    f"that tells it, the transform of '{model.name}' is {type(own).__name__}"
                )
            own = own.whole() if self.resize == "whole" else own.usual()
        return self.transform, own

    def over(self, parent: EvalSetting) -> EvalSetting:
        """This setting with everything that it inherits from `parent`, so that it has a dataset and can be run."""
        inherited = {name: getattr(parent, name) for name in _INHERITED if getattr(self, name) is None}
        if self.class_sublist is None:
            inherited["keeps_labels"] = parent.choice[2]
        if self.class_sublist is not None and parent.class_sublist is not None:
            # It indexes the columns of the parent's logits, which are themselves a selection of the model's.
            inherited["class_sublist"] = tuple(parent.class_sublist[i] for i in self.class_sublist)
        return replace(self, logits_from=None, images_from=None, noise_from=parent.noise_key, **inherited)
