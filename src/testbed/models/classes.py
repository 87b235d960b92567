"""Which of a model's outputs are a setting's classes: by wnid where the model tells its own, never by place alone."""

from __future__ import annotations

from testbed.data.labels import imagenet_columns
from testbed.data.samples import UNKNOWN
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import ModelError


def lacks_classes(model: Model) -> bool:
    """Whether some of ImageNet's 1000 classes are not among the model's own."""
    return model.classes is not None and UNKNOWN in _own_columns(model)


def columns_for(model: Model, setting: EvalSetting) -> tuple[int, ...] | None:
    """The outputs that are the setting's classes, in the setting's order; UNKNOWN where the model lacks one.

    None stands for all outputs as they come.
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
    found = tuple(own[c] for c in wanted)
    missing = found.count(UNKNOWN)
    if missing == len(found) or (missing and model.missing_classes == "refuse"):
        raise ModelError(
            f"model '{model.name}' lacks {missing} of the {len(found)} classes of '{setting.name}': run it on a "
            "setting whose class_sublist holds only classes it knows, or declare it with missing_classes='never'"
        )
    return found


def _own_columns(model: Model) -> tuple[int, ...]:
    if model.columns is not None:
        return tuple(model.columns)
    assert model.classes is not None
    return imagenet_columns(model.classes if isinstance(model.classes, str) else tuple(model.classes))
