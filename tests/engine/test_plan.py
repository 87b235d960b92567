"""The plan: which pairs are run, derived, done or bound to fail, and why."""

from __future__ import annotations

import numpy as np
import pytest

import tiny
from testbed import EvalSetting
from testbed.engine.plan import make_plan
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.options import RunOptions


@pytest.fixture
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


@pytest.fixture
def planned(registry, store):
    """(setting, action) of every pair of a plan, in its order."""

    def plan(models, settings, overwrite=False, **options):
        made = make_plan(registry, store, models, settings, RunOptions(**options), overwrite)
        return [(p.setting.name, p.action) for p in made.pairs]

    return plan


def run(store, models, settings, **options):
    """The same in the store's folder, so that the plan finds it stored."""
    report, other = tiny.run(store.folder, models, settings, **options)
    assert not report.failed
    other.engine.dispose()


def test_a_derived_setting_brings_the_one_it_reads_and_comes_after_it(planned):
    assert planned(["tiny_a"], ["tiny-even"]) == [("tiny", "run"), ("tiny-even", "derive")]
    assert planned(["tiny_a"], ["tiny-some-even"]) == [
        ("tiny", "run"),
        ("tiny-even", "derive"),
        ("tiny-some-even", "derive"),
    ]


def test_a_few_images_of_a_setting_nobody_asks_for_are_run_alone(planned):
    assert planned(["tiny_a"], ["tiny-some"]) == [("tiny-some", "run")]
    assert planned(["tiny_a"], ["tiny-some", "tiny"]) == [("tiny", "run"), ("tiny-some", "derive")]


def test_all_images_of_a_setting_are_read_from_its_logits(registry, planned):
    """Run alone they would be as much work, and the setting itself would still be to do."""
    for name, count in (("nearly", 199), ("whole", 200)):
        picked = EvalSetting(name=name, logits_from="tiny", idx_subsample_list=tuple(range(count)))
        registry.eval_settings.add(picked, "here")
    assert planned(["tiny_a"], ["nearly"]) == [("nearly", "run")]
    assert planned(["tiny_a"], ["whole"]) == [("tiny", "run"), ("whole", "derive")]


def test_what_is_stored_is_done_and_serves_what_is_derived_from_it(planned, store):
    run(store, ["tiny_a"], ["tiny"])
    assert planned(["tiny_a"], ["tiny", "tiny-even"]) == [("tiny", "done"), ("tiny-even", "derive")]
    assert planned(["tiny_a"], ["tiny-some"]) == [("tiny", "done"), ("tiny-some", "derive")]
    assert planned(["tiny_b"], ["tiny"]) == [("tiny", "run")]


def test_a_parent_that_nothing_is_left_to_derive_from_is_no_part_of_the_plan(planned, store):
    run(store, ["tiny_a"], ["tiny", "tiny-even"])
    assert planned(["tiny_a"], ["tiny-even"]) == [("tiny-even", "done")]


def test_limited_runs_and_other_seeds_do_not_count_as_done(planned, store):
    run(store, ["tiny_a"], ["tiny"], limit=20)
    run(store, ["tiny_a"], ["tiny.noise"], seed=1)
    assert planned(["tiny_a"], ["tiny", "tiny.noise"]) == [("tiny", "run"), ("tiny.noise", "run")]
    assert planned(["tiny_a"], ["tiny"], limit=20) == [("tiny", "done")]


def test_a_new_version_is_run_and_the_old_result_serves_nothing(registry, planned, store):
    run(store, ["tiny_a"], ["tiny", "tiny-even"])
    entries = registry.eval_settings.entries
    entries["tiny"] = EvalSetting(name="tiny", dataset=entries["tiny"].dataset, version=2)
    assert planned(["tiny_a"], ["tiny-even"]) == [("tiny", "run"), ("tiny-even", "derive")]


def test_overwriting_derives_again_what_was_derived_from_it(planned, store):
    run(store, ["tiny_a"], ["tiny", "tiny-even", "tiny.noise"])
    assert planned(["tiny_a"], ["tiny"], overwrite=True) == [("tiny", "run"), ("tiny-even", "derive")]


def test_votes_among_a_sublist_cannot_be_read_from_other_logits(planned):
    assert planned(["tiny_votes"], ["tiny-even"]) == [("tiny-even", "run")]


def test_images_of_another_setting_are_run_and_its_logits_are_not_needed(registry, planned):
    probing = EvalSetting(
        name="probing", images_from="tiny.noise", probe=lambda images: {"mean": images.mean((1, 2, 3))}
    )
    registry.eval_settings.add(probing, "here")
    assert planned(["tiny_a"], ["probing"]) == [("probing", "run")]
    assert registry.runnable("probing").noise_key == "tiny.noise"


def test_controls_are_run_with_the_setting_that_needs_them(registry, planned):
    registry.eval_settings.add(EvalSetting(name="x", images_from="tiny", controls=("tiny.noise",)), "here")
    assert planned(["tiny_a"], ["x"]) == [("x", "run"), ("tiny.noise", "run")]


def test_missing_data_fails_its_own_pairs_only(registry, planned, store):
    assert planned(["tiny_a"], ["tiny-missing", "tiny"]) == [("tiny-missing", "fail"), ("tiny", "run")]
    plan = make_plan(registry, store, ["tiny_a"], ["tiny-missing"], RunOptions())
    assert plan.pairs[0].error.startswith("dataset 'no-such-set' not found")


def test_labels_are_those_of_the_whole_dataset_or_none_where_it_is_missing(registry, store):
    plan = make_plan(registry, store, ["tiny_a"], ["tiny", "tiny-missing"], RunOptions(limit=5))
    np.testing.assert_array_equal(plan.pairs[0].labels, np.arange(200) % 10)
    assert len(plan.pairs[1].labels) == 0


def test_rows_are_chosen_once_for_settings_that_take_the_same(registry, store):
    plan = make_plan(registry, store, ["tiny_a", "tiny_b"], ["tiny", "tiny.noise"], RunOptions())
    assert len({id(pair.rows) for pair in plan.pairs}) == 1
    assert [pair.n_images for pair in plan.pairs] == [200] * 4


def test_wrong_number_of_images_is_a_warning(registry, store):
    plan = make_plan(registry, store, ["tiny_a"], ["tiny-size"], RunOptions())
    assert plan.pairs[0].warning == "expected 201 images, found 200"
    assert make_plan(registry, store, ["tiny_a"], ["tiny-size"], RunOptions(limit=9)).pairs[0].warning == ""


def test_a_checkpoint_goes_with_one_model(registry, store, tmp_path):
    with pytest.raises(StoreError, match="--checkpoint is for one model at a time, got 2"):
        make_plan(registry, store, ["tiny_a", "tiny_b"], ["tiny"], RunOptions(checkpoint=str(tmp_path / "best.pth")))


def test_time_is_estimated_from_the_speed_of_models_that_were_run_before(registry, store):
    plan = make_plan(registry, store, ["tiny_a", "tiny_b"], ["tiny"], RunOptions())
    assert plan.estimated_seconds({}) is None
    assert plan.estimated_seconds({"tiny_a": 100.0}) == pytest.approx(4.0)  # the other as fast as this one
    assert plan.estimated_seconds({"tiny_a": 100.0, "tiny_b": 50.0}) == pytest.approx(6.0)
