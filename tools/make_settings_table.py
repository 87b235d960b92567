"""Writes docs/eval-settings.md: tables of all eval settings of the registry. Run it after changing settings.

python tools/make_settings_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.entries.setting_strings import KINDS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "eval-settings.md"

# Title of a section -> pattern at the start of a name or tag. A setting goes to the first section that matches.
FAMILIES = {
    "Digits": r"digits",
    "CIFAR": r"cifar",
    "People's categories": r"model-vs-human|16-class$",
    "Explanations": r"contrastive",
    "Small sets of photographs": r"small$",
    "Unknown classes": r"ood$|val-on-imagenet-o",
    "Attacks": r"adversarial$",
    "Corruptions": r"corruption$",
    "Videos and sequences": r"video$|sequences$|val-on-(vid|ytbb)",
    "Backgrounds": r"backgrounds$",
    "Shortcuts": r"shortcut$",
    "Pictures that were made": r"synthetic$",
    "ImageNet validation": r"val|imagenet-real$",
    "ImageNet's classes elsewhere": r"imagenet",
    "Others": r"",
}
# Tag -> (pattern, replacement) that gives all settings of one family the same name, so that they share a row.
PATTERNS = {
    "meta-set": (r"\d+$", "<number>"),
    "corruption": (r"^(.+?)\.[a-z0-9_]+\.[1-5]((_.*)?)$", r"\1.<corruption>.<severity>\2"),
    "sequences": (r"^(imagenet-p)\..+$", r"\1.<perturbation>"),
    "imagenet-es-photographs": (r"^(imagenet-es\..+)\.l[15]\.\d+$", r"\1.<light>.<number>"),
}
_LICENCE = re.compile(r"\((?P<name>(?:MIT|CC|Apache|BSD|CC0)[\w.\- ]*|testing only)\)")

_HEAD = """# Eval settings

Made by `python tools/make_settings_table.py` from the registry; a test keeps it up to date. `<corruption>`,
`<severity>` (1 to 5) and `<number>` stand for all that are registered. *Logits of* is the setting whose stored logits
it reads, without a forward pass; *images of* is the one whose images it shows to the model again, in a forward pass of
its own. *Images* is how many there should be; another number is a warning with the result. Where no source is given,
the images are those of the setting above or made by the program. The licence is shown where known; look at the source
before you use a set. *Layout* is `ours` where a set is not distributed as folders of pictures and has to be laid out as
the source column says (tag `own-layout`); all others are read as they unpack.

The {published} names of the ImageNet Testbed carry the tag `imagenet-testbed`; docs/differences.md tells what is
different from there. Two sets are called ImageNet-D: that of 2024, made by diffusion, is `imagenet-d-diffusion`; that
of 2021, a part of DomainNet, is `imagenet-domainnet`. `imagenet-hard` is not `hard-imagenet-15`.

Settings that need no entry ([adding-an-eval-setting.md](adding-an-eval-setting.md), [meta-sets.md](meta-sets.md)):

| you type | images |
|---|---|
{strings}

Corruptions are explained in [corruptions.md](corruptions.md), attacks in [attacks.md](attacks.md), the contrastive
settings in [explanations.md](explanations.md), those of people's categories in [shape-bias.md](shape-bias.md).
"""

# Kind of a setting string -> (how it is written, what it means). A kind that is missing here stops the tool.
STRINGS = {
    "folder": ("folder:PATH", "a folder of class folders, or of pictures without labels"),
    "manifest": ("manifest:FILE.csv", "a list with the columns `image` and `label`"),
    "array": ("array:PATH", "an array of images, with labels or without; CIFAR as published"),
    "parquet": ("parquet:PATH", "pictures in parquet files ([data.md](data.md#parquet-files))"),
    "wds": ("wds:SHARDS", "pictures in WebDataset shards ([data.md](data.md#archives-and-shards))"),
    "tar": ("tar:FILE", "class folders in a tar file, or ImageNet's ILSVRC2012_img_val.tar as it is"),
    "zip": ("zip:FILE", "class folders in a zip file"),
    "hf": (
        "hf:OWNER/NAME@REVISION:SPLIT",
        "a set of the Hugging Face hub, from its cache or fetched ([data.md](data.md#sets-of-the-hub))",
    ),
    "autoeval": ("autoeval:DIR", "the sets of an AutoEval benchmark"),
    "rows": ("rows:0-1000@SETTING", "some rows of another setting, from its stored logits"),
    "under": (
        "under:WHAT@SETTING",
        "the pictures of another setting under a corruption, attack or shift ([corruptions.md](corruptions.md))",
    ),
    "explanations": (
        "explanations:EXPLAINER@SETTING, explanations:MANIFEST.csv",
        "heatmaps of a setting's images, or of listed ones, and how faithful they are",
    ),
}

_FOOT = """## Notes on layouts

**ImageNet-Hard** comes as parquet files with a list of labels for each picture. With `datasets` installed:

```python
from pathlib import Path

from datasets import load_dataset

for number, row in enumerate(load_dataset("taesiri/imagenet-hard", split="validation")):
    folder = Path("data/imagenet-hard") / "+".join(str(label) for label in sorted(row["label"]))
    folder.mkdir(parents=True, exist_ok=True)
    row["image"].convert("RGB").save(folder / f"{{number}}.png")
```

**ImageNet-P** comes as videos; every video becomes a folder of frames. `--limit` takes single frames and leaves no
whole sequence, so flip rates then have no value.

**ImageNet-E** has a folder for each edit and `labels.txt` for all; one evaluation gives the accuracy in every folder.
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
    parts = [_HEAD.format(published=published, strings=_strings())]
    families: dict[str, list[EvalSetting]] = {title: [] for title in FAMILIES}
    for entry in entries.values():
        families[_family(entry)].append(entry)
    for family, members in families.items():
        if members:
            parts.append(f"## {family}\n\n{_table(registry, members)}")
    # _FOOT doubles its braces, like every text that goes through format.
    parts += [f"## Groups\n\n{_groups(registry)}", _FOOT.format()]
    return "\n".join(parts)


def _strings() -> str:
    """Rows for the settings that are given as strings."""
    lines = []
    for kind in KINDS:
        written, meaning = STRINGS[kind]
        lines.append("| " + ", ".join(f"`{word}`" for word in written.split(", ")) + f" | {meaning} |")
    return "\n".join(lines)


def _family(entry: EvalSetting) -> str:
    """The first family whose pattern the name or a tag matches."""
    words = (entry.name, *entry.tags)
    return next(title for title, pattern in FAMILIES.items() if any(re.match(pattern, word) for word in words))


def _table(registry: Registry, members: list[EvalSetting]) -> str:
    """The table of one section. Settings whose rows are equal are one row with their number."""
    rows: dict[tuple[str, ...], int] = {}
    for entry in members:
        row = (
            f"`{_pattern(entry, entry.name)}`",
            f"{entry.size:,}" if entry.size else "",
            _classes(registry, entry),
            f"`{_pattern(entry, entry.logits_from)}`" if entry.logits_from else "",
            f"`{_pattern(entry, entry.images_from)}`" if entry.images_from else "",
            *_source(entry),
            "ours" if "own-layout" in entry.tags else "",
        )
        rows[row] = rows.get(row, 0) + 1
    head = ["setting", "how many", "images", "classes", "logits of", "images of", "source", "licence", "layout"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (name, *cells), count in rows.items():
        lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _pattern(entry: EvalSetting, name: str) -> str:
    """The name with the variable part replaced, such as imagenet-c.<corruption>.<severity>."""
    for tag, (pattern, stands_for) in PATTERNS.items():
        if tag in entry.tags:
            return re.sub(pattern, stands_for, name)
    return name


def _classes(registry: Registry, entry: EvalSetting) -> str:
    """The number of classes among which the setting measures."""
    runnable = registry.runnable(entry.name)
    dataset = runnable.dataset
    # A metric of groups, such as ObjectNet's, counts groups rather than columns.
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
    """(source, licence); the licence is the one in parentheses in the source's text."""
    source = entry.dataset.source if entry.dataset else ""
    licence = _LICENCE.search(source)
    return source.replace("|", "\\|").replace("<", "&lt;"), licence["name"] if licence else ""


def _groups(registry: Registry) -> str:
    shelf = registry.eval_settings
    lines = ["`db.py --print-group MODEL GROUP` prints what is in the last column.\n"]
    lines += ["| group | settings | as a whole |", "|---|---|---|"]
    for name in shelf.groups:
        aggregate = shelf.aggregates.get(name)
        lines.append(f"| `{name}` | {len(shelf.expand(name))} | {_in_words(aggregate)} |")
    return "\n".join(lines) + "\n"


def _in_words(aggregate: object) -> str:
    """The numbers that an aggregate gives, for the table of groups."""
    if aggregate is None:
        return ""
    kind = type(aggregate).__name__
    if kind == "CorruptionSummary" and getattr(aggregate, "baseline", None):
        return "mean top1, mCE, relative mCE, CE of each corruption"
    return {
        "CorruptionSummary": "mean top1, and of each corruption",
        "Together": _parts(aggregate),
        "Mean": "mean top1",
        "FlipRates": "mean flip rate and T5D; mFR and mT5D where AlexNet has been run",
        "SpuriousScore": "mean average precision and AUROC over classes",
        "Difference": str(getattr(aggregate, "name", "")).replace("_", " "),
        "UnknownClasses": "AUROC, FPR95, AUPR of each score and set; means over near and far sets",
    }.get(kind, kind)


def _parts(aggregate: object) -> str:
    """The numbers of Together: the names of its differences, or corruption errors on disk and in memory."""
    parts = getattr(aggregate, "parts", ())
    if all(type(part).__name__ == "Difference" for part in parts):
        return ", ".join(_in_words(part) for part in parts)
    return "mean top1, mCE, relative mCE, CE of each corruption, on disk and in memory"


if __name__ == "__main__":
    main()
