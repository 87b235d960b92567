"""db.py as a user types it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from stored_results import copy_results
from testbed.commands.database import main
from testbed.store.claims import Work
from testbed.store.opening import open_store


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    tiny.run(folder, ["tiny_a", "tiny_b", "tiny_raises"], ["tiny", "tiny-even"])
    tiny.run(folder, ["tiny_a"], ["tiny.noise"], limit=20)
    return folder


@pytest.fixture
def db(filled, tmp_path, monkeypatch):
    """Run db.py on a copy of a small database; returns its output, and asserts success unless told."""
    copy_results(filled, tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))

    def invoke(*words, fails=False):
        result = CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)
        assert (result.exit_code != 0) == fails, result.output
        return result.output

    return invoke


def test_print_eval_shows_metrics_intervals_and_provenance(db):
    told = db("--print-eval", "tiny_a", "tiny")
    for words in ("top1", "[95 % interval]", "200", "weights sha256", "data fingerprint", "torch "):
        assert words in told
    rows = json.loads(db("--print-eval", "tiny_a", "tiny", "--format", "json"))
    assert rows[0]["metric"] == "top1"
    assert rows[0]["ci_low"] < rows[0]["value"] < rows[0]["ci_high"]


def test_print_eval_fits_a_narrow_terminal_and_prints_no_python(db, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = db("--print-eval", "tiny_a", "tiny")
    assert max(len(line) for line in told.splitlines() if not line.startswith("warning:")) <= 80
    assert not re.search(r"\['|\{'|\b(None|True|False)\b", told)


def test_print_eval_of_a_limited_run_says_that_it_is_limited(db):
    assert "tiny_a on tiny.noise (limit=20)" in db("--print-eval", "tiny_a", "tiny.noise")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ("--print-eval", "tiny_z", "tiny"),
            "no model 'tiny_z' in the database results/results.db; did you mean tiny_",
        ),
        (("--print-eval", "tiny_a", "tinny"), "no eval setting 'tinny' in the database"),
        (("--print-eval", "tiny_raises", "tiny"), "tiny_raises on tiny failed: ZeroDivisionError: this classifier"),
        (("--print-eval", "tiny_b", "tiny.noise"), "tiny_b on tiny.noise has not been run"),
        (("--remove-model", "tiny_a"), "with 3 evaluation(s) and their logits: repeat with --override"),
        (("--remove-evaluation", "tiny_a", "tiny"), "1 derived from them (tiny_a on tiny-even) and their logits"),
        (("--rename-model", "tiny_a", "my lin*"), "model 'my lin*': a name has no outer spaces and none of * ? [ ]"),
        (("--rename-eval-setting", "tiny", " "), "eval setting: name must be a non-empty string, got ' '"),
        (("--add-model", "a*", "--override"), "model 'a*': a name has no outer spaces"),
        (("--save-logits", "tiny", "/proc/x"), "/proc/x cannot be written: No such file or directory"),
        (("--export", "/proc/x/r.csv"), "/proc/x/r.csv cannot be written: No such file or directory"),
        (("--rename-model", "tiny_a", "tiny_b"), "there is a model 'tiny_b' already"),
        (("--add-model", "tiny_zz"), "no model, group or tag 'tiny_zz'"),
        (("--save-logits", "tinny", "x"), "no eval setting 'tinny'"),
        (("--import-logits", "nowhere"), "expected a folder that --save-logits wrote"),
        (("--export", "x.xlsx"), "expected a file ending in .csv, .json or .parquet, got x.xlsx"),
        (("--list-models-db", "--db", "other.db"), "there is no results database other.db yet: run eval.py first"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(db, words, answer):
    told = db(*words, fails=True)
    assert answer in told
    assert len(told.strip().splitlines()) == 1


def test_lists_take_filters_and_formats(db):
    names = [r["model"] for r in json.loads(db("--list-models-registry", "--filter", "tiny_[ab]", "--format", "json"))]
    assert names == ["tiny_a", "tiny_b"]
    settings = db("--list-eval-settings-registry", "--filter", "tiny*")
    assert "logits of tiny" in settings
    parents = db("--list-parent-eval-settings-registry", "--filter", "tiny*")
    assert "tiny-even" not in parents
    assert "tiny.noise" in parents
    assert db("--list-models-db", "--format", "csv").split() == ["model", "tiny_a", "tiny_b", "tiny_raises"]
    assert db("--list-eval-settings-db", "--format", "csv").split()[1:] == ["tiny", "tiny-even", "tiny.noise"]


def test_status_shows_done_failed_and_missing(db):
    table = {line.split()[0]: line.split()[1:] for line in db("--status").splitlines() if line.startswith("tiny")}
    assert table["tiny"] == ["done", "done", "failed"]
    assert table["tiny.noise"] == ["limit=20", "missing", "missing"]


def test_status_tells_a_stopped_run_from_one_at_work(db, monkeypatch):
    store = open_store("results/results.db")
    store.begin_run()
    ids = store.ensure_model("tiny_b"), store.ensure_eval_setting("tiny.noise")
    store.claim(*ids, "", Work(200, 50, "f"), resumable=True)

    def state():
        rows = {r["eval_setting"]: r for r in json.loads(db("--status", "--format", "json"))}
        return rows["tiny.noise"]["tiny_b"]

    assert state() == "running"
    store.end_run()
    assert state() == "stopped"


def test_several_flags_at_once(db):
    told = db("--list-models-db", "--list-eval-settings-db", "--verify")
    assert "tiny_b" in told
    assert "tiny-even" in told
    assert "all 3 logits files are as they were written" in told


def test_rename_and_remove(db):
    db("--rename-model", "tiny_a", "other")
    assert "other on tiny" in db("--print-eval", "other", "tiny")
    db("--rename-eval-setting", "tiny-even", "evens")
    assert "evens" in db("--list-eval-settings-db")
    db("--remove-model", "other", "--override")
    assert db("--list-models-db", "--format", "csv").split() == ["model", "tiny_b", "tiny_raises"]
    told = db("--remove-evaluation", "tiny_b", "tiny", "--override")
    assert told == "removed 1 evaluation(s), 1 derived from them (tiny_b on evens)\n"
    assert "has not been run" in db("--print-eval", "tiny_b", "tiny", fails=True)


def test_added_names_are_listed(db):
    db("--add-model", "tiny_wide")
    assert "tiny_wide" in db("--list-models-db")
    db("--add-model", "somebody-elses", "--override")
    assert "somebody-elses" in db("--list-models-db")
    db("--add-eval-setting", "tiny-some")
    assert "tiny-some" in db("--list-eval-settings-db")


def test_saved_logits_open_without_pickle_and_go_into_another_database(db):
    db("--save-logits", "tiny", "dump")
    with np.load("dump/tiny_a.npz", allow_pickle=False) as stored:
        assert stored["logits"].shape == (200, 10)
        assert stored["targets"].tolist() == [i % 10 for i in range(200)]
        assert stored["image_paths"][3] == "000003"
    assert {m["model"] for m in json.loads(Path("dump/manifest.json").read_text())} == {"tiny_a", "tiny_b"}
    assert "took in 2 evaluation(s)" in db("--import-logits", "dump", "--db", "second/results.db")
    first, second = (
        db("--print-eval", "tiny_a", "tiny", "--format", "csv", "--db", f"{d}/results.db")
        for d in ("results", "second")
    )
    assert first == second
    assert "is stored already: repeat with --override" in db(
        "--import-logits", "dump", "--db", "second/results.db", fails=True
    )


def test_derived_logits_are_saved_like_others(db):
    db("--save-logits", "tiny-even", "dump")
    with np.load("dump/tiny_b.npz", allow_pickle=False) as stored:
        assert stored["logits"].shape == (100, 5)
        assert set(stored["targets"].tolist()) == {0, 1, 2, 3, 4}


def test_metrics_are_measured_again_without_a_model(db):
    import sqlite3

    before = db("--print-eval", "tiny_a", "tiny", "--format", "csv")
    with sqlite3.connect("results/results.db") as connection:
        connection.execute("UPDATE metrics SET value = 0")
    assert "measured 5 evaluation(s) again" in db("--recompute-metrics")
    assert db("--print-eval", "tiny_a", "tiny", "--format", "csv") == before


def test_metric_that_fails_leaves_its_numbers_and_is_told(db):
    db("--rename-eval-setting", "tiny", "tiny-bad-metric")
    before = db("--print-eval", "tiny_a", "tiny-bad-metric", "--format", "csv")
    told = db("--recompute-metrics", "--filter", "tiny-bad-metric", fails=True)
    assert "not measured: tiny_a on tiny-bad-metric: ZeroDivisionError: division by zero" in told
    assert db("--print-eval", "tiny_a", "tiny-bad-metric", "--format", "csv") == before


def test_changed_logits_are_found(db):
    file = next(Path("results/logits/tiny").glob("tiny_a-*.npy"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    told = db("--verify", fails=True)
    assert "has changed since it was written" in told
    assert "1 of 3 evaluations are damaged" in told


def test_print_setting_shows_what_is_declared(db):
    told = json.loads(db("--print-setting", "tiny-even"))
    assert told["class_sublist"] == [0, 2, 4, 6, 8]
    assert "tiny.py:" in told["declared_at"]


def test_without_a_flag_it_shows_the_help(db):
    assert "--print-eval MODEL SETTING" in db()


def test_status_that_has_no_room_counts_pairs_and_full_lists_them(db, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    told = db("--status")
    assert "Numbers of pairs, of 3 models." in told
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.startswith("tiny")}
    # tiny_raises failed on both; only tiny_a has been run on tiny.noise, in part.
    assert rows == {"tiny": ["2", "1"], "tiny-even": ["2", "1"], "tiny.noise": ["2", "1"]}
    assert told.splitlines()[0].split() == ["eval_setting", "done", "failed", "missing", "limit=20"]
    every = db("--status", "--full").splitlines()
    assert every[2].split() == ["tiny_a", "tiny", "done"]
    assert len([line for line in every if line.startswith("tiny_")]) == 9


def test_group_without_an_aggregate_shows_the_mean_of_its_members(db, tmp_path):
    folder = tmp_path / "mine" / "eval_settings"
    folder.mkdir(parents=True)
    (folder / "both.py").write_text(
        "from testbed import registry\nregistry.add_group('both', ['tiny', 'tiny-even'])\n", encoding="utf-8"
    )
    told = db("--print-group", "tiny_a", "both", "--registry", "mine")
    values = {
        setting: json.loads(db("--print-eval", "tiny_a", setting, "--format", "json"))[0]["value"]
        for setting in ("tiny", "tiny-even")
    }
    shown = next(line for line in told.splitlines() if line.startswith("mean_top1"))
    assert float(shown.split()[1]) == pytest.approx(sum(values.values()) / 2, abs=0.01)
