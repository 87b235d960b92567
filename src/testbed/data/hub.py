"""Data sets of the Hugging Face hub: from the hub's own cache on this machine, else fetched into it."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.data.hub_layout import files_of_split, readme_head
from testbed.data.locate import MissingData
from testbed.data.network import hub_without_network
from testbed.data.parquet import refuse_missing_shards, samples_of_files, several_labels_in
from testbed.data.parquet_labels import LABEL_RULES
from testbed.data.samples import Dataset, Samples, fingerprint_of
from testbed.errors import DataError, EntryError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_LEAST_OF_A_COMMIT = 7  # digits that stand for the whole one, where it is in the cache
_BESIDE = ("README.md", "dataset_infos.json")  # what is fetched with the files of a split


@dataclass(frozen=True)
class HubDataset(Dataset):
    """One split of a data set of the hub, `repo` as OWNER/NAME. image, label, labels: as in ParquetDataset.

    revision: a commit, branch or tag; None is the branch main. config, split: may be left out where there is only one.
    What is in the cache is taken as it is, without a look at the hub: only a commit is the same on every machine.
    """

    repo: str
    revision: str | None = None
    config: str | None = None
    split: str | None = None
    image: str | None = None
    label: str | None = None
    labels: str = "auto"
    source: str = ""

    def __post_init__(self) -> None:
        if self.labels not in LABEL_RULES:
            raise EntryError(f"HubDataset: labels must be one of {', '.join(LABEL_RULES)}, got {self.labels!r}")

    def describe(self) -> str:
        revision, config = self.revision and f"@{self.revision}", self.config and f"/{self.config}"
        return f"hub {self.repo}{revision or ''}{config or ''}{(self.split and f':{self.split}') or ''}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        snapshot, files = self._located()
        samples = samples_of_files(self._parquet(files), self.image, self.label, self.labels)
        # The commit too: it stands for files beside the pictures, such as README.md with the class names.
        commit = snapshot.name
        return replace(
            samples, fingerprint=fingerprint_of(samples.fingerprint, commit), revision=f"{self.repo}@{commit}"
        )

    def several_labels(self) -> dict[str, tuple[int, ...]]:
        """Image -> all of its labels, for the pictures that have more than one."""
        return several_labels_in(self._parquet(self._located()[1]), self.image, self.label, self.labels)

    def _parquet(self, files: Sequence[Path]) -> Sequence[Path]:
        """The files, if they are parquet. Others of a snapshot are to be handed to their readers in `open`."""
        other = next((file for file in files if file.suffix != ".parquet"), None)
        if other is not None:
            raise DataError(
                f"{self.describe()}: expected parquet files, got {other.name}: wds:{other.parent}/*.tar reads shards"
            )
        return files

    def _located(self) -> tuple[Path, list[Path]]:
        """The folder of the snapshot, and the files of the split in it."""
        try:
            return self._in_cache()
        except DataError as error:
            self._fetch(error)
        return self._in_cache()

    def _in_cache(self) -> tuple[Path, list[Path]]:
        snapshot = find_snapshot(self.repo, self.revision)
        present = [path.relative_to(snapshot).as_posix() for path in sorted(snapshot.rglob("*")) if path.is_file()]
        files = [snapshot / file for file in self._chosen(present, readme_head(snapshot), snapshot.name)]
        refuse_missing_shards(files)
        return snapshot, files

    def _chosen(self, files: Sequence[str], head: Mapping[str, Any], commit: str) -> list[str]:
        return files_of_split(files, head, self.config, self.split, f"{self.repo}@{commit[:_LEAST_OF_A_COMMIT]}")

    def _fetch(self, missing: DataError) -> None:
        """Fetch the files of the split into the hub's cache. Without a network what is missing is the error."""
        from huggingface_hub import constants
        from huggingface_hub.errors import HfHubHTTPError

        with hub_without_network():
            if constants.HF_HUB_OFFLINE:
                raise missing
            try:
                self._fetch_files()
            except (OSError, HfHubHTTPError, ValueError) as error:
                first, *_ = str(error).splitlines() or [""]
                raise MissingData(f"{missing}; fetching it failed: {type(error).__name__}: {first}") from error

    def _fetch_files(self) -> None:
        from huggingface_hub import HfApi, snapshot_download

        where: dict[str, Any] = {"repo_id": self.repo, "repo_type": "dataset", "revision": self.revision}
        there = HfApi().dataset_info(self.repo, revision=self.revision, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in there.siblings or ()}
        beside = [file for file in _BESIDE if file in sizes]
        head = readme_head(Path(snapshot_download(**where, allow_patterns=beside))) if beside else {}
        files = self._chosen(list(sizes), head, str(there.sha))
        size = sum(sizes[file] for file in files)
        print(f"fetching {len(files)} files of {self.repo}@{there.sha}, {size / 1e9:.2g} GB", file=sys.stderr)
        snapshot_download(**where, allow_patterns=[*beside, *map(glob.escape, files)])


def cache_folder() -> Path:
    """Where the hub's client keeps what it fetches."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser() / "hub"


def find_snapshot(repo: str, revision: str | None = None) -> Path:
    """The folder of a data set's revision in the cache. Its name is the whole commit.

    The folder may lack files: the client fetches those that it is asked for. So it is looked for here and not by the
    client, which may refuse a folder that has all files of one split.
    """
    place = cache_folder() / f"datasets--{repo.replace('/', '--')}"
    snapshots = {path.name: path for path in sorted(place.glob("snapshots/*")) if path.is_dir()}
    word = revision or "main"
    pointer = place / "refs" / word
    commit = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else word
    if not _COMMIT.fullmatch(commit) and len(commit) >= _LEAST_OF_A_COMMIT:
        begin = [name for name in snapshots if name.startswith(commit)]
        commit = begin[0] if len(begin) == 1 else commit
    if commit in snapshots:
        return snapshots[commit]
    if not snapshots:
        raise MissingData(f"data set {repo} is not in the cache of the hub, {cache_folder()}")
    names = [str(path.relative_to(place / "refs")) for path in sorted(place.glob("refs/**/*")) if path.is_file()]
    raise MissingData(
        f"data set {repo}: no revision '{word}' in the cache of the hub, {cache_folder()}; "
        f"there are {', '.join([*names, *snapshots])}"
    )
