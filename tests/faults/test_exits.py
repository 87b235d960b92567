"""`sys.exit` in somebody's registry file or function fails its entry in one line, and nothing else."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from click.testing import CliRunner

from stored_results import add
from testbed import ArrayDataset, EvalSetting, Model
from testbed.commands.database import main
from testbed.data.rows import Rows
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry
from testbed.errors import EntryError
from testbed.options import RunOptions
from testbed.store.measuring import measure
from testbed.store.outputs import Outputs
from testbed.store.write import recompute_metrics

N = 4


def pictures():
    return np.zeros((N, 2, 2, 3), dtype=np.uint8), np.zeros(N, dtype=np.int64)


def network():
    return lambda images: images.mean(dim=(2, 3))


def leave(*arguments, **named):
    sys.exit(3)


def metric_that_leaves(logits, targets):
    sys.exit("no")


def run(tmp_path, model=None, setting=None):
    """A pair with something that leaves, and one without."""
    from testbed.store.opening import open_store

    registry = Registry()
    for name, more in (("odd", model or {}), ("plain", {})):
        entry = dict(name=name, transform=None, classifier_loader=network, eval_batch_size=2)
        registry.models.add(Model(**{**entry, **more}), "here")
    for name, more in (("s", setting or {}), ("t", {})):
        entry = dict(name=name, dataset=ArrayDataset(make=pictures))
        registry.eval_settings.add(EvalSetting(**{**entry, **more}), "here")
    store = open_store(str(tmp_path / "results.db"), create=True)
    options = RunOptions(cache_folder=str(tmp_path / "cache"), results_folder=str(tmp_path))
    pairs = (["odd", "plain"], ["t"]) if model else (["plain"], ["s", "t"])
    report = run_evaluations(registry, store, *pairs, options, devices=["cpu"], inline=True, quiet=True)
    return report


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (dict(model=dict(classifier_loader=leave)), "classifier_loader called sys.exit(3): expected it to return"),
        (dict(model=dict(classifier_loader=lambda: leave)), "SystemExit: 3"),
        (dict(model=dict(transform=leave)), "SystemExit: 3"),
        (dict(model=dict(classify=lambda images, model: sys.exit(3))), "<lambda> called sys.exit(3)"),
        (dict(setting=dict(metrics_fn=metric_that_leaves)), "metric_that_leaves called sys.exit('no')"),
        (dict(setting=dict(perturbation_fn_cpu=lambda image: sys.exit(3))), "<lambda> called sys.exit(3)"),
        (dict(setting=dict(perturbation_fn_gpu=lambda images: sys.exit(3))), "<lambda> called sys.exit(3)"),
        (dict(setting=dict(dataset=ArrayDataset(make=leave))), "array from leave() failed: SystemExit: 3"),
    ],
)
def test_a_function_that_leaves_fails_its_pair_and_no_other(tmp_path, where, words):
    report = run(tmp_path, **where)
    (failed,) = report.failed
    assert words in failed.error and "\n" not in failed.error
    assert len(report.outcome.completed) == 1


def test_metrics_that_leave_are_no_end_of_measuring_again(store):
    logits = np.eye(N, dtype=np.float32)
    add(store, "m", "s", logits=logits)
    add(store, "m", "t", logits=logits)
    registry = Registry()
    registry.eval_settings.add(
        EvalSetting(name="s", dataset=ArrayDataset(make=pictures), metrics_fn=metric_that_leaves), "here"
    )
    registry.eval_settings.add(EvalSetting(name="t", dataset=ArrayDataset(make=pictures)), "here")
    done, problems = recompute_metrics(store, registry)
    assert done == 1
    assert problems == ["m on s: metric_that_leaves called sys.exit('no'): expected it to return or raise an error"]


def test_a_bootstrap_of_a_metric_that_leaves_is_its_failure():
    setting = EvalSetting(name="s", dataset=ArrayDataset(make=pictures), metrics_fn=metric_that_leaves)
    rows = Rows(np.array(list("abcd")), np.zeros(N, dtype=np.int64), np.arange(N))
    with pytest.raises(EntryError, match=r"called sys\.exit"):
        measure(setting, None, Outputs(rows, np.eye(N)))


@pytest.mark.parametrize("text", ["import sys; sys.exit(3)", "raise ValueError('a\\nb')", "raise SystemExit('x\\ny')"])
def test_a_registry_file_that_leaves_is_one_line_and_the_others_are_loaded(tmp_path, text):
    folder = tmp_path / "registry" / "eval_settings"
    folder.mkdir(parents=True)
    (folder / "bad.py").write_text(text)
    (folder / "good.py").write_text(
        "from testbed import ArrayDataset, EvalSetting, registry\n"
        "registry.add_eval_setting(EvalSetting(name='good', dataset=ArrayDataset(path='x')))\n"
    )
    told = CliRunner().invoke(
        main, ["--registry", str(tmp_path / "registry"), "--list-eval-settings-registry", "--filter", "good"]
    )
    assert told.exit_code == 0 and "good" in told.stdout
    assert len(told.stderr.strip().splitlines()) == 1 and "bad.py was not loaded" in told.stderr


def test_an_aggregate_that_leaves_is_one_line(tmp_path, store):
    folder = tmp_path / "registry" / "eval_settings"
    folder.mkdir(parents=True)
    (folder / "group.py").write_text(
        "import sys\n"
        "from testbed import ArrayDataset, EvalSetting, registry\n"
        "registry.add_eval_setting(EvalSetting(name='s', dataset=ArrayDataset(path='x')))\n"
        "registry.add_group('all-of-it', ['s'], aggregate=lambda group: sys.exit(3))\n"
    )
    add(store, "m", "s")
    store.engine.dispose()
    database = str(store.folder / "results.db")
    arguments = ["--registry", str(tmp_path / "registry"), "--db", database, "--print-group", "m", "all-of-it"]
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 1
    assert told.output == "Error: the aggregate of 'all-of-it' failed: SystemExit: 3\n"
