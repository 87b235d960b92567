"""Picture files: reading one, and the Samples of many. docs/data.md has a table of what every kind of picture gets."""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from testbed.data.regular import regular
from testbed.data.samples import Samples, fingerprint_of
from testbed.errors import DataError, ImageError

# The endings of torchvision's ImageFolder, with which published numbers were made.
EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))
# Other endings of pictures. Such files are not read; a folder that holds some is told of.
OTHER_PICTURES = frozenset(
    f".{ending}"
    for ending in (
        *("gif", "heic", "heif", "avif", "jp2", "j2k", "jxl", "jfif", "jpe", "pbm", "pnm", "pfm", "svg", "eps", "ps"),
        *("psd", "ico", "tga", "exr", "hdr", "dng", "raw", "apng", "dcm"),
    )
)
# What a file may hold, whatever its ending. Pillow would also hand an EPS file to Ghostscript, which runs code.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
MOST_PIXELS = 178_956_970  # Pillow's own bound: 1/2 GiB of RGB
_MACHINE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # say nothing about the picture
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339  # tags of TIFF
_WHITE_IS_ZERO, _UNSIGNED = 0, 1
_REMEDY = "save it with 8 or 16 bits per channel"


class FileState(NamedTuple):
    """What is known of a file without reading it."""

    size: int
    modified_ns: int
    changed_ns: int  # of the file's entry on disk, which no program can set back


def file_state(path: Path) -> FileState:
    state = path.stat()
    return FileState(state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def read_rgb(path: Path) -> Any:
    """The picture in RGB, 8 bits per channel, as stored: the first frame, without alpha, not turned by its EXIF tag.

    It is fully decoded here, so that the error of a truncated file can name the file.
    """
    return _decoded(lambda: regular(path), str(path))


def decode_rgb(data: bytes, where: str) -> Any:
    """The same of a picture whose bytes are at hand, such as a member of an archive; errors name `where`."""
    return _decoded(lambda: BytesIO(data), where)


def _decoded(source: Callable[[], Path | BytesIO], where: str) -> Any:
    try:
        with _opened(source()) as image:
            return _eight_bits(image).convert("RGB")
    except MemoryError as error:
        # No ImageError: such are skipped by --skip-bad-images, and this picture may be good.
        raise DataError(f"not enough memory to read {where}") from error
    except Exception as error:  # Pillow raises many kinds, from OSError to struct.error
        if isinstance(error, DataError) and not isinstance(error, ImageError):
            raise  # of what holds the picture, such as an archive that was replaced
        if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
            raise DataError(f"{where} cannot be read: {error.strerror}") from error
        raise ImageError(f"unreadable image {where}: {_in_one_line(error)}") from error


def _opened(source: Path | BytesIO) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(source, formats=FORMATS)
    except UnidentifiedImageError:
        size = source.stat().st_size if isinstance(source, Path) else source.getbuffer().nbytes
        came = "another kind of file" if size else "an empty file"
        raise ImageError(f"expected one of {', '.join(FORMATS)}, got {came}") from None


def _eight_bits(image: Any) -> Any:
    """The picture in a mode that `convert` brings to RGB. Wider pixels are rescaled: `convert` would cut them."""
    if not _is_unsigned(image):
        raise ImageError(f"expected unsigned pixels, got signed or float ones, whose range is not known: {_REMEDY}")
    if not image.mode.startswith(("I", "F")):
        return image
    from PIL import Image

    highest = _highest(image)
    pixels = np.asarray(image).astype(np.float64)
    if pixels.min(initial=0) < 0 or pixels.max(initial=0) > highest:
        raise ImageError(f"expected pixels from 0 to {highest}, got {pixels.min():g} to {pixels.max():g}")
    if image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        pixels = highest - pixels  # Pillow turns only 8-bit pictures of this kind round
    # Linear and rounded, as section 13.12 of the PNG specification recommends.
    return Image.fromarray(np.floor(pixels * 255 / highest + 0.5).astype(np.uint8))


def _is_unsigned(image: Any) -> bool:
    if image.format != "TIFF":
        return True
    return bool(np.all(np.asarray(image.tag_v2.get(_SAMPLE_FORMAT, _UNSIGNED)) == _UNSIGNED))


def _highest(image: Any) -> int:
    """The pixel value that means white in a picture of one wide channel; an error where the file does not tell."""
    if image.mode.startswith("I;16"):
        bits = image.tag_v2.get(_BITS, 16) if image.format == "TIFF" else 16
        return 2 ** int(np.ravel(bits)[0]) - 1
    # Pillow gives PGM files, and older releases PNG files, of 16 bits as 32-bit integers up to 65535.
    if image.mode == "I" and image.format in ("PPM", "PNG"):
        return 65535
    kind = "32-bit integer" if image.mode == "I" else "float" if image.mode == "F" else image.mode
    raise ImageError(f"expected pixels of 8 or 16 bits, got {kind} ones, whose range is not known: {_REMEDY}")


def _in_one_line(error: Exception) -> str:
    if isinstance(error, ImageError):
        return str(error)
    if isinstance(error, struct.error):
        return "damaged header"
    text = getattr(error, "strerror", None) or str(error)
    return f"{type(error).__name__}: {' '.join(text.split())}"


def left_out_in_words(others: Counter[str]) -> str:
    """The pictures that are not read, as one line; nothing where there are none."""
    counts = ", ".join(f"{n} {ending}" for ending, n in sorted(others.items()))
    return f"{counts} left out: only {', '.join(sorted(EXTENSIONS))} are read" if counts else ""


def picture_samples(
    root: Path,
    ids: Sequence[str],
    targets: np.ndarray,
    states: Sequence[FileState],
    *,
    paths: Sequence[str] | None = None,
    listing: Path | None = None,
    label_space: str = "own",
    num_classes: int | None = None,
    folders_are_classes: bool = False,
    left_out: str = "",
) -> Samples:
    """The Samples of picture files.

    An id is a path relative to `root`; where ids are something else, `paths` has the paths. `listing` is a file with
    the labels.
    """
    paths = ids if paths is None else paths
    numbers = np.array(states, dtype=np.int64).reshape(-1, 3)
    place = (listing or root).resolve()
    return Samples(
        ids=ids,
        targets=targets,
        load=lambda index: read_rgb(root / paths[index]),
        # File sizes stand in for the pixels: listing a dataset reads no picture.
        fingerprint=fingerprint_of("\n".join(ids), targets.tobytes(), np.ascontiguousarray(numbers[:, 0]).tobytes()),
        label_space=label_space,
        num_classes=num_classes,
        folders_are_classes=folders_are_classes,
        # The times of every file: a picture that was replaced by one of the same size must not come from the cache.
        cache_salt=f"{place}:{fingerprint_of(numbers.tobytes())}",
        newest_ns=int(numbers[:, 1].max(initial=0)),
        read=lambda index: regular(os.path.join(root, paths[index])).read_bytes(),
        decode=lambda index, data: decode_rgb(data, str(root / paths[index])),
        form=f"folder {root}",
        left_out=left_out,
    )


def packed_samples(
    ids: Sequence[str],
    targets: np.ndarray,
    sizes: Sequence[int],
    read: Callable[[int], bytes],
    files: Mapping[Path, FileState],
    *,
    label_space: str = "own",
    num_classes: int | None = None,
    folders_are_classes: bool = False,
    left_out: str = "",
) -> Samples:
    """The Samples of pictures that lie in other files: archives, shards, tables.

    `sizes` are those of the encoded pictures, in bytes, or of what holds them where a picture's own cannot be told
    without reading it; `read` gives the bytes of one, and must be safe to call from several threads and after a fork;
    `files` are what holds them. Pictures with the same ids, labels and sizes have the same fingerprint as a folder of
    them.
    """
    states = [(str(path.resolve()), *state) for path, state in files.items()]
    place = next(iter(files))

    def where(index: int) -> str:
        return f"{ids[index]} in {place if len(files) == 1 else place.parent}"

    return Samples(
        ids=ids,
        targets=targets,
        load=lambda index: _decoded(lambda: BytesIO(read(index)), where(index)),
        fingerprint=fingerprint_of("\n".join(ids), targets.tobytes(), np.asarray(sizes, dtype=np.int64).tobytes()),
        label_space=label_space,
        num_classes=num_classes,
        folders_are_classes=folders_are_classes,
        cache_salt=f"{place.resolve()}:{fingerprint_of(repr(states))}",
        newest_ns=max(state.modified_ns for state in files.values()),
        read=read,
        decode=lambda index, data: decode_rgb(data, where(index)),
        left_out=left_out,
    )
