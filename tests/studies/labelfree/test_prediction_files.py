"""autoeval.py --predictions: agreement from files of hard predictions, and what it says of bad files."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from testbed.commands import autoeval
from tiny import call


def save_predictions(folder, predictions):
    folder.mkdir()
    for number, row in enumerate(predictions):
        (folder / f"m{number}.json").write_text(json.dumps(row.tolist()))


def test_files_of_predictions_need_no_database(tmp_path):
    from testbed.studies.labelfree.agreement import aline_d

    rng = np.random.default_rng(3)
    truth = rng.integers(10, size=600), rng.integers(10, size=500)
    made = []
    for labels, shift in zip(truth, (0.0, 0.15), strict=True):
        wrong = rng.random((5, len(labels))) < (0.08 + shift + 0.05 * np.arange(5))[:, None]
        made.append(np.where(wrong, rng.integers(10, size=wrong.shape), labels))
    for name, predictions in zip(("clean", "new"), made, strict=True):
        save_predictions(tmp_path / name, predictions)
    np.save(tmp_path / "clean.npy", truth[0])
    np.savetxt(tmp_path / "new.txt", truth[1], fmt="%d")
    folders = ("--predictions", tmp_path / "clean", tmp_path / "new", "--labels", tmp_path / "clean.npy")
    done = call("autoeval.py", *folders, "--test-labels", tmp_path / "new.txt", "--format", "json")
    answer = json.loads(done.stdout)
    told = {e["model"]: (e["estimate"], e["accuracy"]) for e in answer["estimates"] if e["method"] == "aline-d"}
    expected = aline_d(*made, (made[0] == truth[0]).mean(axis=1)).accuracies
    for number in range(5):
        assert told[f"m{number}"] == pytest.approx((expected[number], 100 * (made[1][number] == truth[1]).mean()))
    assert answer["remarks"][1].startswith("accuracy line, which needs the labels: slope")
    short = call("autoeval.py", *folders, "--models", "m0", "m1", "--summary")
    assert "left out: aline-s, aline-d: needs at least 3 models, got 2" in short.stdout
    for words, said in (
        (folders[:3], "--labels is missing"),
        ((*folders[:4], tmp_path / "new.txt"), "has 500 labels, the predictions in"),
        ((*folders, "--models", "vgg*"), "share no file of vgg*"),
        (("--predictions", tmp_path, tmp_path / "nowhere", *folders[3:]), "nowhere is none"),
        ((*folders, "--source", "digits", "--class-prior", "source"), "leave out --source, --class-prior"),
        ((*folders, "--methods", "atc-ne"), "no method 'atc-ne': expected gde, aline-s, aline-d, or all"),
        ((*folders, "--models", "m0", "--methods", "gde"), "gde needs at least 2 models, got 1"),
    ):
        done = call("autoeval.py", *words)
        assert done.returncode != 0 and said in done.stderr.strip().splitlines()[-1]


@pytest.fixture
def folders(tmp_path):
    """Three models on two sets of which only some images are labelled."""
    rng = np.random.default_rng(3)
    for name, wrong in (("clean", 0.1), ("new", 0.3)):
        labels = rng.integers(10, size=400)
        errors = rng.random((3, 400)) < wrong + 0.1 * np.arange(3)[:, None]
        save_predictions(tmp_path / name, np.where(errors, rng.integers(10, size=errors.shape), labels))
        np.save(tmp_path / f"{name}.npy", np.where(np.arange(400) < 300, labels, -1))
    return tmp_path


def ask(folders, *words, labels="clean.npy"):
    given = ["--predictions", folders / "clean", folders / "new", "--labels", folders / labels, *words]
    done = CliRunner().invoke(autoeval.main, list(map(str, given)))
    assert not done.exception or isinstance(done.exception, SystemExit), done.exc_info
    return done


def predictions(folder, known=300):
    return np.stack([json.loads((folder / f"m{i}.json").read_text())[:known] for i in range(3)])


def test_images_without_a_label_do_not_count_as_wrong(folders):
    answer = json.loads(ask(folders, "--test-labels", folders / "new.npy", "--format", "json").stdout)
    labels = {name: np.load(folders / f"{name}.npy")[:300] for name in ("clean", "new")}
    for e in answer["estimates"]:
        row = int(e["model"][1:])
        assert e["accuracy"] == pytest.approx(100 * (predictions(folders / "new") == labels["new"])[row].mean())
        if e["method"] == "no-change":
            before = (predictions(folders / "clean") == labels["clean"])[row].mean()
            assert e["estimate"] == pytest.approx(100 * before)


def test_assumptions_are_told_and_methods_chosen(folders):
    answer = json.loads(ask(folders, "--methods", "gde", "--format", "json").stdout)
    assert {e["method"] for e in answer["estimates"]} == {"gde", "no-change"}
    assert "gde: assumes independent runs of one training procedure, calibrated by class" in answer["remarks"]
    remarks = json.loads(ask(folders, "--format", "json").stdout)["remarks"]
    assert any("R2" in line and "not to be relied on" in line for line in remarks if line.startswith("agreement line"))


def test_models_that_agree_alike_on_the_source_have_gde(folders):
    for number in (1, 2):
        (folders / "clean" / f"m{number}.json").write_text((folders / "clean" / "m0.json").read_text())
    done = ask(folders, "--test-labels", folders / "new.npy", "--format", "json")
    assert "gde" in {e["method"] for e in json.loads(done.stdout)["estimates"]}
    assert "left out: aline-s, aline-d: on new: the agreement line needs models that differ" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("new/m1.json", b"[1, 2, 3]", "new/m1.json: expected 400 predictions as in m0.json, got 3"),
        ("clean/m2.json", b"[1, 2", "clean/m2.json cannot be read as class numbers"),
        ("clean.npy", b"", "clean.npy cannot be read as class numbers"),
        ("clean.npy", b"\x93NUMPY\x01", "clean.npy cannot be read as class numbers"),
        ("clean.npz", b"", "clean.npz cannot be read as class numbers"),
        ("clean.npz", b"PK\x03\x04 and no more", "clean.npz cannot be read as class numbers"),
        ("clean.npz", b"PK\x05\x06" + bytes(18), "clean.npz cannot be read as class numbers: it holds no array"),
        ("clean.json", json.dumps([-1] * 400).encode(), "has no labels, all are below 0: the source set needs them"),
    ],
)
def test_files_that_cannot_be_used_are_named_in_one_line(folders, name, content, said):
    (folders / name).write_bytes(content)
    done = ask(folders, labels=name if name.startswith("clean.") else "clean.npy")
    assert done.exit_code != 0 and said in done.stderr.strip().splitlines()[-1]
