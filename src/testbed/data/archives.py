"""Members of tar and zip files, read where they lie: an index of offsets is made once and kept, nothing is unpacked."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from testbed.data.images import EXTENSIONS, FileState, file_state
from testbed.data.regular import regular
from testbed.data.unpack import DeclaredSize, check_end, check_name
from testbed.data.user_cache import keep, user_cache
from testbed.errors import DataError, ImageError, TestbedError, in_words

_FORMAT = 1  # of the kept index
_LABELS = (".cls", ".json", ".npy", ".txt")  # members that are kept with the index: they are read at every opening
_MOST_OF_A_LABEL = 1 << 14
_MOST_OF_LABELS = 1 << 26  # of one archive; further ones are read where they lie
_MOST_OF_A_PICTURE = 1 << 30
_LOCAL_HEADER = 30  # bytes before the name of a member of a zip file
_STORED, _DEFLATED = 0, 8
_NO_CHECKSUM = -1
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Member(NamedTuple):
    """A file in an archive: `packed` bytes from `offset` on, which are `size` bytes when they are inflated."""

    name: str
    offset: int
    size: int
    packed: int
    checksum: int = _NO_CHECKSUM  # CRC-32, in zip files
    deflated: bool = False


@dataclass(frozen=True)
class Archive:
    """A tar or zip file whose members can be read in any order, by any number of threads and processes."""

    path: Path
    state: FileState
    members: tuple[Member, ...]
    folders: tuple[str, ...] = ()  # entries for folders, which may hold nothing
    labels: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # contents of small members

    def read(self, member: Member) -> bytes:
        """The bytes of a member. It is opened for each, as a file in a folder is: nothing is shared or left open."""
        if max(member.size, member.packed) > _MOST_OF_A_PICTURE:
            raise ImageError(f"{member.name} in {self.path} has more than {_MOST_OF_A_PICTURE:,} bytes")
        try:
            data = self._bytes(member)
            if member.deflated:
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, member.size + 1)
        except MemoryError as error:
            raise DataError(f"not enough memory to read {member.name} in {self.path}") from error
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error.strerror}") from error
        except zlib.error as error:
            raise ImageError(f"{member.name} in {self.path} is damaged: {error}") from error
        if len(data) != member.size or member.checksum not in (_NO_CHECKSUM, zlib.crc32(data)):
            raise ImageError(f"{member.name} in {self.path} is damaged: its size or checksum is not as declared")
        return data

    def _bytes(self, member: Member) -> bytes:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            now = os.fstat(descriptor)
            if (now.st_size, now.st_mtime_ns) != (self.state.size, self.state.modified_ns):
                raise DataError(f"{self.path} has been written since its members were listed: start again")
            return os.pread(descriptor, member.packed, member.offset)
        finally:
            os.close(descriptor)


def open_archive(path: Path) -> Archive:
    """The archive with its index: the kept one if the file has the size and times it had, else a new one."""
    try:
        state = file_state(regular(path))
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise DataError(f"archive {path} cannot be read: {error.strerror}") from error
    place = path.resolve()
    kept = user_cache("archives") / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}.json"
    archive = _kept(kept, path, state)
    if archive is not None:
        return archive
    archive = _listed(path, state, start)
    if file_state(path) != state:
        raise DataError(f"{path} is being written: wait until it is whole")
    keep(kept, _as_kept(archive))
    return archive


# ---- the kept index --------------------------------------------------------------------------------------


def _as_kept(archive: Archive) -> bytes:
    index = {
        "format": _FORMAT,
        "state": archive.state,
        "members": archive.members,
        "folders": archive.folders,
        "labels": {name: base64.b85encode(data).decode() for name, data in archive.labels.items()},
    }
    text = json.dumps(index).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def _kept(file: Path, path: Path, state: FileState) -> Archive | None:
    """The archive by its kept index; None where there is none, or one of another file or another program."""
    try:
        digest, _, text = file.read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            return None
        index = json.loads(text)
        if index["format"] != _FORMAT or FileState(*index["state"]) != state:
            return None
        labels = {name: base64.b85decode(data) for name, data in index["labels"].items()}
        return Archive(path, state, tuple(Member(*m) for m in index["members"]), tuple(index["folders"]), labels)
    except (OSError, ValueError, KeyError, TypeError):
        return None


# ---- making it -------------------------------------------------------------------------------------------


def _listed(path: Path, state: FileState, start: bytes) -> Archive:
    packed_by = next((kind for magic, kind in _COMPRESSED.items() if start.startswith(magic)), "")
    if packed_by:
        raise DataError(
            f"{path} is compressed by {packed_by}, so that a picture cannot be read without all before it: expected a "
            f"plain tar or zip. Unpack it once: `tar xf {path}`, and name the folder"
        )
    is_zip = start.startswith((b"PK\3\4", b"PK\5\6"))
    try:
        members, folders = _zip_members(path) if is_zip else _tar_members(path, state)
    except TestbedError:
        raise
    except MemoryError as error:
        raise DataError(f"not enough memory to list the members of {path}") from error
    except Exception as error:  # damaged headers raise many kinds, from tarfile.ReadError to struct.error
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"archive {path} cannot be read: {error.strerror}") from error
        kind = "zip" if is_zip else "tar"
        raise DataError(f"{path} is no whole {kind} file, fetch or pack it again: {in_words(error)}") from error
    folders = [name for name in folders if name not in ("", ".")]
    for name in (*folders, *(member.name for member in members)):
        check_name(name, str(path))
    archive = Archive(path, state, tuple(members), tuple(folders))
    return Archive(path, state, archive.members, archive.folders, dict(_small(archive)))


def _small(archive: Archive) -> Iterator[tuple[str, bytes]]:
    """The contents of the members that hold labels."""
    room = _MOST_OF_LABELS
    for member in archive.members:
        if member.size <= _MOST_OF_A_LABEL and member.name.lower().endswith(_LABELS) and member.size <= room:
            room -= member.size
            try:
                yield member.name, archive.read(member)
            except ImageError as error:
                raise DataError(str(error)) from error


def _tar_members(path: Path, state: FileState) -> tuple[list[Member], list[str]]:
    files: dict[str, Member] = {}  # a file that comes twice was replaced by its later version
    links: dict[str, str] = {}
    folders = []
    last = -1
    with tarfile.open(path, "r:") as archive:
        for entry in _shown(archive, path):
            name = _plain(entry.name)
            # A negative size leads back: tarfile would go round for ever.
            if entry.offset <= last or entry.size < 0 or entry.offset_data + entry.size > state.size:
                raise tarfile.ReadError(f"the header of {name} leads out of the file")
            last = entry.offset
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep a million of them in memory
            if entry.isdir():
                folders.append(name)
            elif entry.islnk():
                links[name] = _plain(entry.linkname)
            elif entry.issym():
                links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.linkname))
            elif entry.issparse():
                raise DataError(f"{path}: {name} is stored with holes, expected plain files: pack without --sparse")
            elif entry.isreg():
                files.pop(name, None)
                files[name] = Member(name, entry.offset_data, entry.size, entry.size)
        check_end(archive, archive.fileobj)
        _check_mark(archive, path)
    return [*files.values(), *_linked(links, files, path)], folders


def _check_mark(archive: tarfile.TarFile, path: Path) -> None:
    """Refuse a tar that ends without its mark: one that was cut between two members looks whole otherwise."""
    stream: Any = archive.fileobj
    stream.seek(archive.offset)
    if len(stream.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
        raise DataError(
            f"{path} ends without the mark of its end, so it was probably cut short: fetch it again, or, if it is "
            f"whole, add the mark with `head -c 1024 /dev/zero >> {path}`"
        )


def _linked(links: Mapping[str, str], files: Mapping[str, Member], path: Path) -> Iterator[Member]:
    """Links to files of the archive, as these files under other names."""
    for name, target in links.items():
        seen = {name}
        while target in links and target not in seen:
            seen.add(target)
            target = links[target]
        if target in files:
            yield files[target]._replace(name=name)
        elif posixpath.splitext(name)[1].lower() in EXTENSIONS:
            raise DataError(f"{path}: {name} is a link to {target}, which is not in it: pack with `tar -h`")


def _zip_members(path: Path) -> tuple[list[Member], list[str]]:
    files: dict[str, Member] = {}
    folders = []
    size = DeclaredSize(path)
    with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
        for entry in archive.infolist():  # before anything is read: no member gives more than it declares
            size.add(entry.file_size)
        for entry in _shown(archive.infolist(), path):
            name = _plain(entry.filename)
            if entry.is_dir():
                folders.append(name)
                continue
            if entry.flag_bits & 1:
                raise DataError(f"{path} needs a password: unpack it by hand, and name the folder")
            if entry.compress_type not in (_STORED, _DEFLATED):
                raise DataError(f"{path}: {name} is packed in a way that few programs read: pack it with `zip`")
            stream.seek(entry.header_offset)
            header = stream.read(_LOCAL_HEADER)
            if len(header) < _LOCAL_HEADER or not header.startswith(b"PK\3\4"):
                raise zipfile.BadZipFile(f"no header of {name} where the list of members says")
            lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            offset = entry.header_offset + _LOCAL_HEADER + lengths
            deflated = entry.compress_type == _DEFLATED
            files[name] = Member(name, offset, entry.file_size, entry.compress_size, entry.CRC, deflated)
    return list(files.values()), folders


def _plain(name: str) -> str:
    """The name without ./ before it and / after it, as paths in a folder are written."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name.rstrip("/")


def _shown(members: Iterable[Any], path: Path) -> Any:
    from tqdm import tqdm

    return tqdm(members, desc=f"listing {path.name}", unit=" files", disable=None, delay=2)
