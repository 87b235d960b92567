"""A function whose code changed since results were stored with it is told in one line; the results stay."""

from __future__ import annotations

import os
import time

import pytest

import tiny
from stored_results import completed
from testbed.engine.plan import make_plan
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry
from testbed.options import RunOptions
from testbed.store.opening import open_store
from testbed.store.write import recompute_metrics

SETTINGS = """
import numpy as np
from testbed import ArrayDataset, EvalSetting, registry

LOWEST = 0.0


def images():
    return np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8), np.arange(20) % 10


def inverted(image):
    return (1 - image).clamp(LOWEST, 1)


def mean_logit(logits, targets):
    return {"mean_logit": float(np.mean(logits))}


DATA = ArrayDataset(make=images, num_classes=10)
registry.add_eval_setting(EvalSetting(name="plain", dataset=DATA))
registry.add_eval_setting(EvalSetting(name="inverted", dataset=DATA, perturbation_fn_cpu=inverted))
registry.add_eval_setting(EvalSetting(name="measured", logits_from="inverted", metrics_fn=mean_logit))
"""
MODELS = """
from testbed import Model, registry


def load():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))


def classify(images, model):
    return model(images)


for name in ("one", "two"):
    registry.add_model(
        Model(name=name, transform=None, classifier_loader=load, eval_batch_size=8, classify=classify)
    )
"""
NAMES = ["plain", "inverted", "measured"]


@pytest.fixture
def place(tmp_path):
    """A registry in a folder, and a store; `registry` loads it as its files are now."""

    class Place:
        store = open_store(str(tmp_path / "results.db"), create=True)
        options = RunOptions(cache_folder=str(tmp_path / "cache"))

        def __init__(self):
            self.write(SETTINGS, MODELS)

        def write(self, settings=SETTINGS, models=MODELS):
            import linecache

            for part, text in (("eval_settings", settings), ("models", models)):
                (tmp_path / part).mkdir(exist_ok=True)
                path = tmp_path / part / "mine.py"
                path.write_text(text)
                # Python knows its compiled form by size and second; a second write within one would not be seen.
                self.written_at = getattr(self, "written_at", time.time()) + 1
                os.utime(path, (self.written_at, self.written_at))
            linecache.clearcache()  # another process would read the files anew
            from testbed.entries import code_digest

            code_digest._tree.cache_clear()
            code_digest._assignments.cache_clear()

        def registry(self):
            entries = Registry()
            entries.load_folder(tmp_path)
            assert not entries.broken
            return entries

        def plan(self, models=("one", "two"), settings=NAMES):
            return make_plan(self.registry(), self.store, models, settings, self.options)

        def run(self, models=("one", "two"), settings=NAMES, overwrite=False):
            report = run_evaluations(
                *(self.registry(), self.store, models, settings, self.options),
                devices=["cpu"],
                overwrite=overwrite,
                inline=True,
                quiet=True,
            )
            assert not report.failed, report.failed[0].error

    place = Place()
    yield place
    place.store.engine.dispose()


def all_done(plan):
    return {pair.action for pair in plan.pairs} == {"done"}


def test_nothing_is_said_while_nothing_changed(place):
    place.run()
    place.write(SETTINGS.replace("def inverted", "# a comment\n\n\ndef inverted"))
    plan = place.plan()
    assert all_done(plan) and plan.notes == []


def test_a_changed_perturbation_is_told_with_what_version_is_for(place):
    place.run()
    place.write(SETTINGS.replace("LOWEST = 0.0", "LOWEST = 0.2"))
    plan = place.plan()
    assert all_done(plan)
    assert plan.notes == [
        f"perturbation_fn_cpu of eval setting '{name}' has changed since its results were stored (one, two), which "
        "stay as they are: raise `version` of the setting where its images change, or --overwrite runs them again"
        for name in ("inverted", "measured")
    ]
    place.run(overwrite=True)
    assert place.plan().notes == []


def test_a_changed_metric_is_told_until_it_has_measured_again(place):
    place.run()
    place.write(SETTINGS.replace("np.mean(logits)", "np.median(logits)"))
    plan = place.plan()
    assert all_done(plan)
    (note,) = plan.notes
    assert note.startswith("metrics_fn of eval setting 'measured' has changed since its results were stored (one, two)")
    assert "db.py --recompute-metrics measures them again" in note
    assert recompute_metrics(place.store, place.registry(), "measured") == (2, [])
    assert place.plan().notes == []


def test_a_changed_classify_is_told_for_its_model(place):
    place.run()
    place.write(models=MODELS.replace("return model(images)", "return 2 * model(images)"))
    plan = place.plan(["one"])
    assert all_done(plan)
    (note,) = plan.notes
    assert note.startswith(
        "classify of model 'one' has changed since its results were stored (plain, inverted, measured)"
    )
    assert note.endswith("--overwrite runs them again")


def test_a_raised_version_is_run_and_nothing_is_said(place):
    place.run()
    changed = SETTINGS.replace("LOWEST = 0.0", "LOWEST = 0.2")
    place.write(changed.replace("perturbation_fn_cpu=inverted", "perturbation_fn_cpu=inverted, version=2"))
    plan = place.plan(settings=["inverted"])
    assert [pair.action for pair in plan.pairs] == ["run", "run"] and plan.notes == []


def test_results_from_before_digests_were_kept_say_nothing(place):
    place.run()
    with place.store.writing() as connection:
        connection.exec_driver_sql("UPDATE evaluations SET provenance = '{}'")
    place.write(SETTINGS.replace("LOWEST = 0.0", "LOWEST = 0.2"))
    assert place.plan().notes == []


def test_a_function_that_makes_other_images_is_changed_data(place):
    place.run()
    place.write(SETTINGS.replace("default_rng(0)", "default_rng(1)"))
    assert {pair.action for pair in place.plan().pairs} == {"run", "derive"}


def test_a_function_that_makes_the_same_images_in_other_words_is_the_same_data(place):
    place.run()
    place.write(SETTINGS.replace("np.arange(20) % 10", "np.array([i % 10 for i in range(20)])"))
    assert all_done(place.plan())


def test_digests_are_kept_with_the_results(place):
    place.run(["one"])
    kinds = completed(place.store, "one", "inverted").provenance.functions
    assert set(kinds) == {"perturbation_fn_cpu", "metrics_fn", "model classify"}
    assert set(completed(place.store, "one", "measured").provenance.functions) == {"metrics_fn"}


def test_eval_py_tells_it_in_one_line(tmp_path, place):
    place.run(["one"], ["inverted"])
    words = ("--models", "one", "--eval-settings", "inverted", "--registry", tmp_path, "--db", tmp_path / "results.db")
    place.write(SETTINGS.replace("LOWEST = 0.0", "LOWEST = 0.2"))
    told = tiny.script("eval.py", *words, cwd=tmp_path)
    assert told.returncode == 0 and "Nothing to do" in told.stdout
    assert told.stderr.count("\n") == 1 and told.stderr.startswith("perturbation_fn_cpu of eval setting 'inverted'")
