"""What lies in a registry folder: files with entries, files in the wrong place, and why a name is not there."""

from __future__ import annotations

import json
import re
import traceback
from pathlib import Path

from testbed.data.locate import clone, home
from testbed.data.regular import regular
from testbed.errors import TestbedError

PARTS = ("models", "eval_settings")  # the subfolders of a registry folder
# The import lines of plug-in files of the ImageNet Testbed. `models` alone may be a package of the user's own.
_FOREIGN = re.compile(
    r"^[ \t]*(from|import)[ \t]+(registry|models\.model_base|eval_settings\.\w+|mldb(\.\w+)?)\b(?!\.)", re.MULTILINE
)
# Its files without entries, in whose place ours stand.
_HELPERS = ("model_base", "eval_setting_base", "eval_setting_subsample", "image_utils")


def default_folder() -> Path:
    """The registry that comes with the program."""
    return home("registry")


def own_folder() -> Path | None:
    """The folder `registry` of the working directory, where users of an installed package keep entries; else None."""
    # In a clone, and where an installed package is called in one, that folder is the program's own.
    folder = Path("registry")
    return folder if clone() is None and folder.is_dir() and not Path("src", "testbed").is_dir() else None


def mentions(path: Path, name: str) -> bool:
    """Whether a file contains the name as a string. A broken file cannot be asked for its entries."""
    text = _text(path)
    return f'"{name}"' in text or f"'{name}'" in text


def one_line(error: BaseException, path: Path) -> str:
    """An error of a plug-in file in one line, with the line number in that file."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} (line {error.lineno})"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    kind = "" if isinstance(error, TestbedError) else f"{type(error).__name__}: "
    told = f"{kind}{error}"
    # A name with a dot may be a part that another version of an installed package has.
    if isinstance(error, ModuleNotFoundError) and error.name and error.name in str(error) and "." not in error.name:
        told = f"it needs the package {error.name}, which is not installed"
    return " ".join(told.split()) + (f" (line {lines[-1]})" if lines else "")


def plug_in_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of models/ or eval_settings/ with entries: in our words, and in those of the ImageNet Testbed."""
    paths = [p for p in sorted(folder.glob("*.py")) if not p.name.startswith("_") and p.stem not in _HELPERS]
    foreign = [p for p in paths if _FOREIGN.search(_text(p))]
    return [p for p in paths if p not in foreign], foreign


def meant_folder(folder: Path) -> Path | None:
    """The registry folder that is meant by one of its parts, or by a checkout of the ImageNet Testbed; else None."""
    if any((folder / part).is_dir() for part in PARTS):
        return None
    if folder.name in PARTS:
        return folder.parent
    return folder / "src" if any((folder / "src" / part).is_dir() for part in PARTS) else None


def misplaced_files(folder: Path) -> dict[Path, str]:
    """Python files with entries that lie where none are read, each with the place where it belongs.

    Those in the registry folder itself and, for the project's own, those in src/models and src/eval_settings, where the
    ImageNet Testbed has them.
    """
    places = {folder: " or ".join(str(folder / part) for part in PARTS)}
    if folder.resolve() == default_folder().resolve():
        places |= {folder.parent / "src" / part: str(folder / part) for part in PARTS}
    return {
        path: f"files are not read there; move it to {right}"
        for place, right in places.items()
        for path in sorted(place.glob("*.py"))
        if "registry.add_" in _text(path)
    }


def why_unavailable(name: str) -> str:
    """Why a model of the ImageNet Testbed cannot be had, and what can be run in its place; empty for any other name."""
    path = default_folder() / "metadata" / "imagenet_testbed_unavailable.json"
    families = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    for family in families:
        if any(name in names for names in family["models"].values()):
            other = family.get("instead", {}).get(name)
            instead = f"; the same architecture with other weights is {other}" if other else ""
            return f"model '{name}' of the ImageNet Testbed cannot be had: {family['reason']}{instead}"
    return ""


def _text(path: Path) -> str:
    """What a file says; nothing where it cannot be read."""
    try:
        return regular(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, TestbedError):
        return ""
