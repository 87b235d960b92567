"""eval.py as a user types it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from testbed.commands.evaluate import main


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Run the command in this process, from an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
    return lambda *words: CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)


def test_several_values_after_one_option_and_a_bare_db_flag(tmp_path):
    run = tiny.script(
        "eval.py", "--gpus", "cpu", "--models", "tiny_a", "tiny_b", "--eval-settings", "tiny", "tiny-even", "--db",
        cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].split() == ["top1", "(%)", "on", "tiny_a", "tiny_b"]
    assert lines[2].split()[0] == "tiny"
    assert "[" in lines[2]
    assert (tmp_path / "results/results.db").is_file()
    again = tiny.script("eval.py", "--models", "tiny_a", "tiny_b", "--eval-settings", "tiny", "tiny-even", cwd=tmp_path)
    assert "Nothing to do: all 4 pairs are stored" in again.stdout
    assert again.stdout.splitlines()[:4] == lines[:4]


def test_dry_run_tells_what_would_be_done_and_does_nothing(invoke, tmp_path):
    told = invoke("--models", "tiny_a", "--eval-settings", "tiny-even", "tiny-missing", "--dry-run").output
    assert "to derive, no forward pass" in told
    assert "1 cannot run:\n  tiny_a on tiny-missing: dataset 'no-such-set' not found" in told
    assert "3 pairs: 1 to run, 1 to derive, 1 cannot run; 200 images" in told
    assert "time: not known" in told
    assert "disk: about 8.0 kB of logits" in told  # 200 images x 10 classes x 4 bytes
    assert not (tmp_path / "results").exists()


def test_dry_run_tells_which_models_are_prepared_together(invoke):
    words = ["--models", "tiny_a", "tiny_b", "tiny_slow", "tiny_wide", "--eval-settings", "tiny", "tiny.noise"]
    told = invoke(*words, "--dry-run").output
    assert "prepared once for 4 models (tiny_a, tiny_b, tiny_slow and 1 more): tiny, tiny.noise\n" in told


def test_dry_run_of_many_pairs_fits_a_screen_and_groups_what_cannot_run(invoke):
    told = invoke(
        "--models", "digits_cnn", "resnet50", "--eval-settings", "digits-demo", "imagenet-c-in-memory", "--dry-run"
    ).output
    assert len(told.splitlines()) < 60
    assert "digits.contrast.1-5" in told
    assert "190 pairs (digits_cnn, resnet50 on imagenet-c." in told
    assert told.count("dataset 'val' not found") == 1


def test_dry_run_says_why_a_stored_result_is_made_again(invoke, tmp_path):
    tiny.run(tmp_path / "results", ["tiny_a"], ["tiny"], logits_dtype="float16")
    told = invoke("--models", "tiny_a", "--eval-settings", "tiny", "--dry-run").output
    assert "to run: stored in float16" in told


def test_dry_run_estimates_time_from_stored_throughput(invoke, tmp_path):
    tiny.run(tmp_path / "results", ["tiny_a"], ["tiny"])
    told = invoke("--models", "tiny_a", "--eval-settings", "tiny.noise", "--dry-run").output
    assert "about 0:0" in told


def test_without_database_results_go_to_the_logdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    run = tiny.call("eval.py", "--models", "tiny_a", "--eval-settings", "tiny", "--no-db", "--logdir", "out")
    assert run.returncode == 0, run.stderr
    assert not list((tmp_path / "results").iterdir())
    with np.load(tmp_path / "out/tiny/tiny_a.npz", allow_pickle=False) as stored:
        assert stored["logits"].shape == (200, 10)
    manifest = json.loads((tmp_path / "out/tiny/manifest.json").read_text())
    assert manifest[0]["metrics"][0]["name"] == "top1"
    assert "done    tiny_a on tiny" in (tmp_path / "out/run.log").read_text()


def test_failures_are_listed_and_the_exit_code_tells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tiny.call("eval.py", "--models", "tiny_a", "tiny_raises", "--eval-settings", "tiny", "--gpus", "cpu")
    assert run.returncode == 1
    assert "1 of 2 pairs failed:" in run.stderr
    assert run.stderr.count("ZeroDivisionError") == 1
    assert "tiny_raises on tiny: ZeroDivisionError" in run.stderr
    assert "results/run.log has each of them in full" in run.stderr
    assert "Traceback" not in run.stderr
    assert "Traceback" in (tmp_path / "results/run.log").read_text()


def test_checkpoint_goes_under_any_model_and_under_its_own_name(tmp_path, monkeypatch):
    import torch
    from safetensors.torch import save_file

    weight = torch.zeros(10, 192)
    bias = torch.arange(10.0)
    save_file({"1.weight": weight, "1.bias": bias}, tmp_path / "mine.safetensors")
    monkeypatch.chdir(tmp_path)
    run = tiny.call("eval.py", "--models", "tiny_a", "--eval-settings", "tiny", "--checkpoint", "mine.safetensors")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[2].split()[:4] == ["tiny_a@mine", "tiny", "top1", "10.00"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--models", "tiny_a"], "Missing option '--eval-settings'"),
        (["--models", "--eval-settings", "tiny"], "--models needs at least one value"),
        (["--models", "tiny_x", "--eval-settings", "tiny"], "no model, group or tag 'tiny_x'; did you mean tiny_"),
        (["--models", "tiny_a", "--eval-settings", "tiny", "--gpus", "one"], "expected GPU numbers or cpu, got 'one'"),
        (["--models", "tiny_a", "--eval-settings", "tiny", "--gpus", "99"], "this machine has"),
        (
            ["--models", "tiny_a", "--eval-settings", "tiny", "--limit", "0"],
            "expected a whole number from 1 on, got",
        ),
        (["--models", "tiny_a", "--eval-settings", "tiny", "--registry", "nowhere"], "nowhere does not exist"),
        (["--models", "tiny_a", "--eval-settings", "tiny", "--checkpoint", "x.pt"], "'x.pt' does not exist"),
        (["--models", "timm:resnet5O", "--eval-settings", "tiny"], "timm has no model 'resnet5O'; did you mean"),
        (["--models", "tiny_a", "--eval-settings", "tiny", "--logdir", "/proc/x"], "/proc/x cannot be written: No"),
        (["--models", "tiny_a", "--eval-settings", "tiny", "--logdir", __file__], "cannot be written: File exists"),
        (
            ["--models", "tiny_a", "--eval-settings", "tiny", "--db", "nosuch://x"],
            "database nosuch://x cannot be opened",
        ),
    ],
)
def test_wrong_words_are_answered_in_one_clear_line(invoke, words, answer):
    result = invoke(*words)
    assert result.exit_code != 0
    assert answer in result.output.splitlines()[-1]


def test_broken_plugin_is_named_and_the_rest_works(tmp_path):
    folder = tmp_path / "more" / "models"
    folder.mkdir(parents=True)
    (folder / "broken.py").write_text("from testbed import Model\nModel(name='odd', transform=None)\n")
    run = tiny.script(
        "eval.py", "--models", "tiny_a", "--eval-settings", "tiny", "--registry", "more", "--dry-run", cwd=tmp_path
    )
    assert run.returncode == 0
    assert "broken.py was not loaded: TypeError" in run.stderr
    assert "(line 2)" in run.stderr
    run = tiny.script(
        "eval.py", "--models", "odd", "--eval-settings", "tiny", "--registry", "more", "--dry-run", cwd=tmp_path
    )
    assert run.returncode == 1
    assert "model 'odd' is in" in run.stderr
    assert "which could not be loaded" in run.stderr


def imported_by(*words):
    """Top-level modules that are loaded after a script has run with these words."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = {[str(tiny.ROOT / words[0]), *map(str, words[1:])]!r}\n"
        "try:\n runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('MODULES', *sorted({m.split('.')[0] for m in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("eval.py", "--help"), set()),
        (("db.py", "--help"), set()),
        (("db.py", "--list-models-registry"), set()),
        (("db.py", "--list-eval-settings-registry"), set()),
        (("db.py", "--print-eval", "tiny_a", "tiny", "--db", "DB"), {"sqlalchemy"}),
        (("db.py", "--status", "--db", "DB"), {"sqlalchemy"}),
        (("eval.py", "--models", "tiny_a", "--eval-settings", "tiny", "--db", "DB"), {"sqlalchemy"}),
    ],
)
def test_commands_that_compute_nothing_load_nothing_heavy(tmp_path, monkeypatch, words, allowed):
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
    tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    loaded = imported_by(*(tmp_path / "results.db" if w == "DB" else w for w in words))
    heavy = {"torch", "torchvision", "timm", "pandas", "matplotlib", "scipy", "sklearn", "sqlalchemy", "PIL"}
    assert loaded & heavy <= allowed


def test_wrong_name_makes_no_database(tmp_path):
    told = tiny.script(
        "eval.py", "--models", "tiny_x", "--eval-settings", "tiny", "--db", "new/results.db", cwd=tmp_path
    )
    assert told.returncode != 0
    assert "no model, group or tag 'tiny_x'" in told.stderr
    assert not (tmp_path / "new").exists()
