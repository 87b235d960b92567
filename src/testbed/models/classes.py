"""Which outputs of a model are the classes of a setting: by wnid where the model declares its own classes."""

from __future__ import annotations

from testbed.data.labels import imagenet_columns
from testbed.data.samples import UNKNOWN
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import ModelError


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


def _own_columns(model: Model) -> tuple[int, ...]:
    if model.columns is not None:
        return tuple(model.columns)
    assert model.classes is not None
    return imagenet_columns(model.classes if isinstance(model.classes, str) else tuple(model.classes))
