"""Which outputs of a model are the classes of a setting: by wnid where the model declares its own classes."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.data.audit import some_of
from testbed.data.labels import imagenet_columns
from testbed.data.samples import UNKNOWN, Samples
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import ModelError
from testbed.models.weights import Head


def lacks_classes(model: Model) -> bool:
    """Whether the model declares its classes and they do not include all of ImageNet's 1000."""
    return model.classes is not None and UNKNOWN in _own_columns(model)


def columns_for(model: Model, setting: EvalSetting) -> tuple[int, ...] | None:
    """The output of each class of the setting, in the setting's order; UNKNOWN for a class that the model lacks.

    None means all outputs in their own order.
    """
    wanted = None if setting.class_sublist is None else tuple(setting.class_sublist)
    if model.classes is None and model.columns is None:
        return wanted
    own = _own_columns(model)
    wanted = wanted or tuple(range(len(own)))
    if max(wanted) >= len(own):
        raise ModelError(
            f"model '{model.name}' gives {len(own)} classes, but the setting '{setting.name}' "
            f"asks for class {max(wanted)}"
        )
    columns = tuple(own[c] for c in wanted)
    missing = columns.count(UNKNOWN)
    # A model that knows none of the classes cannot be scored, whatever it declares.
    if missing == len(columns) or (missing and model.missing_classes == "refuse"):
        raise ModelError(
            f"model '{model.name}' lacks {missing} of the {len(columns)} classes of '{setting.name}': run it on a "
            "setting whose class_sublist holds only classes it knows, or declare it with missing_classes='never'"
        )
    return columns


def own_head(model: Model) -> Head | None:
    """The outputs of a model that declares classes of its own; None for all others."""
    if model.own_classes is None:
        return None
    if isinstance(model.own_classes, int):
        return Head(model.own_classes, origin="entry")
    return Head(len(model.own_classes), tuple(model.own_classes), "entry")


def columns_of_head(head: Head, model: str, setting: EvalSetting, samples: Samples | None) -> tuple[int, ...] | None:
    """The output of each class of the setting, for a network with classes of its own.

    The class of an output is the one that the checkpoint or the entry names. Where none is named, outputs follow the
    sorted names of the class folders, as torchvision's ImageFolder numbers them in training. None means all outputs in
    their own order.
    """
    folders: Mapping[str, int] = {} if samples is None else samples.class_folders
    owner = f"model '{model}' has {head.outputs} classes from its {head.origin}"
    numbers = setting.class_sublist is not None or not folders
    if head.origin == "entry" and numbers and samples is not None and samples.label_space == "imagenet":
        named = f" ({some_of(list(head.classes))})" if head.classes else ""
        raise ModelError(f"{owner}{named}, but the labels of '{setting.name}' are classes of ImageNet")
    if setting.class_sublist is not None:
        return tuple(setting.class_sublist)
    if not folders or samples is None or samples.num_classes is None:
        return None  # labels that are numbers are outputs
    if len(folders) != head.outputs:
        raise ModelError(
            f"{owner}, but '{setting.name}' has {len(folders)} class folders: expected one for each class, or folders "
            "named after the numbers of the outputs (0, 1, ...)"
        )
    place = {name: column for column, name in enumerate(head.classes or sorted(folders))}
    strangers = [name for name in folders if name not in place]
    if strangers:
        raise ModelError(
            f"{owner} ({some_of(list(place))}), but '{setting.name}' has the folder {strangers[0]}: expected folders "
            "of these names"
        )
    columns = [UNKNOWN] * samples.num_classes
    for name, label in folders.items():
        columns[label] = place[name]
    return tuple(columns)


def _own_columns(model: Model) -> tuple[int, ...]:
    if model.columns is not None:
        return tuple(model.columns)
    assert model.classes is not None
    return imagenet_columns(model.classes if isinstance(model.classes, str) else tuple(model.classes))
