"""The flag of db.py that checks the images of settings: their number, their classes, and whether they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.commands.action import LOOK_AFTER, Action, Context
from testbed.commands.options import say
from testbed.errors import DataError, TestbedError

if TYPE_CHECKING:
    import numpy as np

    from testbed.data.samples import Dataset, Samples
    from testbed.entries.eval_setting import EvalSetting

_AUDIT_COLUMNS = [
    "eval_setting",
    "images",
    "expected",
    "classes",
    "per_class",
    "names",
    "unreadable",
    "form",
    "verdict",
]
_MOST_NAMED = 10  # unreadable images that are listed for a setting


def audit_data(context: Context, names: Sequence[str]) -> None:
    """Open every image of the settings. Any difference from what is expected makes the exit code 1."""
    from testbed.data.locate import data_roots

    roots = data_roots(context.data_root)
    settings = [context.registry.runnable(name) for name in context.registry.expand_eval_settings(names)]
    rows = _audited(context, settings, roots)
    if context.style == "table":
        context.print([{**row, **_short(row)} for row in rows], _AUDIT_COLUMNS)
    else:
        context.print(rows, [*_AUDIT_COLUMNS, "problems", "notes"])
    bad = [row for row in rows if row["problems"]]
    if context.style == "table":
        for row in rows:
            for text in (*row["problems"], *(f"note: {note}" for note in row["notes"])):
                say(f"{row['eval_setting']}: {text}")
    if bad:
        raise TestbedError(f"{len(bad)} of {len(rows)} settings have data that is not as expected")


@dataclass
class _Opened:
    """A data set that was opened: the rows that each of its settings takes, and the images that cannot be read."""

    samples: Samples
    chosen: dict[Any, np.ndarray | DataError] = field(default_factory=dict)  # by EvalSetting.choice
    broken: list[tuple[str, str]] = field(default_factory=list)

    def choose(self, setting: EvalSetting) -> None:
        """Record the rows of a setting, or why they cannot be chosen."""
        if setting.choice in self.chosen:
            return
        try:
            self.chosen[setting.choice] = setting.rows(self.samples).indices
        except DataError as error:
            self.chosen[setting.choice] = error

    def read(self, title: str) -> None:
        """Read every chosen image once, and note those that fail."""
        from testbed.data.audit import unreadable

        rows = [chosen.tolist() for chosen in self.chosen.values() if not isinstance(chosen, DataError)]
        self.broken = unreadable(self.samples, sorted(set().union(*rows)), title)


def _audited(context: Context, settings: Sequence[EvalSetting], roots: Sequence[Path]) -> list[dict[str, Any]]:
    """One row for each setting. An image that several settings share is read once; an unused image is not read."""
    # Datasets are compared by value, so settings that declare the same images share them.
    opened: dict[Dataset | None, _Opened | DataError] = {}
    for setting in settings:
        assert setting.dataset is not None
        if setting.dataset not in opened:
            opened[setting.dataset] = _opened(context, setting.dataset, roots)
        content = opened[setting.dataset]
        if isinstance(content, _Opened):
            content.choose(setting)
    for dataset, content in opened.items():
        if isinstance(content, _Opened):
            content.read(dataset.describe() if dataset else "")
    return [_audit(context, setting, opened[setting.dataset]) for setting in settings]


def _opened(context: Context, dataset: Dataset, roots: Sequence[Path]) -> _Opened | DataError:
    """The opened data set, or the error that says how to get it: the other settings are still audited."""
    from testbed.data.download import with_hint
    from testbed.entries.registry import registry_folders

    try:
        return _Opened(dataset.open(roots))
    except DataError as error:
        return with_hint(error, dataset, registry_folders(context.registry_folders))


def _audit(context: Context, setting: EvalSetting, content: _Opened | DataError) -> dict[str, Any]:
    from testbed.data.audit import uneven
    from testbed.engine.checks import look_over_setting

    row = dict.fromkeys(_AUDIT_COLUMNS) | {"eval_setting": setting.name, "expected": setting.size}
    row |= {"problems": [], "notes": []}
    chosen = content if isinstance(content, DataError) else content.chosen[setting.choice]
    if isinstance(content, DataError) or isinstance(chosen, DataError):
        return row | {"verdict": "MISSING", "problems": [str(chosen)]}
    findings = look_over_setting(context.registry, setting.name, content.samples, chosen)
    problems = [text for text in (findings.unusable, *findings.problems) if text]
    if setting.size is not None and setting.size != findings.images:
        # First, since a wrong number of images explains most of the other findings.
        problems.insert(0, f"expected {setting.size} images, found {findings.images}")
        problems += [text for text in [uneven(findings.per_class)] if text]
    chosen_ids = {content.samples.ids[i] for i in chosen}
    unreadable = [text for image, text in content.broken if image in chosen_ids]
    problems += unreadable[:_MOST_NAMED]
    problems += [f"and {len(unreadable) - _MOST_NAMED} more unreadable images"] * (len(unreadable) > _MOST_NAMED)
    return row | {
        "images": findings.images,
        "classes": len(findings.per_class),
        "per_class": findings.per_class,
        "names": findings.names,
        "unreadable": len(unreadable),
        "form": content.samples.form,
        "verdict": "PROBLEM" if problems else "ok",
        "problems": problems,
        "notes": [*findings.notes, *_taken_from(content.samples)],
    }


def _taken_from(samples: Samples) -> list[str]:
    """What is told of a set that was not found as class folders."""
    return [f"taken from {samples.form}"] if samples.form and not samples.form.startswith("folder ") else []


def _short(row: dict[str, Any]) -> dict[str, str]:
    """For the table: images per class as a range, instead of a count for each of up to 1000; the form in one word."""
    counts = (row["per_class"] or {}).values()
    short = {"per_class": "", "form": (row["form"] or "").partition(" ")[0]}
    if counts:
        low, high = min(counts), max(counts)
        short["per_class"] = str(low) if low == high else f"{low} to {high}"
    return short


ACTIONS = (
    Action(
        "audit-data",
        audit_data,
        "Count and open every image of settings; exit code 1 where something is not as expected.",
        ("SETTING...",),
        purpose=LOOK_AFTER,
        reads=("data_root", "style"),
    ),
)
