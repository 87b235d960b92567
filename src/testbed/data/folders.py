"""Datasets that are a folder with one subfolder of images per class."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.data.class_folders import check_rule, labels_of
from testbed.data.forms import Form, find_packed, packed_in, samples_of
from testbed.data.images import EXTENSIONS, OTHER_PICTURES, FileState, left_out_in_words, picture_samples
from testbed.data.locate import MissingData, find, is_there
from testbed.data.samples import Dataset, Samples
from testbed.errors import DataError, EntryError


@dataclass(frozen=True)
class StandardDataset(Dataset):
    """Images in one folder per class, at `name` under a data root or at any `path`.

    labels: how folder names become labels.
    - "imagenet" (wnids), "integer" (the number itself) or "sorted" (place among the sorted names);
    - "auto": whichever of these, or of the names of ImageNet's classes, fits all folders;
    - "none": no labels; the pictures may also lie in the folder itself;
    - "if-any": "none" if all pictures lie in the folder itself, else "auto".
    classes: the label of each class folder, for datasets with a numbering of their own; other folders are left out.

    What is found by `name` may also be parquet files, shards or an archive (testbed.data.forms).
    order_matters: settings count its pictures by their order in class folders, so that a form which does not tell the
    pictures' names is refused.
    """

    name: str | None = None
    path: str | os.PathLike[str] | None = None
    labels: str = "auto"
    also: Sequence[str] = ()
    source: str = ""
    classes: Mapping[str, int] | tuple[tuple[str, int], ...] | None = None
    order_matters: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "also", tuple(self.also))
        if self.classes is not None:  # as pairs, since a dataset must be hashable
            pairs = self.classes.items() if isinstance(self.classes, Mapping) else self.classes
            object.__setattr__(self, "classes", tuple((str(folder), int(label)) for folder, label in pairs))
        if (self.name is None) == (self.path is None):
            raise EntryError(f"StandardDataset: expected name or path, got name={self.name!r}, path={self.path!r}")
        check_rule("StandardDataset", self.labels)

    def describe(self) -> str:
        return f"folder {self.name or self.path}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        named = dict(self.classes or ()) or None
        form = None if self.name is None or self._has_folder(data_roots) else find_packed(self._names(), data_roots)
        if form is not None:
            return samples_of(form, self._names()[0], self.labels, named, self.order_matters)
        root = self._locate(data_roots)
        others: Counter[str] = Counter()
        files = sorted(walk_images(root, others))
        if not files:
            form = packed_in(root)
            if form is not None and self.name is not None:
                return samples_of(form, self.name, self.labels, named, self.order_matters)
        if named is not None:
            files = [file for file in files if file[0].split("/", 1)[0] in named]
        left_out = left_out_in_words(others)
        if not files:
            raise DataError(_no_images(root, named, form) + (f"; {left_out}" if left_out else ""))
        paths = [path for path, _ in files]
        labelled = labels_of(paths, self.labels, named, root, [e.name for e in _entries(str(root)) if _is_folder(e)])
        return picture_samples(
            root,
            labelled.ids,
            labelled.targets,
            [files[place][1] for place in labelled.order],
            paths=[paths[place] for place in labelled.order],
            label_space=labelled.space,
            num_classes=labelled.num_classes,
            folders_are_classes=labelled.folders_are_classes,
            left_out=left_out,
        )

    def packed(self, data_roots: Sequence[Path]) -> Path | None:
        """The first file of a form other than a folder, where the dataset is in a data root in such a form."""
        form = None if self.name is None else find_packed(self._names(), data_roots)
        return form.files[0] if form is not None else None

    def _names(self) -> tuple[str, ...]:
        return (str(self.name), *self.also)

    def _has_folder(self, data_roots: Sequence[Path]) -> bool:
        return any(is_there(root / name) for root in data_roots for name in self._names())

    def _locate(self, data_roots: Sequence[Path]) -> Path:
        if self.path is None:
            assert self.name is not None
            root = find(self.name, self.also, data_roots, "a folder of class folders", self.source)
        else:
            root = Path(self.path).expanduser()
        if root.is_file():
            raise DataError(f"dataset folder {root} is a file, expected a folder; {_instead(root)}")
        if not root.is_dir():
            raise MissingData(f"dataset folder {root} does not exist: expected class folders with images")
        return root


def _instead(file: Path) -> str:
    kind = file.suffix.lower().removeprefix(".")
    if kind in ("tar", "zip", "parquet"):
        return f"{kind}:{file} reads it"
    return "manifest:FILE.csv reads a list"


def _no_images(root: Path, named: Mapping[str, int] | None, form: Form | None) -> str:
    wanted = f" such as {next(iter(named))}" if named else ""
    told = f"no images in {root}: expected class folders{wanted} with jpg, png, ... files in them"
    kind = {"shards": "wds", "parquet": "parquet"}.get(form.kind if form is not None else "")
    return f"{told}; {kind}:{root} reads the {form.kind} in it" if kind and form is not None else told


def walk_images(root: Path, others: Counter[str] | None = None) -> list[tuple[str, FileState]]:
    """(path relative to `root` with /, size and times) of every image below `root`.

    Pictures of kinds that are not read are counted in `others`, by their endings.

    Links to folders are followed, unless they lead back to a folder on the way to them. A broken link to a picture is
    listed with size 0; reading it raises an error that names it.
    """
    pictures: list[tuple[str, FileState]] = []
    # (path from root, path on disk, folders in which links were followed on the way there)
    pending: list[tuple[str, str, tuple[str, ...]]] = [("", str(root), ())]
    while pending:
        prefix, folder, trail = pending.pop()
        for entry in _entries(folder):
            if _is_folder(entry):
                new_trail = (*trail, os.path.realpath(folder)) if entry.is_symlink() else trail
                if new_trail is trail or not _leads_back(entry.path, new_trail):
                    pending.append((f"{prefix}{entry.name}/", entry.path, new_trail))
                continue
            ending = os.path.splitext(entry.name)[1].lower()
            if ending in EXTENSIONS and entry.name[0] != ".":
                pictures.append((prefix + entry.name, _state_of(entry)))
            elif others is not None and ending in OTHER_PICTURES and entry.name[0] != ".":
                others[ending] += 1
    return pictures


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror}") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _leads_back(link: str, folders: Sequence[str]) -> bool:
    """Whether a link leads to one of the folders or to a folder above one: following it would never end."""
    target = os.path.realpath(link)
    return any(os.path.commonpath((target, folder)) == target for folder in folders)


def _state_of(entry: os.DirEntry[str]) -> FileState:
    try:
        stat = entry.stat()
    except OSError:
        return FileState(0, 0, 0)
    return FileState(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
