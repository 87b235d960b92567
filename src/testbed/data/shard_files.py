"""Which tar files a string such as `wds:data/val-{00..63}.tar` means, and the class names beside them."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from testbed.data.locate import MissingData
from testbed.data.regular import regular
from testbed.errors import DataError

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(?P<first>\d+)\.\.(?P<last>\d+)")
_DIGITS = re.compile(r"(\d+)")
_NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>\d{1,9})(-of-(?P<count>\d{1,9}))?\D*")
_MOST_SHARDS = 100_000
_COUNT, _NAMES = "nshards.txt", "classnames.txt"
_SPLIT = "test"  # of the sets of clip-benchmark
_MOST_NAMED = 4


def shard_files(text: str) -> list[Path]:
    """The shards in the order of their numbers. Raises DataError where one is missing."""
    path = Path(text).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return [path]
    files: list[Path] = []
    for pattern in _expanded(str(path)):
        matches = [Path(p) for p in glob.glob(pattern, recursive=True)]
        if not matches:
            problem = f"shard {pattern} does not exist" if "{" in text else f"no shards at {pattern}"
            raise MissingData(
                f"{problem}: expected tar files, as a folder, a glob or a range such as val-{{00..63}}.tar"
            )
        files += sorted(matches, key=_by_number)
    if "{" not in text:
        _refuse_gaps(files)
    return files


def class_names(files: Sequence[Path]) -> list[str]:
    """The lines of classnames.txt in the folder of the shards or the one above; empty where there is none."""
    own = files[0].absolute().parent
    for folder in (own, own.parent):
        path = folder / _NAMES
        # Beside test/nshards.txt the names are those of the shards in that folder.
        if path.is_file() and not (folder == own and (own / _SPLIT / _COUNT).is_file()):
            text = _text(path)
            names = [line.strip() for line in text.splitlines()]
            while names and not names[-1]:
                names.pop()
            return names
    return []


def _in_folder(folder: Path) -> list[Path]:
    for place in (folder, folder / _SPLIT):
        if (place / _COUNT).is_file():
            word = _text(place / _COUNT).strip()
            if not word.isdecimal() or not 0 < len(word) <= 6 or not 0 < int(word) <= _MOST_SHARDS:
                raise DataError(f"{place / _COUNT}: expected the number of shards, got {word[:40]!r}")
            files = [place / f"{number}.tar" for number in range(int(word))]
            missing = [file.name for file in files if not file.is_file()]
            if missing:
                raise DataError(f"{place}: {len(missing)} of {word} shards are missing: {_some(missing)}")
            return files
    files = sorted(folder.glob("*.tar"), key=_by_number)
    if not files:
        raise MissingData(
            f"no shards in {folder}: expected tar files, or {_SPLIT}/{_COUNT} and the tar files it counts"
        )
    sets = sorted({_DIGITS.sub("#", file.name) for file in files})
    if len(sets) > 1:
        raise DataError(f"{folder}: expected the shards of one set, got {_some(sets)}: name them by a glob")
    _refuse_gaps(files)
    return files


def _refuse_gaps(files: Sequence[Path]) -> None:
    """Refuse shards whose numbers leave one out: one of them was lost."""
    numbers: dict[tuple[Path, str, str], set[int]] = {}
    for file in files:
        match = _NUMBERED.fullmatch(file.name)
        if match is not None:
            key = (file.parent, match["before"], match["count"] or "")
            numbers.setdefault(key, set()).add(int(match["number"]))
    for (folder, before, count), matches in numbers.items():
        first, last = min(matches), max(matches)
        if count:  # shard-00003-of-00064; some count from 1
            first = int(int(count) in matches)
            last = int(count) - 1 + first
        if last - first > _MOST_SHARDS:
            continue
        missing = sorted(set(range(first, last + 1)) - matches)
        if missing:
            raise DataError(
                f"{folder}: {len(missing)} of the shards {before}... are missing: number {_some(missing)}; a list such "
                "as {00,02} takes only those that it names"
            )


def _expanded(text: str) -> list[str]:
    """The string once for each word in braces: {00..63} counts, {00,02} lists."""
    match = _BRACES.search(text)
    if match is None:
        return [text]
    span = _RANGE.fullmatch(match[1])
    if span is None and "," not in match[1]:
        raise DataError(f"'{text}': expected a range {{00..63}} or a list {{00,01}} in braces, got {match[0]}")
    words = match[1].split(",")
    if span is not None:
        first, last = span["first"], span["last"]
        if max(len(first), len(last)) > 9 or not 0 <= int(last) - int(first) < _MOST_SHARDS:
            raise DataError(f"'{text}': expected a range of at most {_MOST_SHARDS} shards, got {match[0]}")
        words = [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    rest = [text[: match.start()] + word + text[match.end() :] for word in words]
    if len(rest) > _MOST_SHARDS:
        raise DataError(f"'{text}': more than {_MOST_SHARDS} shards")
    return [path for part in rest for path in _expanded(part)]


def _by_number(path: Path) -> list[tuple[int, str]]:
    """10.tar comes after 9.tar."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(path.name)]


def _text(path: Path) -> str:
    try:
        return regular(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _some(names: Sequence[object]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(str, names[:_MOST_NAMED])) + more
