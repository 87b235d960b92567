"""Which files of a data set on the Hugging Face hub are which split: by its README.md, else by their names.

The rules are those of the datasets library 5.2.0 (data_files.py, load.py). The first one that finds a file counts:
the data_files of README.md; names like validation-00000-of-00014; folders, then files, that are called after a split;
everything is train.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import DataError

ENDINGS = (".parquet", ".tar")  # of files that hold pictures
_KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"(?P<split>\w+(\.\w+)*)-\d{5}-of-\d{5}(-\w+)?\.\w+")
_HEAD = re.compile(r"---\s*\n(.*?)\n---\s*(\n|$)", re.DOTALL)


def readme_head(folder: Path) -> dict[str, Any]:
    """The YAML head of README.md in a folder; empty without one."""
    import yaml

    try:
        head = _HEAD.match((folder / "README.md").read_text(encoding="utf-8"))
        read = yaml.safe_load(head[1]) if head else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return read if isinstance(read, dict) else {}


def files_of_split(
    files: Sequence[str], head: Mapping[str, Any], config: str | None, split: str | None, where: str
) -> list[str]:
    """The files of one split of one configuration, sorted. What is not named must be the only one.

    files: relative paths of everything in the repository. head: of its README.md. where: for error messages.
    """
    splits = splits_of(_with_pictures(files), head, config, where)
    if split is None and len(splits) > 1:
        raise DataError(f"{where}: expected one split, got {', '.join(splits)}: {_say('split', next(iter(splits)))}")
    word = split or next(iter(splits))
    word = word if word in splits else _canonical(word)
    if word not in splits:
        raise DataError(f"{where}: no split '{split}', there are {', '.join(splits)}")
    chosen = sorted(splits[word])
    if not chosen:
        raise DataError(f"{where}: none of the files of the split '{word}' is there")
    cut = next((file for file in chosen if any(part.startswith("partial-") for part in file.split("/"))), None)
    if cut is not None:
        raise DataError(f"{where}: {cut} is only the beginning of the split, as its folder says: take another revision")
    return chosen


def splits_of(files: Sequence[str], head: Mapping[str, Any], config: str | None, where: str) -> dict[str, list[str]]:
    """Split -> its files, of one configuration."""
    below, listed = "", None
    configs = [c for c in head.get("configs") or () if isinstance(c, dict) and c.get("config_name")]
    if configs:
        chosen = _config(configs, config, where)
        below, listed = str(chosen.get("data_dir") or ""), chosen.get("data_files")
    else:
        below = _folder_of_config(files, config, where)
    if listed is not None:
        # Those without a file too: in a cache are the files of the splits that somebody asked for.
        splits = {split: _matching(files, patterns, below) for split, patterns in _patterns(listed).items()}
    else:
        inside = [file for file in files if file.startswith(f"{below}/")] if below else list(files)
        splits = _by_names(inside, len(below))
    if not any(splits.values()):
        raise DataError(f"{where}: no files ending in {' or '.join(ENDINGS)}{f' in {below}' if below else ''}")
    return splits


def _say(word: str, example: str) -> str:
    at_the_hub = f":{example}" if word == "split" else f"/{example}"
    return f"say which, as in hf:OWNER/NAME{at_the_hub} or parquet:FOLDER?{word}={example}"


def _with_pictures(files: Sequence[str]) -> list[str]:
    hidden = ("__", ".")
    return [f for f in files if f.endswith(ENDINGS) and not any(part.startswith(hidden) for part in f.split("/"))]


def _config(configs: Sequence[Mapping[str, Any]], wanted: str | None, where: str) -> Mapping[str, Any]:
    by_name = {str(config["config_name"]): config for config in configs}
    if wanted is not None:
        if wanted not in by_name:
            raise DataError(f"{where}: no configuration '{wanted}', there are {', '.join(by_name)}")
        return by_name[wanted]
    default = [config for config in configs if config.get("default")]
    if len(default) == 1 or len(configs) == 1:
        return (default or list(configs))[0]
    if "default" in by_name:
        return by_name["default"]
    first = next(iter(by_name))
    raise DataError(f"{where}: expected one configuration, got {', '.join(by_name)}: {_say('config', first)}")


def _folder_of_config(files: Sequence[str], wanted: str | None, where: str) -> str:
    """Without a README.md that names configurations, each is a folder."""
    tops = list(dict.fromkeys(file.split("/")[0] for file in sorted(files) if "/" in file))
    if wanted is not None:
        if not any(file.startswith(f"{wanted}/") for file in files):
            raise DataError(f"{where}: no configuration '{wanted}', there are {', '.join(tops) or 'none'}")
        return wanted
    own = [top for top in tops if top != "data" and _keyword(top) is None]
    if len(own) > 1 and len(own) == len(tops):
        raise DataError(f"{where}: expected one configuration, got {', '.join(own)}: {_say('config', own[0])}")
    return ""


def _patterns(listed: Any) -> dict[str, list[str]]:
    """Split -> patterns, of the data_files of a README.md in any of its forms."""
    if isinstance(listed, dict):
        return {str(split): _texts(paths) for split, paths in listed.items()}
    entries = listed if isinstance(listed, list) else [listed]
    patterns: dict[str, list[str]] = {}
    for entry in entries:
        split, paths = ("train", entry) if isinstance(entry, str) else (str(entry["split"]), entry["path"])
        patterns.setdefault(split, []).extend(_texts(paths))
    return patterns


def _texts(value: Any) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else [str(value)]


def _matching(files: Sequence[str], patterns: Sequence[str], below: str) -> list[str]:
    prefix = f"{below}/" if below else ""
    expressions = [_as_expression(prefix + pattern.removeprefix("./")) for pattern in patterns]
    return [file for file in files if any(expression.fullmatch(file) for expression in expressions)]


def _as_expression(pattern: str) -> re.Pattern[str]:
    """A glob in which * stays within a folder and ** does not."""
    marks = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(marks.get(part, re.escape(part)) for part in parts))


def _by_names(files: Sequence[str], skipped: int) -> dict[str, list[str]]:
    """Splits by the names of files and folders; the first `skipped` letters are those of the configuration."""

    def shard(file: str) -> str | None:
        match = _SHARD.fullmatch(file.rpartition("/")[2])
        return match["split"] if match else None

    def folder(file: str) -> str | None:
        return next(filter(None, map(_keyword, file[skipped:].split("/")[:-1])), None)

    def base_name(file: str) -> str | None:
        return _keyword(file.rpartition("/")[2])

    for rule in (shard, folder, base_name, lambda file: "train"):
        splits: dict[str, list[str]] = {}
        for file in files:
            split = rule(file)
            if split is not None:
                splits.setdefault(split, []).append(file)
        if splits:
            return splits
    return {}


def _keyword(name: str) -> str | None:
    """The split that a name holds as a word of its own, between dots, dashes, digits and the like."""
    words = re.split(r"[-._ 0-9]+", name)
    return next((split for split, known in _KEYWORDS.items() if set(known) & set(words)), None)


def _canonical(word: str) -> str:
    return next((split for split, known in _KEYWORDS.items() if word in known), word)
