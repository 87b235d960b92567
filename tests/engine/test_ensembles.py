"""Ensembles: the mean of what stored logits of several models say, without a forward pass."""

import json

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

import tiny
from stored_results import results
from testbed.engine.plan import make_plan
from testbed.entries.registry import Registry
from testbed.errors import ModelError, StoreError, UnknownName
from testbed.options import RunOptions
from testbed.store.evaluation import OWN
from testbed.store.find import find_one

BOTH = "ensemble:tiny_a+tiny_b"


@pytest.fixture
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


def actions(registry, store, models, settings, overwrite=False, **options):
    options = RunOptions(cache_folder=str(store.folder / "cache"), **options)
    plan = make_plan(registry, store, models, settings, options, overwrite)
    return [(p.stored_model, p.setting.name, p.action) for p in plan.pairs], plan


def mean_probability(*logits):
    """By scipy: the logarithm of the mean softmax."""
    return logsumexp([log_softmax(one.astype(float), axis=1) for one in logits], axis=0) - np.log(len(logits))


def test_missing_members_are_run_first_and_their_probabilities_averaged(tmp_path):
    report, store = tiny.run(tmp_path, [BOTH], ["tiny", "tiny.noise"])
    assert not report.failed
    assert [p.stored_model for p in report.plan.pairs if p.asked] == [BOTH, BOTH]
    for setting in ("tiny", "tiny.noise"):
        members = [tiny.logits(store, name, setting) for name in ("tiny_a", "tiny_b")]
        np.testing.assert_allclose(tiny.logits(store, BOTH, setting), mean_probability(*members), atol=1e-5)
    ensemble = find_one(store, BOTH, "tiny", source=OWN)
    targets = np.arange(200) % 10
    top1 = 100 * np.mean(
        mean_probability(*(tiny.logits(store, n, "tiny") for n in ("tiny_a", "tiny_b"))).argmax(1) == targets
    )
    assert results(store, [BOTH], ["tiny"], "top1")[0].value == pytest.approx(top1)
    told = ensemble.provenance.other["ensemble"]
    assert told["mean"] == "probabilities"
    for name in ("tiny_a", "tiny_b"):
        member = find_one(store, name, "tiny", source=OWN)
        assert told["members"][name]["logits_sha256"] == member.logits_sha256
        assert told["members"][name]["evaluation"] == member.id


def test_logits_are_averaged_where_the_string_says_so(tmp_path):
    name = f"{BOTH},mean=logits"
    _, store = tiny.run(tmp_path, [name], ["tiny"])
    members = [tiny.logits(store, one, "tiny").astype(float) for one in ("tiny_a", "tiny_b")]
    np.testing.assert_allclose(tiny.logits(store, name, "tiny"), np.mean(members, axis=0), atol=1e-5)


def test_stored_members_are_not_run_again_and_a_stored_ensemble_is_done(tmp_path, registry):
    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny"])
    ran, plan = actions(registry, store, [BOTH], ["tiny"])
    assert ran == [("tiny_a", "tiny", "done"), ("tiny_b", "tiny", "done"), (BOTH, "tiny", "derive")]
    assert not plan.having("run")
    tiny.run(tmp_path, [BOTH], ["tiny"])
    assert actions(registry, store, [BOTH], ["tiny"])[0] == [(BOTH, "tiny", "done")]
    assert (BOTH, "tiny", "derive") in actions(registry, store, [BOTH], ["tiny"], overwrite=True)[0]


def test_an_ensemble_of_a_class_sublist_averages_over_the_classes_of_that_setting(tmp_path):
    """As where the members were run on such a setting by themselves: the other columns are not stored there."""
    report, store = tiny.run(tmp_path, [BOTH], ["tiny-even"])
    assert not report.failed
    members = [tiny.logits(store, name, "tiny-even") for name in ("tiny_a", "tiny_b")]
    np.testing.assert_allclose(tiny.logits(store, BOTH, "tiny-even"), mean_probability(*members), atol=1e-5)


def test_a_member_that_was_made_again_makes_the_ensemble_stale(tmp_path, registry):
    _, store = tiny.run(tmp_path, [BOTH], ["tiny"])
    tiny.run(tmp_path, ["tiny_a"], ["tiny"], overwrite=True)
    # The same bits: nothing has changed.
    assert actions(registry, store, [BOTH], ["tiny"])[0] == [(BOTH, "tiny", "done")]
    ensemble = find_one(store, BOTH, "tiny", source=OWN)
    facts = json.loads(ensemble.stored_provenance)
    facts["ensemble"]["members"]["tiny_a"]["logits_sha256"] = "0" * 64
    from testbed.store import schema

    with store.writing() as connection:
        of_it = schema.evaluations.c.id == ensemble.id
        connection.execute(schema.evaluations.update().where(of_it).values(provenance=facts))
    ran, plan = actions(registry, store, [BOTH], ["tiny"])
    assert ran[-1] == (BOTH, "tiny", "derive")
    assert plan.made_again() == [f"tiny: combined again for {BOTH}: member tiny_a was made again"]


def test_a_member_run_again_by_the_same_command_comes_before_the_ensemble(tmp_path, registry):
    _, store = tiny.run(tmp_path, [BOTH], ["tiny"])
    before = find_one(store, BOTH, "tiny", source=OWN).id
    report, _ = tiny.run(tmp_path, [BOTH, "tiny_a"], ["tiny"], overwrite=True)
    assert not report.failed
    ensemble, member = (find_one(store, name, "tiny", source=OWN) for name in (BOTH, "tiny_a"))
    assert ensemble.id > before
    assert ensemble.provenance.other["ensemble"]["members"]["tiny_a"]["evaluation"] == member.id


def test_a_damaged_member_is_told_and_made_again_by_the_next_run(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny"])
    path = store.folder / find_one(store, "tiny_b", "tiny", source=OWN).logits_path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    report, _ = tiny.run(tmp_path, [BOTH], ["tiny"])
    assert "tiny_b on tiny is damaged" in tiny.failure(report)
    report, _ = tiny.run(tmp_path, [BOTH], ["tiny"])
    assert not report.failed


def test_limited_and_seeded_runs_have_ensembles_of_their_own(tmp_path):
    _, store = tiny.run(tmp_path, [BOTH], ["tiny"], limit=40, seed=3)
    stored = find_one(store, BOTH, "tiny", "limit=40,seed=3", source=OWN)
    assert stored.n_images == 40


def test_an_ensemble_of_an_ensemble_of_one_and_of_unknown_models_is_refused_in_a_line(registry):
    for words, told in {
        "ensemble:tiny_a": "expected two models or more",
        "ensemble:tiny_a+tiny_a": "expected two models or more",
        "ensemble:tiny_a+": "models with a plus between them",
        f"ensemble:({BOTH})+tiny_wide": "an ensemble of ensembles is refused",
        f"{BOTH}+ensemble:tiny_a": "an ensemble of ensembles is refused",
        "ensemble:tiny_a+nobody": "no model, group or tag 'nobody'",
        "ensemble:blend:tiny_a+tiny_b@0.5+tiny_wide": r"write ensemble:\(blend:A\+B@0.5\)\+C",
        "ensemble:(tiny_a+tiny_b": r"as many \( as \)",
        f"{BOTH},mean=median": "expected mean=probabilities or mean=logits, got mean=median",
    }.items():
        with pytest.raises(UnknownName, match=told):
            registry.expand_models([words])


def test_globs_and_tags_among_the_members_stand_for_their_models(registry):
    assert registry.expand_models(["ensemble:tiny_[ab],mean=logits"]) == [f"{BOTH},mean=logits"]
    assert registry.model(BOTH).made_of.members == ("tiny_a", "tiny_b")


def test_members_with_other_classes_fail_in_a_line(tmp_path):
    report, _ = tiny.run(tmp_path, ["ensemble:tiny_a+tiny_wide"], ["tiny-metric"])
    assert "expected members with the same classes, got 10 and 1000 columns" in tiny.failure(report)


def test_a_member_that_fails_fails_the_ensemble_once(tmp_path):
    report, _ = tiny.run(tmp_path, ["ensemble:tiny_a+tiny_unloadable"], ["tiny"])
    told = {p.stored_model: p.error for p in report.failed}
    assert told["ensemble:tiny_a+tiny_unloadable"] == "its member tiny_unloadable, from which it is derived, failed"
    assert len(report.failed) == 2


def test_pictures_that_depend_on_the_model_have_no_ensemble(tmp_path):
    for setting, told in {"tiny.attack": "its members saw different ones", "tiny-probe": "run its members"}.items():
        report, _ = tiny.run(tmp_path, [BOTH], [setting])
        assert told in tiny.failure(report)
        assert not report.outcome.completed  # members are not run for nothing


@pytest.mark.parametrize("options", [{"record": ("features",)}, {"checkpoint": "x.pth"}])
def test_options_for_networks_are_refused(tmp_path, options):
    with pytest.raises(StoreError, match=r"is computed from stored logits|has none: record its members"):
        tiny.run(tmp_path, [BOTH], ["tiny"], **options)


def test_a_derived_result_of_a_member_survives_where_the_member_is_made_again(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny", "tiny-even"], logits_dtype="float16")
    report, _ = tiny.run(tmp_path, [BOTH], ["tiny"])
    assert not report.failed
    assert find_one(store, "tiny_a", "tiny-even", source=OWN).provenance.logits_dtype == "float32"


def test_what_a_killed_run_left_of_an_ensemble_is_replaced(tmp_path):
    from testbed.store.claims import Work

    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny"])
    store.begin_run()
    ids = store.ensure_model(BOTH), store.ensure_eval_setting("tiny", 1)
    left = store.folder / "logits" / "tiny" / "left.npy"
    left.write_bytes(b"half of it")
    store.claim(*ids, "", Work(n_images=200, logits_path="logits/tiny/left.npy"), resumable=False)
    store.end_run()
    report, _ = tiny.run(tmp_path, [BOTH], ["tiny"])
    assert not report.failed and not left.exists()
    assert results(store, [BOTH], ["tiny"], "top1")


def test_from_python_an_ensemble_is_evaluated_and_cannot_be_shown_pictures(tmp_path):
    import testbed

    where = {"registry": [str(tiny.REGISTRY)], "data_root": str(tmp_path)}
    table = testbed.evaluate(BOTH, "tiny", db=str(tmp_path / "results.db"), gpus="cpu", quiet=True, workers=0, **where)
    assert set(table.model) == {BOTH}
    with pytest.raises(
        ModelError, match=r"an ensemble has no network: eval.py and testbed.evaluate compute its results"
    ):
        testbed.predict(BOTH, "tiny", **where)
