"""Every size that somebody gives is compared before room is made for it: one line, and no machine without memory."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import tiny
from faults.bounds import no_longer_than, no_more_than
from testbed import ArrayDataset, CropBorder, EvalSetting, ManifestDataset, StandardTransform
from testbed.data.array_files import load_npy
from testbed.data.listed import ListedDataset
from testbed.data.rows import places_in
from testbed.entries.registry import load_registry
from testbed.errors import DataError, EntryError, ImageError, TestbedError
from testbed.options import RunOptions

HUGE = ("99999999999", "9" * 18, "9" * 19, "9" * 5000)


@pytest.fixture(autouse=True)
def bounded():
    import torch  # noqa: F401  # before the bound: its libraries alone are mapped to gigabytes

    with no_longer_than(60), no_more_than(2.0):
        yield


@pytest.fixture(scope="module")
def registry():
    return load_registry(parts=["eval_settings"])


# ---- rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", HUGE)
@pytest.mark.parametrize("base", ["digits", "imagenet-samples", "digits-even", "rows:0-5@digits", "folder:/nowhere"])
def test_rows_without_end_are_refused_before_a_list_is_made(registry, end, base):
    with pytest.raises(EntryError, match="expected rows") as error:
        registry.eval_setting(f"rows:0-{end}@{base}")
    assert len(str(error.value)) < 6000 and "\n" not in str(error.value)


def test_many_ranges_cannot_name_more_rows_than_there_are(registry):
    many = ",".join(["0-797"] * 20_000)
    with pytest.raises(EntryError, match="expected ranges that do not overlap, got row 0 twice"):
        registry.eval_setting(f"rows:{many}@digits")
    assert registry.eval_setting("rows:5-7,0-5@digits").idx_subsample_list == (5, 6, 0, 1, 2, 3, 4)


@pytest.mark.parametrize("command", ["plan", "print"])
def test_commands_that_compute_nothing_refuse_them_too(tmp_path, monkeypatch, command):
    from testbed.commands import database, evaluate

    monkeypatch.chdir(tmp_path)
    setting = "rows:0-99999999999@digits"
    if command == "plan":
        arguments = ["--models", "digits_cnn", "--eval-settings", setting, "--dry-run"]
        told = CliRunner().invoke(evaluate.main, arguments)
    else:
        told = CliRunner().invoke(database.main, ["--print-setting", setting])
    assert told.exit_code == 1
    assert told.output == f"Error: '{setting}': expected rows from 0 to 797, the images of 'digits', got 99999999999\n"


# ---- options of a run ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("limit", 10**30, "--limit: expected a whole number up to 2147483647"),
        ("batch_size", 10**12, "--batch-size: expected a whole number up to 2147483647"),
        ("chunk_size", 2**31, "--chunk-size: expected a whole number up to 2147483647"),
        ("workers", 10**9, "--workers: expected a whole number up to 1024"),
        ("threads", 10**9, "--threads: expected a whole number up to 1024"),
        ("seed", 2**63, "--seed: expected a whole number up to 2147483647"),
        ("cache_gb", float("inf"), "--cache-gb: expected a number of GB from 0 to 1000000000, got inf"),
        ("cache_gb", float("nan"), "--cache-gb: expected a number of GB from 0 to 1000000000, got nan"),
        ("cache_gb", -1.0, "--cache-gb: expected a number of GB from 0 to 1000000000, got -1.0"),
        ("cache_gb", "10", "--cache-gb: expected a number of GB from 0 to 1000000000, got '10'"),
    ],
)
def test_option_out_of_any_range_is_refused(option, value, words):
    with pytest.raises(EntryError, match=words):
        RunOptions(**{option: value})


def test_largest_options_run(tmp_path):
    most = 2**31 - 1
    options = {"limit": most, "batch_size": most, "chunk_size": most, "seed": most, "workers": 1024, "cache_gb": 1e9}
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], **options)
    assert not report.failed and report.plan.pairs[0].n_images == 200


# ---- pictures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10**9, 10_001, (224, 10**6)])
@pytest.mark.parametrize("what", ["img_resize_size", "img_crop_size"])
def test_transform_to_a_huge_size_is_refused_when_it_is_declared(what, size):
    with pytest.raises(EntryError, match=f"{what} must be at most 10000"):
        StandardTransform(**{what: size})
    with pytest.raises(EntryError, match="pixels must be from 0 to 10000"):
        CropBorder(10**9)


def test_line_of_pixels_is_not_made_into_a_picture_of_gigabytes():
    line = Image.new("RGB", (60_000, 1))  # 256 x 15,360,000 after the usual resize: 12 GB
    with pytest.raises(ImageError, match=r"at most 178,956,970 pixels after the resize, got 15360000 x 256"):
        StandardTransform()(line)


# ---- arrays ----------------------------------------------------------------------------------------------


def npy(shape, content=b"", dtype="|u1"):
    """An .npy file (version 1.0) whose header may declare anything."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def npz(**arrays):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


SHAPES = [(10**12,), (10**30,), (2**63, 2**63), (10**9, 32, 32, 3), (-5,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("which", ["data.npy", "labels.npy", "images in npz", "labels in npz"])
def test_array_that_declares_more_than_it_holds_is_refused(tmp_path, shape, which):
    good, labels = npy((2, 4, 4, 3), bytes(96)), npy((2,), bytes(16), "<i8")
    bad = npy(shape, bytes(200))
    if which.endswith("npz"):
        path = tmp_path / "set.npz"
        images = which.startswith("images")
        path.write_bytes(npz(images=bad if images else good, labels=labels if images else bad))
    else:
        path = tmp_path
        (path / "data.npy").write_bytes(bad if which == "data.npy" else good)
        (path / "labels.npy").write_bytes(labels if which == "data.npy" else bad)
    with pytest.raises(DataError, match="expected images and labels as arrays: ") as error:
        ArrayDataset(path=path).open([])
    assert "\n" not in str(error.value)


def test_whole_arrays_are_still_read(tmp_path):
    (tmp_path / "set.npz").write_bytes(npz(images=npy((2, 4, 4, 3), bytes(96)), labels=npy((2,), bytes(16), "<i8")))
    assert len(ArrayDataset(path=tmp_path / "set.npz").open([])) == 2
    values = np.arange(12).reshape(3, 4)
    np.save(tmp_path / "a.npy", values)
    assert np.array_equal(load_npy(tmp_path / "a.npy"), values)
    assert isinstance(load_npy(tmp_path / "a.npy", mapped=True), np.memmap)


def test_array_of_more_than_the_memory_of_the_machine_is_refused(tmp_path, monkeypatch):
    from testbed.data import array_files

    monkeypatch.setattr(array_files.os, "sysconf", lambda name: 10)  # 100 bytes
    (tmp_path / "a.npy").write_bytes(npy((200,), bytes(200)))
    with pytest.raises(ValueError, match=r"it needs 0\.0 GB of memory, this machine has 0\.0 GB"):
        load_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("rows", [(5, 5), (-2, 3), (4, 1)])
def test_rows_of_an_array_that_are_no_range_are_refused(rows):
    with pytest.raises(EntryError, match="expected rows"):
        ArrayDataset(path="x", rows=rows)


# ---- labels and lists ------------------------------------------------------------------------------------


def test_classes_are_looked_up_without_a_table_of_all_possible_ones():
    highest = 2**31 - 1
    assert places_in((7, highest, 0), np.array([0, highest, 5, -1, 7, 2**40])).tolist() == [2, 1, -1, -1, 0, -1]
    rng = np.random.default_rng(0)
    classes, targets = rng.permutation(50)[:20], rng.integers(-1, 60, 500)
    wanted = [list(classes).index(t) if t in classes else -1 for t in targets]
    assert places_in(classes.tolist(), targets).tolist() == wanted


def test_cell_of_megabytes_is_one_line(tmp_path, image_folder):
    folder = image_folder(["a.png"])
    (folder / "list.csv").write_text(f"image,label\na.png,{'x' * 200_000}\n")
    with pytest.raises(DataError, match="field larger than field limit"):
        ManifestDataset(folder / "list.csv").open([])
    with pytest.raises(DataError, match="field larger than field limit"):
        ListedDataset(name=folder.name, listing="list.csv").open([folder.parent])


@pytest.mark.parametrize("number", ["2147483648", "9" * 5000, "99999999999"])
def test_class_number_beyond_any_class_is_one_line(image_folder, number):
    folder = image_folder(["a.png"])
    (folder / "list.csv").write_text(f"image,label\na.png,{number}\n")
    with pytest.raises(DataError, match="expected class numbers up to 2147483647"):
        ManifestDataset(folder / "list.csv").open([])
    (folder / "list.txt").write_text(f"a.png,{number}\n")
    with pytest.raises(DataError, match="expected a picture and the number of its class"):
        ListedDataset(name=folder.name, listing="list.txt").open([folder.parent])


def test_index_that_is_no_whole_number_is_refused():
    for values in ([3.7], ["3"], [float("nan")], [float("inf")], [None]):
        with pytest.raises(EntryError, match="must be a non-empty list of indices from 0 on"):
            EvalSetting(name="x", logits_from="y", class_sublist=values)


# ---- explanations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        *("cells=1000000", "cells=0", "masks=99999999999", "masks=0", "seed=-1", "whole_points=99999999999"),
        *("max_points=99999999999", "step=99999999999", "smooth_len=99999999999", "most=99999999999"),
        *("batch_size=99999999999", "keep=nan", "delta=inf", "mass=inf"),
    ],
)
def test_explanation_with_a_size_out_of_range_is_refused(registry, option):
    with no_longer_than(20), pytest.raises(TestbedError, match="expected"):
        registry.eval_setting(f"explanations:rise,{option}@digits")
