"""`under:WHAT@SETTING`: the pictures of any setting, changed by a corruption, an attack or a shift that has a name.

under:fog.3@folder:PATH            a corruption of ImageNet-C or -C-bar at a severity
under:fog@folder:PATH              at all five severities
under:imagenet-c@folder:PATH       the 19 corruptions of ImageNet-C, each at five severities; also imagenet-c-bar
under:pgd.linf.eps2@folder:PATH    what a registered setting does to its pictures; also groups, globs and tags
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.entries.eval_setting import EvalSetting
from testbed.errors import EntryError, TestbedError, UnknownName, near_names
from testbed.metrics.aggregates import Aggregate, CorruptionSummary, Mean
from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS, Corruption, corruption

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

SEVERITIES = range(1, 6)
_FAMILIES = {"imagenet-c": CORRUPTIONS, "imagenet-c-bar": BAR_CORRUPTIONS}
_CORRUPTIONS: dict[str, Corruption] = {
    f"{kind}.{severity}": corruption(kind, severity)
    for kinds in _FAMILIES.values()
    for kind in kinds
    for severity in SEVERITIES
}
# What changes pictures, in the order in which it is applied. adversarial_attack goes with perturbation_fn_gpu.
_STAGES = ("transform", "perturbation_fn_cpu", "perturbation_fn_gpu")
_KINDS_OF_CHANGE = ("corruption", "shift", "adversarial")  # the tags that say what was done to the pictures
_BASELINE_REMARK = (
    "mce and ce compare with AlexNet's errors on ImageNet: on other pictures they only rank models against each other"
)


def resolve(name: str, text: str, registry: Registry) -> EvalSetting:
    """The setting after the @, under the one change that is named before it."""
    what, over = parted(text)
    base, change = registry.runnable(over), _change(what, registry)
    changed = [stage for stage in _STAGES if change[stage] is not None]
    present = [stage for stage in _STAGES if getattr(base, stage) is not None]
    # The stages have a fixed order. A change before one that the setting has would not be applied to its pictures.
    if present and _STAGES.index(present[-1]) >= _STAGES.index(changed[0]):
        raise EntryError(f"'{name}': the pictures of '{over}' are perturbed already, expected a setting of plain ones")
    tags = (*base.tags, *(tag for tag in change.pop("tags") if tag in _KINDS_OF_CHANGE))
    version = base.version + change.pop("version") - 1  # greater whenever one of the two is
    return replace(
        base,
        name=name,
        **{field: value for field, value in change.items() if value is not None},
        tags=tuple(dict.fromkeys(tags)),
        version=version,
        controls=tuple(f"{name.removesuffix(over)}{control}" for control in base.controls),
        parent_eval_setting=over,
        noise_from=f"under:{what}@{base.noise_key}",  # some rows of a setting have the noise of the whole setting
    )


def expand(name: str, text: str, registry: Registry) -> list[str]:
    what, over = parted(text)
    settings = registry.expand_eval_settings([over])
    return [f"under:{one}@{setting}" for setting in settings for one in changes(what, registry)]


def aggregate(name: str, text: str, registry: Registry) -> Aggregate:
    """What `db.py --print-group` computes: of corruptions their mean and mCE, of others the mean."""
    what, over = parted(text)
    kinds = _FAMILIES.get(what, (what,) if what in (*CORRUPTIONS, *BAR_CORRUPTIONS) else ())
    if not kinds or registry.expand_eval_settings([over]) != [over]:
        return Mean()
    published = registry.eval_settings.aggregates.get("imagenet-c-in-memory")
    baseline = published.baseline if isinstance(published, CorruptionSummary) else {}
    compared = dict(baseline) if set(kinds) & set(baseline) else {}
    pattern = "under:{corruption}.{severity}@" + over.replace("{", "{{").replace("}", "}}")
    return CorruptionSummary(pattern, over, kinds, compared, remark=_BASELINE_REMARK if compared else "")


def parted(text: str) -> tuple[str, str]:
    """WHAT and SETTING: the text before and after the first @."""
    what, _, over = text.partition("@")
    if not what or not over:
        raise EntryError(f"'under:{text}': expected under:WHAT@SETTING such as under:fog.3@folder:PATH")
    return what, over


def changes(what: str, registry: Registry) -> list[str]:
    """The single changes that a word stands for: corruptions with their severity, else registered settings."""
    kinds = _FAMILIES.get(what, (what,))
    named = [one for one in _CORRUPTIONS if one == what or one.rpartition(".")[0] in kinds]
    named = named or fnmatch.filter(_CORRUPTIONS, what)
    if named:
        return named
    shelf = registry.eval_settings
    members = shelf.expand(what)
    # Those that only read or list pictures have nothing to lend.
    lending = [m for m in members if any(getattr(shelf.entries[m], stage) is not None for stage in _STAGES)]
    if lending:
        return lending
    if members:
        raise EntryError(f"'under:{what}': '{what}' does nothing to its pictures that could be done to others")
    words = [*_FAMILIES, *CORRUPTIONS, *BAR_CORRUPTIONS, *_CORRUPTIONS, *shelf.all_words()]
    expected = "; expected one such as fog or fog.3, imagenet-c, imagenet-c-bar, or a registered setting that has one"
    raise UnknownName(f"no corruption, attack or shift '{what}'{near_names(what, words) or expected}")


def is_change(what: str, registry: Registry) -> bool:
    try:
        return bool(changes(what, registry))
    except TestbedError:
        return False


def _change(what: str, registry: Registry) -> dict[str, Any]:
    """The fields of a setting that one change sets."""
    if what in _CORRUPTIONS:
        made = _CORRUPTIONS[what]
        nothing = dict.fromkeys((*_STAGES, "adversarial_attack"))
        return nothing | {"perturbation_fn_cpu": made, "version": made.version, "tags": ("corruption",)}
    (only, *others) = changes(what, registry)
    if others or only != what:
        raise EntryError(f"'under:{what}' stands for {1 + len(others)} changes, expected one such as {only}")
    lender = registry.eval_settings.entries[what]
    return {field: getattr(lender, field) for field in (*_STAGES, "adversarial_attack", "version", "tags")}
