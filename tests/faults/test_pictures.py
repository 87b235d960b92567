"""Every kind of picture is read as docs/data.md says, or refused in one line; none hangs, and none is cut to white."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import tiny
from faults.bounds import no_longer_than, no_more_than
from faults.fuzzing import fuzz_settings
from faults.made_pictures import (
    COLOURS,
    EPS,
    SEEDS,
    SMOOTH,
    WIDE,
    animated,
    encoded,
    grey_16_png,
    packed_12_bits,
    pgm,
    png,
    rgb_16_png,
    tiff,
    turned_by_exif,
)
from testbed import StandardDataset
from testbed.data.images import read_rgb
from testbed.errors import DataError, ImageError, TestbedError

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def scaled(values, highest):
    """13.12 of the PNG specification: output = floor(input * MAXOUTSAMPLE / MAXINSAMPLE + 0.5), in all channels."""
    grey = [[int(int(v) * 255 / highest + 0.5) for v in row] for row in values]
    return np.repeat(np.array(grey)[:, :, None], 3, axis=2)


def grey(pixels):
    return np.repeat(np.asarray(pixels)[:, :, None], 3, axis=2)


BITS = COLOURS[:, :, 0] > 127
ALPHA = np.dstack([COLOURS, np.full(COLOURS.shape[:2], 7, np.uint8)])
PALETTE = Image.fromarray(COLOURS).quantize(16)
BLACK = np.zeros((6, 8, 3), np.uint8)
INK = (0, 255, 255, 0)  # no cyan, all magenta and yellow, no black: RGB is 255 (1 - C) (1 - K) in each channel, red
RED = np.broadcast_to([255, 0, 0], (6, 8, 3))
# kind as in docs/data.md -> files of it, each with the pixels that it must give or the words of its refusal
KINDS = {
    "RGB, 8 bits": [(encoded(COLOURS, "PNG"), COLOURS), (encoded(COLOURS, "BMP"), COLOURS)],
    "black and white, 1 bit": [(encoded(Image.fromarray(BITS), "PNG"), grey(255 * BITS))],
    "grey, 8 bits": [(encoded(COLOURS[:, :, 0], "PNG"), grey(COLOURS[:, :, 0]))],
    "grey, 12 or 16 bits (PNG, TIFF, PGM)": [
        (grey_16_png(), scaled(WIDE, 65535)),
        (tiff(4, 3, 16, WIDE.tobytes()), scaled(WIDE, 65535)),
        (tiff(4, 3, 16, WIDE.tobytes(), photometric=0), scaled(65535 - WIDE, 65535)),  # white is zero
        (tiff(4, 3, 12, packed_12_bits(WIDE >> 4)), scaled(WIDE >> 4, 4095)),
        (pgm(WIDE, 65535), scaled(WIDE, 65535)),
    ],
    "RGB, 16 bits": [(rgb_16_png(), np.repeat((WIDE >> 8)[:, :, None], 3, axis=2))],
    "integers of 32 bits, signed integers, floats": [
        (tiff(4, 3, 32, WIDE.astype("<u4").tobytes()), "got 32-bit integer ones, whose range is not known: save it"),
        (tiff(4, 3, 32, WIDE.astype("<i4").tobytes(), sample_format=2), "expected unsigned pixels, got signed"),
        (tiff(4, 3, 16, WIDE.astype("<i2").tobytes(), sample_format=2), "expected unsigned pixels, got signed"),
        (tiff(4, 3, 8, WIDE.astype("i1").tobytes(), sample_format=2), "expected unsigned pixels, got signed"),
        (tiff(4, 3, 32, WIDE.astype("<f4").tobytes(), sample_format=3), "whose range is not known: save it with 8"),
        (b"Pf\n4 3\n-1.0\n" + WIDE.astype("<f4").tobytes(), "got float ones, whose range is not known: save it with 8"),
    ],
    "palette": [(encoded(PALETTE, "PNG"), PALETTE.convert("RGB")), (encoded(PALETTE, "GIF"), PALETTE.convert("RGB"))],
    "with transparency": [
        (encoded(ALPHA, "PNG"), COLOURS),
        (encoded(Image.fromarray(ALPHA[:, :, ::3]), "PNG"), grey(COLOURS[:, :, 0])),
        (encoded(PALETTE, "PNG", transparency=0), PALETTE.convert("RGB")),
    ],
    "CMYK": [
        (encoded(Image.new("CMYK", (8, 6), INK), "TIFF"), RED),
        (encoded(Image.new("CMYK", (8, 6), INK), "JPEG", quality=100), RED),  # with inverted inks, as Adobe's
    ],
    "YCbCr": [(encoded(Image.new("YCbCr", (8, 6), (76, 85, 255)), "TIFF"), RED)],  # red by JFIF 1.02, page 3
    "CIE Lab": [
        (encoded(Image.new("LAB", (8, 6), (0, 128, 128)), "TIFF"), BLACK),
        (encoded(Image.new("LAB", (8, 6), (255, 128, 128)), "TIFF"), BLACK + 255),
    ],
    "animated (GIF, PNG, WebP)": [(animated(kind), BLACK) for kind in ("GIF", "PNG", "WEBP")],
    "several pages or pictures (TIFF, MPO)": [(animated("TIFF"), BLACK), (animated("MPO"), BLACK)],
    "turned by its EXIF tag": [(turned_by_exif(), SMOOTH)],
    "cut short": [(whole[: len(whole) * 6 // 10], "unreadable image") for whole in (*SEEDS[:11], *SEEDS[14:20])],
    "empty, or something else": [(b"", "got an empty file"), (b"GIF? no", "got another kind of file")],
    "EPS, AVIF, JPEG 2000, ICO, TGA, PDF": [
        (EPS, "expected one of JPEG, PNG, PPM, BMP, TIFF, WEBP, GIF, got another kind of file"),
        *((encoded(SMOOTH, kind), "got another kind of file") for kind in ("JPEG2000", "ICO", "TGA", "PDF")),
    ],
    "more than 178,956,970 pixels": [(png(20000, 20000, 1, 0, b"\0"), "exceeds limit of 178956970 pixels")],
}


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("kind", KINDS)
def test_kind_of_picture_gives_the_pixels_that_its_specification_says_or_one_line(tmp_path, kind):
    for number, (content, expected) in enumerate(KINDS[kind]):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(content)
        if isinstance(expected, str):
            with pytest.raises(ImageError, match=re.escape(f"unreadable image {path}: ")) as error:
                read_rgb(path)
            assert expected in str(error.value) and "\n" not in str(error.value)
        else:
            picture = read_rgb(path)
            assert picture.mode == "RGB"
            difference = np.abs(np.asarray(picture).astype(int) - np.asarray(expected).astype(int))
            assert difference.max() <= (2 if kind in ("CMYK", "YCbCr", "CIE Lab") else 0), f"{kind}, file {number}"


def test_every_kind_stands_in_the_table_of_the_page_and_is_read_or_refused_as_it_says():
    rows = re.findall(r"^\| ([^|]+) \| (read|refused)\b", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    said = {kind: word for kind, word in rows if kind != "FIFO, socket, device or folder"}
    assert said == {
        kind: "refused" if all(isinstance(expected, str) for _, expected in cases) else "read"
        for kind, cases in KINDS.items()
    }
    assert ("FIFO, socket, device or folder", "refused") in rows


def test_eps_never_reaches_ghostscript(tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    called = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *arguments, **more: called.append(arguments))
    (tmp_path / "x.jpg").write_bytes(EPS)
    with pytest.raises(ImageError):
        read_rgb(tmp_path / "x.jpg")
    assert not called


# ---- what is no file of pixels ----------------------------------------------------------------------------


def special(path, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(path))
    return path


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a device", "a socket"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = special(tmp_path / "x.jpg", kind)
    with no_longer_than(20), pytest.raises(ImageError, match=f"expected a regular file, got {kind}"):
        read_rgb(path)


def test_fifo_among_pictures_fails_its_run_or_is_counted_as_unreadable(tmp_path, image_folder):
    folder = image_folder([f"{c}/{i}.png" for c in "abc" for i in range(3)], root="folder", size=9)
    os.mkfifo(folder / "b" / "x.jpg")
    with no_longer_than(300):
        report, _ = tiny.run(tmp_path, ["tiny_pictures"], [f"folder:{folder}"])
        assert "b/x.jpg: " in tiny.failure(report) and "got a FIFO" in tiny.failure(report)
        report, store = tiny.run(tmp_path, ["tiny_pictures"], [f"folder:{folder}"], skip_bad_images=True)
    from stored_results import completed

    assert not report.failed
    assert completed(store, "tiny_pictures", f"folder:{folder}").n_bad == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda path: __import__("testbed").ManifestDataset(path).open([]),
        lambda path: __import__("testbed").ArrayDataset(path=path.parent, files=(path.name, "labels.npy")).open([]),
        lambda path: _reader("testbed.explain.manifest", "read_explanations")(path),
        lambda path: _reader("testbed.explain.clusters", "read_clusters")(path),
        lambda path: _reader("testbed.store.formats.published", "read_csv")(path),
        lambda path: _reader("testbed.studies.references.table", "read")(path),
        lambda path: _reader("testbed.studies.labelfree.prediction_files", "read_numbers")(path),
        lambda path: _reader("testbed.models.weights.checkpoints", "read_tensors")(path),
        lambda path: _reader("testbed.models.zero_shot", "read_prompts")(path),
    ],
    ids=["manifest", "array", "explanations", "clusters", "csv", "references", "predictions", "checkpoint", "prompts"],
)
def test_no_reader_of_files_waits_for_a_fifo(tmp_path, read):
    os.mkfifo(tmp_path / "x.npy")
    with no_longer_than(20), pytest.raises(TestbedError):
        read(tmp_path / "x.npy")


def _reader(module, name):
    from importlib import import_module

    return getattr(import_module(module), name)


def test_registry_file_that_is_a_fifo_is_a_broken_file(tmp_path):
    from testbed.entries.registry import Registry

    (tmp_path / "models").mkdir()
    os.mkfifo(tmp_path / "models" / "x.py")
    registry = Registry()
    with no_longer_than(20):
        registry.load_folder(tmp_path)
        with pytest.raises(TestbedError):
            registry.model("nobody")
    assert "expected a regular file, got a FIFO" in registry.broken[tmp_path / "models" / "x.py"]


# ---- what is left out ------------------------------------------------------------------------------------


def test_pictures_that_are_not_read_are_counted_by_their_ending(tmp_path, image_folder):
    folder = image_folder([f"{c}/{i}.png" for c in "abc" for i in range(3)], root="folder", size=9)
    for name in ("a/1.gif", "a/2.GIF", "c/3.heic", "c/.hidden.gif", "c/notes.txt"):
        (folder / name).write_bytes(b"")
    told = "2 .gif, 1 .heic left out: only .bmp, .jpeg, .jpg, .pgm, .png, .ppm, .tif, .tiff, .webp are read"
    assert StandardDataset(path=folder).open([]).left_out == told
    report, _ = tiny.run(tmp_path, ["tiny_pictures"], [f"folder:{folder}"])
    assert report.plan.pairs[0].warning == told and not report.failed


def test_folder_of_gifs_alone_says_that_they_are_not_read(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.gif").write_bytes(b"")
    with pytest.raises(DataError, match=r"no images in .*; 1 \.gif left out"):
        StandardDataset(path=tmp_path).open([])


# ---- the machine's faults are not the picture's ----------------------------------------------------------


@pytest.mark.parametrize("error", [MemoryError(), OSError(24, "Too many open files")])
def test_error_of_the_machine_is_no_unreadable_picture_that_would_be_skipped(tmp_path, monkeypatch, error):
    def fail(*arguments, **more):
        raise error

    (tmp_path / "x.png").write_bytes(encoded(COLOURS, "PNG"))
    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(DataError) as caught:
        read_rgb(tmp_path / "x.png")
    assert not isinstance(caught.value, ImageError)


# ---- damaged bytes ---------------------------------------------------------------------------------------


@st.composite
def damaged(draw):
    """One of the seeds with bytes changed, taken out, put in, or swapped for those of another one."""
    content = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        length = draw(st.integers(0, 12))
        how = draw(st.sampled_from(("change", "remove", "insert", "splice", "cut")))
        if how == "change":
            content[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif how == "remove":
            del content[place : place + length]
        elif how == "insert":
            content[place:place] = draw(st.binary(min_size=length, max_size=length))
        elif how == "splice":
            content[place:] = draw(st.sampled_from(SEEDS))[place:]
        else:
            del content[place:]
    return bytes(content)


@pytest.mark.filterwarnings("ignore")
@fuzz_settings(300)
@given(content=damaged())
def test_damaged_picture_is_a_picture_or_one_line(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "damaged.jpg"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch, no_more_than(1.0):
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)  # a fuzz test decodes no picture of 179 million pixels
        told = outcome(lambda: read_rgb(path))
    assert told == "RGB" or (str(path) in told and "\n" not in told)


def outcome(read):
    """The mode of the picture, or the words of the one kind of error that it may raise."""
    try:
        return read().mode
    except DataError as error:
        return str(error)
