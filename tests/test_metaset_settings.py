"""The meta sets of the registry: names, groups, recipes, and what they do to real classifiers of digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from testbed.commands import database
from testbed.entries.registry import Registry
from testbed.errors import UnknownName
from testbed.perturb.metaset import meta_set

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def registry():
    entries = Registry()
    for name in ("cifar", "cifar_meta", "digits", "digits_meta"):
        entries.load_file(ROOT / "registry" / "eval_settings" / f"{name}.py")
    assert not entries.broken
    return entries


def test_thousand_sets_of_cifar_by_name_glob_group_and_tag(registry):
    names = [f"cifar10-meta-{n:03d}" for n in range(1000)]
    assert registry.expand_eval_settings(["cifar10-meta"]) == names
    assert registry.expand_eval_settings(["cifar10-meta-01?"]) == names[10:20]
    assert set(registry.expand_eval_settings(["meta-set"])) > set(names)
    with pytest.raises(UnknownName, match="did you mean cifar10-meta-100"):
        registry.eval_setting("cifar10-meta-1000")


def test_sets_are_over_the_test_images_with_the_recipe_of_their_number(registry):
    clean = registry.eval_setting("cifar10-test")
    setting = registry.eval_setting("cifar10-meta-007")
    assert (setting.dataset, setting.size, setting.metrics_fn) == (clean.dataset, 10_000, clean.metrics_fn)
    assert setting.perturbation_fn_cpu == meta_set(7)
    assert setting.parent_eval_setting == "cifar10-test"


def test_tags_and_groups_of_before_do_not_take_them_in(registry):
    """Whoever asks for cifar10, or runs the demo, does not wait for a thousand sets."""
    for word in ("cifar", "cifar10", "cifar10-c", "digits-demo", "corruption"):
        assert not [n for n in registry.expand_eval_settings([word]) if "meta" in n]


def test_print_setting_shows_the_recipe():
    done = CliRunner().invoke(database.main, ["--print-setting", "cifar10-meta-007"])
    shown = json.loads(done.stdout)
    assert shown["perturbation_fn_cpu"] == meta_set(7).describe()
    assert shown["dataset"] == "array cifar10/cifar10_test.npz"


def test_meta_sets_of_digits_spread_the_accuracy(registry, tmp_path):
    """Sets must differ in accuracy for a line to be fitted through them; some may be as easy as the clean images."""
    from stored_results import results
    from testbed.engine.run import run_evaluations
    from testbed.options import RunOptions
    from testbed.store.opening import open_store

    registry.load_file(ROOT / "registry" / "models" / "digits.py")
    store = open_store(str(tmp_path / "results.db"), create=True)
    options = RunOptions(cache_folder=str(tmp_path / "cache"))
    asked = ["rows:0-200@digits-meta-0[0-5]", "rows:0-200@digits"]
    report = run_evaluations(
        registry, store, ["digits_linear"], asked, options, devices=["cpu"], inline=True, quiet=True
    )
    assert not report.failed
    found = {r.eval_setting: r.value for r in results(store, metric="top1")}
    clean = found.pop("rows:0-200@digits")
    assert len(found) == 6
    assert clean > 94
    assert np.mean(list(found.values())) < clean - 10
    assert np.ptp(list(found.values())) > 20
