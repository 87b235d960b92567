"""db.py --download, --download-weights and --audit-data as a user meets them, and the warnings of a run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile

import pytest
from click.testing import CliRunner

from local_server import Server
from testbed.commands.database import main
from testbed.data import download as downloading
from testbed.engine.run import run_evaluations
from testbed.entries.registry import load_registry
from testbed.options import RunOptions
from testbed.store.opening import open_store

SETTINGS = """
from testbed import EvalSetting, StandardDataset
from testbed.entries import registry

shapes = StandardDataset(name="shapes/val", also=["my-shapes"], source="ask")
for name, size in (("shapes", 12), ("shapes-again", 13)):
    registry.add_eval_setting(EvalSetting(name, dataset=shapes, size=size, tags=["small"]))
hand = StandardDataset(name="by-hand", source="sign the form at example.org")
registry.add_eval_setting(EvalSetting("by-hand", dataset=hand, tags=["small"]))
registry.add_group("everything", ["shapes", "by-hand"])
"""
IMAGES = [f"{name}/{i}.png" for name in ("circle", "cross", "square") for i in range(4)]


@pytest.fixture
def db(tmp_path, monkeypatch, image_folder):
    """db.py beside a registry with one data set on a local server; returns output, asserts the exit code."""
    server = Server()
    folder = image_folder(IMAGES, "source/shapes/val")
    with tarfile.open(tmp_path / "shapes.tar", "w") as archive:
        archive.add(folder.parent, "shapes")
    content = server.files["shapes.tar"] = (tmp_path / "shapes.tar").read_bytes()
    registry = tmp_path / "registry"
    (registry / "eval_settings").mkdir(parents=True)
    (registry / "eval_settings" / "shapes.py").write_text(SETTINGS)
    (registry / "metadata").mkdir()
    file = {"url": server.url("shapes.tar"), "checksum": f"md5:{hashlib.md5(content).hexdigest()}"}
    entry = {"licence": "CC0", "files": [file], "places": {"shapes": "shapes"}}
    (registry / "metadata" / "downloads.json").write_text(json.dumps({"shapes-archive": entry}))
    weights = {"url": server.url("net.pth"), "file": "net.pth", "sha256": None, "licence": "MIT"}
    (registry / "metadata" / "weights.json").write_text(json.dumps({"net": weights}))
    server.files["net.pth"] = b"weights"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(registry))
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path / "data"))

    def invoke(*words, code=0):
        result = CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    invoke.server, invoke.folder, invoke.entry, invoke.registry = server, tmp_path, entry, registry
    yield invoke
    server.close()


@pytest.mark.parametrize("name", ["shapes-archive", "shapes", "shapes-aga*"])
def test_download_takes_data_sets_settings_and_patterns(db, name):
    told = db("--download", name)
    assert told.splitlines()[0] == f"shapes-archive: from {db.server.url('').split('/')[2]}, licence: CC0"
    assert len(list((db.folder / "data" / "shapes" / "val").rglob("*.png"))) == 12
    assert "already there" in db("--download", name)
    assert len(db.server.asked) == 1


def test_download_goes_into_the_data_root_that_is_named(db):
    db("--download", "shapes", "--data-root", db.folder / "elsewhere")
    assert (db.folder / "elsewhere" / "shapes" / "val").is_dir()


@pytest.mark.parametrize("name", ["shapes-archive", "shapes"])
@pytest.mark.parametrize("place", ["shapes/val", "my-shapes"])
def test_what_lies_in_a_further_root_under_any_name_is_there(db, image_folder, name, place):
    image_folder(IMAGES, f"second/{place}")
    (db.folder / "first" / "shapes" / "val").mkdir(parents=True)  # empty: nothing is there
    told = db("--download", name, "--data-root", db.folder / "first", "--data-root", db.folder / "second")
    assert f"already there, at {db.folder / 'second' / place.split('/')[0]}" in told
    assert db.server.asked == []


@pytest.mark.parametrize("name", ["shapes-archive", "shapes"])
def test_empty_folder_is_fetched(db, name):
    (db.folder / "data" / "shapes" / "val").mkdir(parents=True)
    assert "already there" not in db("--download", name)
    assert len(list((db.folder / "data" / "shapes" / "val").rglob("*.png"))) == 12


def test_download_of_a_group_does_what_it_can_and_tells_the_rest(db):
    told = db("--download", "everything", code=1)
    assert (db.folder / "data" / "shapes").is_dir()
    assert told.splitlines()[0] == (
        "'by-hand' cannot be fetched automatically: sign the form at example.org; "
        f"put it at {db.folder / 'data' / 'by-hand'}"
    )
    assert told.splitlines()[-1] == "Error: 1 data set(s) must be got by hand, as told above"


def test_imagenet_itself_cannot_be_fetched(db):
    told = db("--download", "val", code=1)
    assert "'val' cannot be fetched automatically: register at image-net.org" in told


def test_unknown_name_is_answered_with_near_ones(db):
    told = db("--download", "shappes", code=1)
    assert told.startswith("Error: nothing to download: no eval setting, group or tag 'shappes'; did you mean shapes")


def test_set_without_a_checksum_says_that_it_was_not_checked(db):
    db.entry["files"][0]["checksum"] = None
    (db.registry / "metadata" / "downloads.json").write_text(json.dumps({"shapes-archive": db.entry}))
    assert "no checksum is published, so the files could not be checked" in db("--download", "shapes")


def test_ctrl_c_tells_how_to_go_on(db, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(downloading, "fetch", stopped)
    assert "the same command goes on from there" in db("--download", "shapes", code=130)


def test_weights_come_into_the_weights_folder(db):
    told = db("--download-weights", "net")
    assert "net: net.pth from 127.0.0.1" in told and "licence: MIT" in told
    assert "no checksum is published" in told
    assert (db.folder / "results" / "weights" / "net.pth").read_bytes() == b"weights"
    assert "have no published address here" in db("--download-weights", "digits_mlp", code=1)
    assert "no model, group or tag 'nett'" in db("--download-weights", "nett", code=1)


def test_audit_of_whole_data_finds_nothing(db):
    db("--download", "shapes")
    told = db("--audit-data", "shapes").splitlines()
    assert told[2].split() == ["shapes", "12", "12", "3", "4", "names", "0", "folder", "ok"]


def test_audit_says_in_which_form_it_found_a_set(db):
    db("--download", "shapes")
    folder = db.folder / "data" / "shapes" / "val"
    archive = shutil.make_archive(str(folder), "tar", folder)
    shutil.rmtree(folder)
    told = db("--audit-data", "shapes").splitlines()
    assert told[2].split() == ["shapes", "12", "12", "3", "4", "names", "0", "archive", "ok"]
    assert f"shapes: note: taken from archive {archive}" in told


def test_audit_names_every_problem_and_fails(db):
    db("--download", "shapes")
    folder = db.folder / "data" / "shapes" / "val"
    (folder / "cross" / "1.png").write_bytes(b"")
    (folder / "circle" / "3.png").unlink()
    told = db("--audit-data", "shapes", "by-hand", code=1)
    assert "shapes: expected 12 images, found 11" in told
    assert f"shapes: unreadable image {folder / 'cross' / '1.png'}: expected one of JPEG, PNG," in told
    assert "by-hand: dataset 'by-hand' not found" in told
    assert told.endswith("Error: 2 of 2 settings have data that is not as expected\n")


def test_audit_speaks_json(db):
    db("--download", "shapes")
    result = CliRunner().invoke(main, ["--audit-data", "small", "--format", "json"])
    assert result.exit_code == 1
    rows = {row["eval_setting"]: row for row in json.loads(result.stdout)}
    assert rows["shapes"]["per_class"] == {"circle": 4, "cross": 4, "square": 4}
    assert rows["shapes"]["verdict"] == "ok"
    assert rows["shapes-again"]["problems"] == ["expected 13 images, found 12"]
    assert rows["by-hand"]["verdict"] == "MISSING"


def test_audit_counts_the_images_of_the_setting(db):
    db("--download", "shapes")
    told = db("--audit-data", "digits-even", "rows:0-5@shapes").splitlines()
    assert told[2].split() == ["digits-even", "396", "5", "78", "to", "80", "0", "ok"]
    assert told[3].split() == ["rows:0-5@shapes", "5", "5", "2", "1", "to", "4", "names", "0", "folder", "ok"]


def test_audit_opens_each_image_that_is_asked_for_once(db, monkeypatch):
    db("--download", "shapes")
    opened = []
    monkeypatch.setattr("testbed.data.images.read_rgb", lambda path: opened.append(path.name))
    db("--audit-data", "rows:0-5@shapes")
    assert len(opened) == 5
    db("--audit-data", "rows:0-3@shapes", "rows:2-5@shapes")
    assert len(opened) == 10


def test_unreadable_image_is_told_of_the_settings_that_take_it(db):
    db("--download", "shapes")
    (db.folder / "data" / "shapes" / "val" / "circle" / "3.png").write_bytes(b"")
    told = db("--audit-data", "rows:0-3@shapes", "rows:3-5@shapes", code=1)
    assert told.endswith("Error: 1 of 2 settings have data that is not as expected\n")
    assert "rows:3-5@shapes: unreadable image" in told


@pytest.fixture
def run(db):
    """Run a model that always answers the last of 12 classes, inside this process."""
    (db.registry / "models").mkdir()
    (db.registry / "models" / "constant.py").write_text(
        """
from testbed import Model
from testbed.entries import registry
import torch


class Constant(torch.nn.Module):
    def forward(self, images):
        return torch.arange(12.0).expand(len(images), 12)


registry.add_model(Model("constant", None, Constant, eval_batch_size=20))
"""
    )
    (db.registry / "eval_settings" / "twelve.py").write_text(
        """
from testbed import EvalSetting, StandardDataset
from testbed.entries import registry

registry.add_eval_setting(EvalSetting("twelve", dataset=StandardDataset(name="twelve", labels="sorted"), size=60))
"""
    )

    def evaluate(*settings):
        options = RunOptions(data_roots=("data",), cache_gb=0)
        store = open_store(None, create=True)
        return run_evaluations(
            load_registry(), store, ["constant"], settings, options, devices=["cpu"], inline=True, quiet=True
        )

    return evaluate


def test_run_without_its_data_names_the_download(run):
    shapes, by_hand = run("shapes", "by-hand").failed
    assert shapes.error.endswith("`python db.py --download shapes-archive` fetches it.")
    assert "--download " not in by_hand.error


def test_run_that_guesses_is_warned_of_in_the_summary_and_the_row(run, db, image_folder):
    image_folder([f"class_{c}/{i}.png" for c in range(12) for i in range(5)], "data/twelve")
    names = "classes count in the order of their names, class_11 before class_2: pad the numbers"
    alarm = "top1 is 8.3 %, guessing among 12 classes gives 8.3 %: no other order of the classes does better"
    (pair,) = run("twelve").plan.pairs  # eval.py prints the warnings of its pairs
    assert pair.warning.startswith(f"{names}; {alarm}")
    assert f"warning: {names}; {alarm}" in db("--print-eval", "constant", "twelve")


def test_pickled_code_is_allowed_by_a_variable_that_workers_inherit(db, monkeypatch):
    from testbed.commands.evaluate import main as evaluate

    words = ["--models", "digits_mlp", "--eval-settings", "digits", "--no-db", "--dry-run"]
    monkeypatch.setenv("TESTBED_UNSAFE_PICKLE", "")  # so that it is put back afterwards
    assert CliRunner().invoke(evaluate, words).exit_code == 0
    assert os.environ["TESTBED_UNSAFE_PICKLE"] == ""
    told = CliRunner().invoke(evaluate, [*words, "--unsafe-pickle"]).output
    assert "warning: --unsafe-pickle: code in weights files is run, and can do anything you can" in told
    assert os.environ["TESTBED_UNSAFE_PICKLE"] == "1"
