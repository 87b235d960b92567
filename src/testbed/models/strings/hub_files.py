"""The folder of a model: one on this machine, or `OWNER/NAME[@REVISION]` in the cache of the Hugging Face Hub.

What the cache holds is taken from there without asking the network, so that all processes of a run see one revision.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from testbed.errors import ModelError, TestbedError, UnknownName
from testbed.models.weights import hub_without_network, note_file

_REPOSITORY = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+?)(@(?P<revision>[^@\s]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CONFIGS = ("config.json", "*processor_config.json")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the second is pickled: read as tensors only


@dataclass(frozen=True)
class ModelFolder:
    """A folder with config.json, and for a repository of the hub where it comes from."""

    path: Path
    repository: str = ""
    revision: str = ""  # the whole commit

    @property
    def origin(self) -> str:
        return f"{self.repository}@{self.revision}" if self.repository else str(self.path)

    def config(self) -> dict[str, Any]:
        content = read_json(self.path / "config.json")
        if not isinstance(content, dict):
            raise ModelError(f"{self.path / 'config.json'}: expected an object, got {type(content).__name__}")
        return content

    def add_file(self, name: str) -> None:
        """Fetch a file that the cache has not got, though it has others of this revision; it may not exist."""
        if self.repository and not (self.path / name).is_file():
            with contextlib.suppress(TestbedError):
                _snapshot(self.repository, self.revision, (name,), fetch=True)

    def with_weights(self) -> list[Path]:
        """The files of the weights, fetched where need be, and noted for the provenance."""
        if self.repository and not _weights_in(self.path):
            for name in _WEIGHTS:
                stem, _, ending = name.rpartition(".")
                _snapshot(self.repository, self.revision, (f"{stem}*.{ending}", f"{name}.index.json"), fetch=True)
                if _weights_in(self.path):
                    break
        found = _weights_in(self.path)
        if not found:
            offline = "; without a network only what the hub's cache holds is found" if self.repository else ""
            raise ModelError(f"{self.origin}: expected weights, {' or '.join(_WEIGHTS)}, got none{offline}")
        for file in found:
            note_file(file, f"{self.origin}/{file.name}" if self.repository else "")
        return found


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: expected a JSON file: {type(error).__name__}: {error}") from error


def find_folder(name: str, rest: str, form: str, place: str = "") -> ModelFolder:
    """The folder that the string `name` means by `rest`; `form` is how such strings are written.

    place: "hub" or "local" where the string says it; otherwise a folder that there is goes before a repository.
    """
    path = Path(rest).expanduser()
    if place == "hub" or not path.is_dir():
        if place == "local":
            raise UnknownName(f"'{name}': expected {form}, and there is no folder {rest}")
        if place == "" and path.is_file():
            raise UnknownName(f"'{name}': expected {form}, got a file: name the folder that it is in")
        match = _REPOSITORY.fullmatch(rest)
        if match is None or rest.startswith((".", "~")):
            raise UnknownName(f"'{name}': expected {form}" + ("" if place else f", and there is no folder {rest}"))
        return _in_cache(name, match["repository"], match["revision"])
    if not (path / "config.json").is_file():
        raise UnknownName(f"'{name}': expected a folder with config.json, as save_pretrained writes it; there is none")
    return ModelFolder(path)


@lru_cache(maxsize=256)
def _in_cache(name: str, repository: str, revision: str | None) -> ModelFolder:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UnknownName(f"'{name}' needs the package huggingface_hub: pip install huggingface_hub")
    try:
        path = _snapshot(repository, revision, _CONFIGS)
    except TestbedError as error:
        raise UnknownName(f"'{name}': {error}") from error
    if not (path / "config.json").is_file():
        raise UnknownName(f"'{name}': expected a repository with config.json; there is none in {repository}")
    return ModelFolder(path, repository, path.name if _COMMIT.fullmatch(path.name) else str(revision))


def _snapshot(repository: str, revision: str | None, patterns: Sequence[str], fetch: bool = False) -> Path:
    """The folder of a revision with the files of these patterns: from the cache, unless `fetch`, or from the hub."""
    import huggingface_hub as hub
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    def get(local: bool) -> Path:
        found: str = hub.snapshot_download(
            repository, revision=revision, allow_patterns=list(patterns), local_files_only=local
        )
        return Path(found)

    where = f"{repository}@{revision}" if revision else repository
    if not fetch:
        held = _tried(lambda: get(local=True))
        if held is not None and (held / "config.json").is_file():
            return held
    try:
        with hub_without_network():
            return get(local=bool(hub.constants.HF_HUB_OFFLINE))
    except RevisionNotFoundError as error:
        raise ModelError(f"the hub's {repository} has no revision '{revision}'") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelError(f"the hub has no repository {repository}, or it asks for a login: `hf auth login`") from error
    except OSError as error:  # also what the hub's client raises without a network
        raise ModelError(
            f"{where} is not in the cache {hub.constants.HF_HUB_CACHE}, and the hub cannot be reached"
            + ("; offline a revision is a branch or a whole commit of 40 digits" if revision else "")
        ) from error


def _tried(get: Callable[[], Path]) -> Path | None:
    try:
        return get()
    except (OSError, ValueError):  # not held, or no name of a repository
        return None


def _weights_in(folder: Path) -> list[Path]:
    """The files of the weights in a folder, all of them or none."""
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            parts = [folder / part for part in sorted(set(read_json(index).get("weight_map", {}).values()))]
            if parts and all(part.is_file() for part in parts):
                return parts
    return []
