"""Writes docs/eval-settings.md: every eval setting of the registry in one table. Run it after changing settings.

python tools/make_settings_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from testbed.entries import EvalSetting
from testbed.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "eval-settings.md"

# Title -> what the name or a tag begins with; the first that fits.
FAMILIES = {
    "Digits": r"digits",
    "CIFAR": r"cifar",
    "People's categories": r"model-vs-human",
    "Explanations": r"contrastive",
    "Small sets of photographs": r"small$",
    "Unknown classes": r"ood$|val-on-imagenet-o",
    "Attacks": r"adversarial$",
    "Corruptions": r"corruption$",
    "Videos": r"video$|val-on-(vid|ytbb)",
    "Backgrounds": r"backgrounds$",
    "ImageNet validation": r"val|imagenet-real$",
    "ImageNet's classes elsewhere": r"imagenet",
    "Others": r"",
}
_CORRUPTED = re.compile(r"^(?P<set>.+?)\.[a-z0-9_]+\.[1-5](?P<rest>(_.*)?)$")
_LICENCE = re.compile(r"\((?P<name>(?:MIT|CC|Apache|BSD|CC0)[\w.\- ]*|testing only)\)")

_HEAD = """# Eval settings

Made by `python tools/make_settings_table.py` from the registry; a test keeps it up to date. `<corruption>` and
`<severity>` (1 to 5) stand for all that are registered. *From* is the setting whose stored logits a derived one reads:
it costs no forward pass. *Images* is how many there should be; another number is a warning with the result. Where no
source is given, the images are those of the setting above or made by the program. The licence is shown where known;
look at the source before you use a set.

The {published} names of the ImageNet Testbed carry the tag `imagenet-testbed`; docs/differences.md tells what is
different from there. Settings that need no entry: `folder:PATH` and `manifest:FILE.csv`
(docs/adding-an-eval-setting.md).
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """The whole page, from the project's own registry folder and no other."""
    registry = Registry()
    registry.load_folder(ROOT / "registry")
    if registry.broken:
        raise SystemExit(f"registry files that do not load: {registry.broken}")
    entries = registry.eval_settings.entries
    published = sum("imagenet-testbed" in entry.tags for entry in entries.values())
    parts = [_HEAD.format(published=published)]
    families: dict[str, list[EvalSetting]] = {title: [] for title in FAMILIES}
    for entry in entries.values():
        families[_family(entry)].append(entry)
    for family, members in families.items():
        if members:
            parts.append(f"## {family}\n\n{_table(registry, members)}")
    parts.append(f"## Groups\n\n{_groups(registry)}")
    return "\n".join(parts)


def _family(entry: EvalSetting) -> str:
    """The first family whose pattern the name or a tag matches."""
    words = (entry.name, *entry.tags)
    return next(title for title, pattern in FAMILIES.items() if any(re.match(pattern, word) for word in words))


def _table(registry: Registry, members: list[EvalSetting]) -> str:
    rows: dict[tuple[str, ...], int] = {}
    for entry in members:
        row = (
            f"`{_pattern(entry, entry.name)}`",
            f"{entry.size:,}" if entry.size else "",
            _classes(registry, entry),
            f"`{_pattern(entry, entry.derived_from)}`" if entry.derived_from else "",
            *_source(entry),
        )
        rows[row] = rows.get(row, 0) + 1
    lines = ["| setting | how many | images | classes | from | source | licence |", "|---|---|---|---|---|---|---|"]
    for (name, *cells), count in rows.items():
        lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _pattern(entry: EvalSetting, name: str) -> str:
    if "corruption" not in entry.tags:
        return name
    return _CORRUPTED.sub(r"\g<set>.<corruption>.<severity>\g<rest>", name)


def _classes(registry: Registry, entry: EvalSetting) -> str:
    runnable = registry.runnable(entry.name)
    dataset = runnable.dataset
    groups = getattr(entry.metrics_fn, "groups", None)
    if groups is not None:
        return str(sum(1 for group in groups if len(group)))
    if runnable.class_sublist is not None:
        return str(len(runnable.class_sublist))
    if "16-class" in entry.tags:
        return "16"
    own = getattr(dataset, "num_classes", None)
    return str(own) if own else "1000" if "imagenet" in entry.tags else ""


def _source(entry: EvalSetting) -> tuple[str, str]:
    source = entry.dataset.source if entry.dataset else ""
    found = _LICENCE.search(source)
    return source.replace("|", "\\|").replace("<", "&lt;"), found["name"] if found else ""


def _groups(registry: Registry) -> str:
    shelf = registry.eval_settings
    lines = ["`db.py --print-group MODEL GROUP` prints what is in the last column.\n"]
    lines += ["| group | settings | as a whole |", "|---|---|---|"]
    for name in shelf.groups:
        aggregate = shelf.aggregates.get(name)
        lines.append(f"| `{name}` | {len(shelf.expand(name))} | {_in_words(aggregate)} |")
    return "\n".join(lines) + "\n"


def _in_words(aggregate: object) -> str:
    if aggregate is None:
        return ""
    kind = type(aggregate).__name__
    if kind == "CorruptionSummary" and getattr(aggregate, "baseline", None):
        return "mean top1, mCE, relative mCE, CE of each corruption"
    return {
        "CorruptionSummary": "mean top1, and of each corruption",
        "Together": "mean top1, mCE, relative mCE, CE of each corruption, on disk and in memory",
        "Mean": "mean top1",
        "Difference": str(getattr(aggregate, "name", "")).replace("_", " "),
        "UnknownClasses": "AUROC, FPR95, AUPR of each score and set; means over near and far sets",
    }.get(kind, kind)


if __name__ == "__main__":
    main()
