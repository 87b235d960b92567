"""Pictures of every kind as bytes. Those that Pillow does not write are put together by hand."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
SMOOTH = np.stack([np.add.outer(np.arange(16) * 8, np.arange(24) * 4)] * 3, axis=2).astype(np.uint8)
WIDE = np.array([[0, 1, 127, 128], [129, 257, 1000, 4095], [30000, 32768, 65534, 65535]], dtype=np.uint16)


def encoded(pixels: np.ndarray | Image.Image, kind: str, **more: object) -> bytes:
    """A picture as Pillow writes it."""
    file = io.BytesIO()
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    picture.save(file, kind, **more)
    return file.getvalue()


def png(width: int, height: int, bits: int, colour_type: int, rows: bytes) -> bytes:
    """A PNG file; `rows` are its pixels, each row after its filter byte."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff(width: int, height: int, bits: int, data: bytes, photometric: int = 1, sample_format: int = 1) -> bytes:
    """An uncompressed little-endian TIFF file of one channel (TIFF 6.0, section 4)."""
    short, long = 3, 4
    tags = [
        *((256, long, width), (257, long, height), (258, short, bits), (259, short, 1), (262, short, photometric)),
        *((273, long, 8), (277, short, 1), (278, long, height), (279, long, len(data)), (339, short, sample_format)),
    ]
    offset = 8 + len(data) + len(data) % 2
    table = struct.pack("<H", len(tags))
    table += b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<I", offset) + data + b"\0" * (len(data) % 2) + table + struct.pack("<I", 0)


def packed_12_bits(values: np.ndarray) -> bytes:
    """Two numbers in three bytes, the most significant bits first, each row filled up to a byte."""
    rows = []
    for row in values:
        bits = "".join(f"{value:012b}" for value in row)
        rows.append(int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big"))
    return b"".join(rows)


def grey_16_png() -> bytes:
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in WIDE)
    return png(WIDE.shape[1], WIDE.shape[0], 16, 0, rows)


def rgb_16_png() -> bytes:
    rows = b"".join(b"\0" + np.repeat(row, 3).astype(">u2").tobytes() for row in WIDE)
    return png(WIDE.shape[1], WIDE.shape[0], 16, 2, rows)


def pgm(values: np.ndarray, highest: int) -> bytes:
    return b"P5\n%d %d\n%d\n" % (values.shape[1], values.shape[0], highest) + values.astype(">u2").tobytes()


def animated(kind: str) -> bytes:
    """Two frames: the first one black, the second white."""
    black, white = Image.new("RGB", (8, 6)), Image.new("RGB", (8, 6), "white")
    return encoded(black, kind, save_all=True, append_images=[white], **({"lossless": True} if kind == "WEBP" else {}))


def turned_by_exif() -> bytes:
    """A picture that a viewer would turn by 90 degrees: orientation 6."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(SMOOTH, "PNG", exif=exif)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 6\n%%EndComments\n0 0 8 6 rectfill\nshowpage\n%%EOF\n"
# What the fuzz test starts from: one file of every format that is read, and of some that are not.
SEEDS = (
    encoded(SMOOTH, "JPEG"),
    encoded(SMOOTH, "JPEG", progressive=True),
    encoded(Image.fromarray(SMOOTH).convert("CMYK"), "JPEG"),
    encoded(SMOOTH, "PNG"),
    encoded(Image.fromarray(SMOOTH).convert("P"), "PNG", transparency=0),
    encoded(SMOOTH, "PPM"),
    encoded(SMOOTH, "BMP"),
    encoded(SMOOTH, "TIFF"),
    encoded(SMOOTH, "TIFF", compression="tiff_lzw"),
    encoded(SMOOTH, "WEBP"),
    encoded(SMOOTH, "GIF"),
    animated("PNG"),
    animated("WEBP"),
    animated("GIF"),
    grey_16_png(),
    rgb_16_png(),
    pgm(WIDE, 65535),
    tiff(4, 3, 16, WIDE.tobytes()),
    tiff(4, 3, 12, packed_12_bits(WIDE >> 4)),
    turned_by_exif(),
    EPS,
)
