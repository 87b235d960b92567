"""Digests of what images hold, to the last byte: a fingerprint knows only their names, labels and sizes.

The digest of some images is the sum of one number per image, so that those of chunks add up to that of the whole,
however the rows were shared out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from testbed.data.rows import Rows
from testbed.data.samples import Samples
from testbed.errors import ImageError

_MODULUS = 1 << 256


def content_of(samples: Samples, rows: Rows) -> str | None:
    """The digest of the images of some rows; None for a dataset that cannot give their bytes."""
    if samples.read is None:
        return None
    return as_text(sum(int.from_bytes(digest_of(samples, int(index)), "big") for index in rows.indices))


def digest_of(samples: Samples, index: int) -> bytes:
    """32 bytes that stand for one image: its id and what is stored of it."""
    return digest_with(samples, index, stored_bytes(samples, index))


def stored_bytes(samples: Samples, index: int) -> bytes | None:
    """What is stored of an image; None where it cannot be read."""
    assert samples.read is not None
    try:
        return samples.read(index)
    except (OSError, ImageError):  # ImageError: of a damaged member of an archive
        return None


def digest_with(samples: Samples, index: int, data: bytes | None) -> bytes:
    """The digest of an image whose stored bytes are at hand.

    An image that cannot be read counts as empty: whether it can be is a matter of its own.
    """
    name = samples.ids[index].encode("utf-8", "surrogateescape")
    return hashlib.sha256(name + b"\0" + (data or b"")).digest()


def sum_of(contents: Iterable[str | None]) -> str | None:
    """The digest of several chunks together; None where one of them has none."""
    total = 0
    for content in contents:
        if not content:
            return None
        total += int(content, 16)
    return as_text(total)


def as_text(total: int) -> str:
    """The sum of digests as the text that is stored."""
    return f"{total % _MODULUS:064x}"
