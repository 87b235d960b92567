"""What is known of eval settings by their names: averages, globs and lists as weights, severities, references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from testbed.commands.families import SEVERITY
from testbed.errors import UnknownName, near_names, near_or_some

# Published averages: the mean over parts, each the mean over the severities of one corruption, or one setting.
_CORRUPTIONS = (
    *("brightness", "contrast", "defocus_blur", "elastic_transform", "fog", "frost", "gaussian_blur"),
    *("gaussian_noise", "impulse_noise", "jpeg_compression", "motion_blur", "pixelate", "saturate", "shot_noise"),
    *("snow", "spatter", "speckle_noise", "zoom_blur"),
)
Parts = tuple[tuple[str, ...], ...]

TENTH = "_10percent"  # ends the name of a setting that shows every tenth image of another
MANY_IN_ONE = ("pm0", "pm10")  # own settings have these as metrics, the published table as columns of their own


def _severities(corruptions: Iterable[str], suffix: str) -> Parts:
    return tuple(tuple(f"imagenet-c.{c}.{severity}_{suffix}" for severity in range(1, 6)) for c in corruptions)


_IN_MEMORY = _severities(_CORRUPTIONS, "in-memory")
_ON_DISK = _severities((*_CORRUPTIONS, "glass_blur"), "on-disk")
AVERAGES: dict[str, Parts] = {
    "avg_corruptions": (*_IN_MEMORY, *_ON_DISK, ("stylized_imagenet",), ("greyscale",)),
    "avg_pgd": (("pgd.l2.eps0.1",), ("pgd.l2.eps0.5",), ("pgd.linf.eps0.5",), ("pgd.linf.eps2",)),
    "avg_imagenet_c_in_memory": _IN_MEMORY,
    "avg_imagenet_c_on_disk": _ON_DISK,
}


# What accuracy under a published shift is held against, where that is not `val`: the same classes without the shift.
_REFERENCES = {
    "objectnet-1.0-beta": "val-on-objectnet-classes",
    "imagenet-a": "val-on-imagenet-a-classes",
    "imagenet-r": "val-on-imagenet-r-classes",
    "imagenet-vid-robust_pm0": "val-on-vid-robust-classes",
    "imagenet-vid-robust_pm10": "imagenet-vid-robust_pm0",
    "ytbb-robust_pm0": "val-on-ytbb-robust-classes",
    "ytbb-robust_pm10": "ytbb-robust_pm0",
}


V2 = "imagenetv2-matched-frequency-format-val"
# Below these accuracies on x the published figures show nothing: there are only models of other kinds.
LOWER_ENDS: dict[tuple[str, str], float] = {
    ("val", V2): 55,
    ("val-on-objectnet-classes", "objectnet-1.0-beta"): 55,
    ("val-on-vid-robust-classes", "imagenet-vid-robust_pm0"): 92,
    ("val-on-ytbb-robust-classes", "ytbb-robust_pm0"): 95,
    ("imagenet-vid-robust_pm0", "imagenet-vid-robust_pm10"): 49,
    ("ytbb-robust_pm0", "ytbb-robust_pm10"): 45,
    ("val-on-imagenet-a-classes", "imagenet-a"): 75,
    ("val-on-imagenet-r-classes", "imagenet-r"): 75,
    ("val", "imagenet-sketch"): 55,
    ("val", "avg_corruptions"): 55,
    ("val", "avg_pgd"): 55,
}


def reference_of(expression: str, known: Sequence[str]) -> str | None:
    """The setting without shift that a shift is held against: as published, the name before the first dot, or `val`."""
    # A reference has no shift itself, unless it is held against another one, as pm0 is.
    if expression in _REFERENCES.values() and expression not in _REFERENCES:
        return None
    candidates = (_REFERENCES.get(expression), expression.split(".")[0], "val")
    return next((name for name in candidates if name in known and name != expression), None)


def weights_of(expression: str, known: Sequence[str]) -> dict[str, float]:
    """Setting to weight, adding up to 1. One name has weight 1; globs and comma lists mean the mean.

    A published average is had only where all its settings are.
    """
    if expression in known:
        return {expression: 1.0}
    if expression in AVERAGES:
        missing = [name for part in AVERAGES[expression] for name in part if name not in known]
        if missing:
            raise UnknownName(f"'{expression}' needs {len(missing)} settings without results, such as {missing[0]}")
        return _mean_of_parts(AVERAGES[expression])
    names = [name for part in expression.split(",") for name in _chosen(part.strip(), known)]
    return _mean_of_parts([[name] for name in dict.fromkeys(names)])


def _mean_of_parts(parts: Sequence[Sequence[str]]) -> dict[str, float]:
    return {name: 1 / len(parts) / len(part) for part in parts for name in part}


def _chosen(pattern: str, known: Sequence[str]) -> list[str]:
    names = [name for name in known if name == pattern] or [name for name in known if fnmatchcase(name, pattern)]
    if not names:
        near = near_names(pattern, [*known, *AVERAGES]) or near_or_some(pattern, known)
        raise UnknownName(f"no results on '{pattern}'{near}")
    return names


def stored_patterns(expressions: Iterable[str]) -> list[str]:
    """The names or globs in the database that settings, averages, globs and comma lists may be made from."""
    patterns: list[str] = []
    for part in (part.strip() for expression in expressions for part in expression.split(",")):
        names = [name for group in AVERAGES.get(part, ((part,),)) for name in group]
        for ending in MANY_IN_ONE:
            names += [name.removesuffix(f"_{ending}") for name in names if name.endswith(f"_{ending}")]
        patterns += [*names, *(f"{name}{TENTH}" for name in names)]
    return list(dict.fromkeys(patterns))


def without_severity(setting: str) -> str | None:
    """The glob of all severities of a corruption, or None for another setting."""
    parts = SEVERITY.fullmatch(setting)
    return f"{setting[: parts.start('severity')]}[1-9]{parts['suffix'] or ''}" if parts else None


def family_of(setting: str) -> str | None:
    """The glob of all corruptions of the same pictures, or None for another setting."""
    parts = SEVERITY.fullmatch(setting)
    if parts is None:
        return None
    after = parts["suffix"] or ""
    return f"{setting[: parts.start('corruption')]}*{after if after.startswith('@') else ''}"
