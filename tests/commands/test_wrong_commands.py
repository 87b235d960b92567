"""Seventy commands with a mistake, and the words of the answer: what came, what there is, what to do."""

import shlex
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import tiny
from stored_results import copy_results
from testbed.commands.figures import figure
from testbed.entries.plugin_files import PARTS

RUN = "eval.py --gpus cpu --db results/results.db"

# (command, words of the answer). Those of eval.py that begin with RUN get as far as the run.
CASES = [
    # Names in the wrong place.
    ("eval.py --models tiny --eval-settings tiny_a", "'tiny_a' is a model, expected an eval setting", "swapped?"),
    ("eval.py --models tiny.noise --eval-settings tiny_a", "'tiny.noise' is an eval setting, expected a model"),
    ("eval.py --models folder:pictures --eval-settings tiny", "is an eval setting, expected a model", "swapped?"),
    ("eval.py --models tiny_a --eval-settings timm:resnet50", "is a model, expected an eval setting", "swapped?"),
    ("db.py --print-eval tiny tiny_a", "'tiny' is an eval setting, expected a model", "swapped?"),
    ("db.py --per-class tiny tiny_a", "'tiny' is an eval setting, expected a model", "swapped?"),
    ("db.py --calibration tiny tiny_a", "'tiny_a' is a model, expected an eval setting", "swapped?"),
    ("db.py --print-setting tiny_a", "'tiny_a' is a model, expected an eval setting"),
    ("eval.py --models net.pth --eval-settings tiny", "file of weights", "--checkpoint net.pth"),
    ("eval.py --models runs/Best.PT --eval-settings tiny", "file of weights", "--checkpoint runs/Best.PT"),
    ("eval.py --models tiny_a --eval-settings pictures", "is a folder", "folder:pictures"),
    ("eval.py --models tiny_a --eval-settings list.csv", "is a CSV file", "manifest:list.csv"),
    ("eval.py --models tiny_a --eval-settings pictures.npz", "is a file of arrays", "array:pictures.npz"),
    ("eval.py --models tiny_a --eval-settings a.parquet", "is a parquet file", "parquet:a.parquet"),
    ("eval.py --models tiny_a --eval-settings a.tar", "is a tar file", "tar:a.tar takes the pictures in it"),
    ("eval.py --models tiny_a --eval-settings x.docx", "'x.docx' is a file", "folder:DIR, manifest:FILE.csv"),
    # Misspelled or unknown names.
    ("eval.py --models tiny_aa --eval-settings tiny", "no model, group or tag 'tiny_aa'", "did you mean tiny_a"),
    ("eval.py --models tiny_a --eval-settings tinny", "no eval setting, group or tag 'tinny'", "did you mean tiny"),
    ("eval.py --models tiny_a --eval-settings qqqqqq", "db.py --list-eval-settings-registry` lists them"),
    ("eval.py --models timm:resnet5O --eval-settings tiny", "timm has no model 'resnet5O'", "did you mean"),
    ("eval.py --models 'timm:nothing*' --eval-settings tiny", "no timm model matches 'nothing*'"),
    ("db.py --print-eval tiny_aa tiny", "no model 'tiny_aa' in the database", "did you mean tiny_a"),
    ("db.py --print-group tiny_a imagenet-d", "no group 'imagenet-d'", "did you mean"),
    ("db.py --print-group tiny_a digits-corruptions", "none of the 30 settings", "it has own results on tiny"),
    ("autoeval.py --models tiny_zz --source tiny --test tiny.noise", "tiny_zz", "did you mean"),
    # Options and values.
    ("eval.py --models tiny_a --eval-settings tiny --limit abc", "whole number from 1 on, got 'abc'"),
    ("eval.py --models tiny_a --eval-settings tiny --limit 0", "whole number from 1 on, got '0'"),
    ("eval.py --models tiny_a --eval-settings tiny --limit 2.5", "whole number from 1 on, got '2.5'"),
    ("eval.py --models tiny_a --eval-settings tiny --seed -1", "whole number from 0 on, got '-1'"),
    ("eval.py --models tiny_a --eval-settings tiny --timeout soon", "a number above 0, got 'soon'"),
    ("eval.py --models tiny_a --eval-settings tiny --cache-gb -2", "a number from 0 on, got '-2'"),
    ("eval.py --models tiny_a --eval-settings tiny --batch-size big", "from 1 on, or auto, got 'big'"),
    ("eval.py --models tiny_a --eval-settings tiny --amp half", "'half' is not one of 'bf16', 'fp16'"),
    ("eval.py --models tiny_a --eval-settings tiny --gpus one", "expected GPU numbers or cpu, got 'one'"),
    ("eval.py --models tiny_a --eval-settings tiny --ray somewhere", "expected nothing, auto or HOST:PORT"),
    ("eval.py --models tiny_a --eval-settings tiny --ray --gpus 0", "expected cpu; Ray chooses the GPUs"),
    ("eval.py --models tiny_a --eval-settings tiny --ray-gpu-share 0.5", "expected --ray with it"),
    ("eval.py --models tiny_a --eval-settings tiny --ray --ray-gpu-share 0", "a number above 0 and up to 1, got '0'"),
    ("eval.py --models tiny_a --eval-settings tiny --record colours", "expected features or rotation, got 'colours'"),
    ("eval.py --models tiny_a --eval-settings tiny --checkpoint net_best.pth", "does not exist", "net.pth"),
    ("eval.py --models tiny_a --eval-settings tiny --checkpoint no/net.pth", "nor does the folder no"),
    ("eval.py --models tiny_a tiny_b --eval-settings tiny --checkpoint net.pth", "for one model at a time, got 2"),
    ("eval.py --models tiny_a --eval-settings tiny --registry nowhere", "nowhere does not exist"),
    ("eval.py --models tiny_a", "Missing option '--eval-settings'"),
    ("eval.py --model tiny_a --eval-settings tiny", "No such option", "--models"),
    ("eval.py tiny_a tiny", "got 'tiny_a'", "needed: --models NAME... --eval-settings NAME..."),
    ("db.py statsu", "no sub-command 'statsu'", "did you mean status?"),
    ("db.py print-eval tiny_a tiny", "no sub-command 'print-eval'", "did you mean --print-eval?"),
    ("db.py --print-eval tiny_a", "expected --print-eval MODEL SETTING"),
    ("db.py --version x --status", "whole number from 0 on, got 'x'"),
    ("db.py --db elsewhere/results.db --status", "no results database elsewhere/results.db", "run eval.py first"),
    ("db.py --export table.docx", "ending in .csv, .json or .parquet, got table.docx"),
    # Lists and queries that find nothing.
    ("db.py --list-models-db --filter alpha", "no model matches 'alpha'", "there are 3, such as tiny_a", "'*part*'"),
    ("db.py --list-eval-settings-db --filter 'tin.*'", "no eval setting matches 'tin.*'", "did you mean tiny"),
    ("db.py --list-models-registry --filter 'resnett*'", "no model matches 'resnett*'", "did you mean resnet"),
    ("db.py --status --filter 'val*'", "no eval setting of a run", "there are 3, such as tiny"),
    ("db.py --print-eval tiny_a tiny.noise --variant limit=7", "of limit=7", "limit=20 of version 1 (--variant limit"),
    ("plotting/table.py --metric top2 --db results/results.db", "no results with metric 'top2'", "there are", "top5"),
    ("db.py --print-eval zzz tiny", "no model 'zzz' in the database", "; there is tiny_a, tiny_b"),
    ("db.py --print-eval tiny_a zzz", "no eval setting 'zzz'", "; there is tiny, tiny-even, tiny.noise"),
    ("db.py --save-logits zzz out", "no eval setting 'zzz'", "; there is tiny"),
    ("autoeval.py --models tiny_a --source zzz --test tiny", "no eval setting 'zzz' of tiny_a; there is tiny"),
    ("plotting/grid.py --models zzz --db results/results.db", "no results of model 'zzz'; there is tiny_a"),
    ("plotting/grid.py --eval-settings zzz --db results/results.db", "no results on 'zzz'; there is tiny"),
    # Options that contradict or say nothing.
    ("eval.py --models tiny_a --eval-settings tiny --no-db --db x.db", "expected --db or --no-db, got both"),
    ("eval.py --models tiny_a --eval-settings tiny --registry x.docx", "x.docx is a file, expected a folder"),
    ("eval.py --models tiny_a --eval-settings folder:", "nothing stands after the colon", "such as folder:PATH"),
    ("eval.py --models tiny_a --eval-settings manifest:", "nothing stands after the colon", "manifest:FILE.csv"),
    ("eval.py --models '' --eval-settings tiny", "no model, group or tag ''; `python db.py --list-models-registry`"),
    ("db.py --filter tiny", "--filter: expected beside a flag that reads it", "--filter is for --list-models-registry"),
    ("db.py --version 1 --status", "beside a flag that reads it, got --status; --version is for --print-eval"),
    ("db.py --full --print-eval tiny_a tiny", "a flag that reads it, got --print-eval; --full is for --status"),
    ("db.py --variant limit=20 status", "--variant: expected beside a flag that reads it, got --status"),
    ("db.py --print-group tiny_a tiny --version 1", "takes no --version: its settings have versions of their own"),
    ("eval.py --models timm: --eval-settings tiny", "'timm:': expected a model after the colon", "timm:resnet50"),
    ("eval.py --models hub: --eval-settings tiny", "'hub:': expected a model after the colon", "hub:chenyaofo/"),
    ("db.py --version 1 --format csv", "--format", "--version", "expected beside a flag"),
    ("db.py --status --db results", "results is a folder, expected a results database", "results/results.db"),
    ("db.py --import-csv nowhere.csv --source x", "nowhere.csv cannot be read: No such file or directory"),
    ("plotting/scatter.py --x tiny --y tiny-even --confidence 95", "expected a number between 0 and 1, got '95'"),
    ("plotting/scatter.py --x tiny --y tiny-even --min-x low", "expected a number from 0 to 100, got 'low'"),
    ("plotting/table.py --digits 9", "expected a whole number from 0 to 6, got '9'"),
    ("plotting/compare.py tiny_a tiny_a --db results/results.db", "expected two models to compare, got 'tiny_a' twice"),
    ("plotting/explorer.py --db results/results.db --out e.pdf", "expected a file ending in .html, got e.pdf"),
    # What a picture or a model cannot be.
    ("plotting/scatter.py --x tiny --y tiny-even --db results/results.db --out x.docx", ".pdf or .png", "got x.docx"),
    (f"{RUN} --models tiny_a --eval-settings folder:x.docx", "x.docx is a file, expected a folder"),
    (f"{RUN} --models tiny_a --eval-settings array:x.docx", "expected a file ending in .npz or .npy, or a folder"),
    (f"{RUN} --models digits_cnn --eval-settings folder:pictures", "differ in size", "StandardTransform("),
    (f"{RUN} --models tiny_a --eval-settings tiny --checkpoint net.pth", "net.pth is", "no torch or safetensors"),
]  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    tiny.run(folder, ["tiny_a", "tiny_b", "tiny_raises"], ["tiny", "tiny-even"])
    tiny.run(folder, ["tiny_a"], ["tiny.noise"], limit=20)
    return folder


FIGURES = sorted({Path(command.split()[0]).stem for command, *_ in CASES if command.startswith("plotting/")})


@pytest.fixture(scope="module")
def entries():
    """Both registries, loaded once for all commands."""
    from testbed.entries.registry import load_registry

    return load_registry([str(tiny.REGISTRY)])


@pytest.fixture
def answer(filled, entries, tmp_path, monkeypatch):
    """What a command prints in a folder with results, pictures of two sizes and files of other kinds."""
    from testbed.commands import action
    from testbed.engine import run
    from testbed.engine.pools import InlinePool
    from testbed.entries import registry

    copy_results(filled, tmp_path / "results")
    for name, size in (("cat/0.png", 30), ("cat/1.png", 64)):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((size, size, 3), np.uint8)).save(path)
    for name in ("x.docx", "net.pth"):
        (tmp_path / name).write_text("of another kind")
    monkeypatch.chdir(tmp_path)
    real = registry.load_registry
    # A script that is imported only now would keep what stands here for load_registry beyond this test.
    figures = [sys.modules[figure(name).callback.__module__] for name in FIGURES]
    for module in (registry, action, *(module for module in figures if hasattr(module, "load_registry"))):
        monkeypatch.setattr(
            module, "load_registry", lambda extra=(), parts=PARTS: real(extra, parts) if extra else entries
        )
    monkeypatch.setattr(run, "ProcessPool", lambda devices, options, threads: InlinePool("cpu", options, entries))

    def call(command):
        script, *words = shlex.split(command)
        modules = {"eval.py": "evaluate", "db.py": "database", "autoeval.py": "autoeval"}
        if script in modules:
            main = import_module(f"testbed.commands.{modules[script]}").main
        else:
            main = figure(Path(script).stem)
        result = CliRunner().invoke(main, words, prog_name=script, catch_exceptions=False)
        assert result.exit_code != 0, result.output
        return result.output

    return call


@pytest.mark.parametrize(("command", "words"), [pytest.param(case[0], case[1:], id=case[0][:80]) for case in CASES])
def test_wrong_command_is_told_what_came_and_what_to_do(answer, command, words):
    told = answer(command)
    lines = told.splitlines()
    assert any(all(word in line for word in words) for line in lines), told
    assert "Traceback" not in told


def test_there_are_seventy_of_them():
    assert len({command for command, *_ in CASES}) >= 70


def test_new_database_is_told_of_so_that_a_misspelled_one_is_noticed(answer, tmp_path):
    from testbed.commands.evaluate import main

    words = [
        "--models",
        "tiny_a",
        "--eval-settings",
        "tiny",
        "--limit",
        "10",
        "--gpus",
        "cpu",
        "--db",
        "resluts/results.db",
    ]
    told = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert "made a new database resluts/results.db" in told
    assert "made a new" not in CliRunner().invoke(main, words, catch_exceptions=False).output
