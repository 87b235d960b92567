"""What a run computes: the numbers, the derived ones, and that nothing changes them that should not."""

import hashlib

import numpy as np
import pytest
import torch

import tiny
from stored_results import completed, evaluations, every_number, results, stored_outputs
from testbed.store import schema
from testbed.store.find import evaluation_by_id


def reference_logits(seed, normalise=None):
    """The tiny linear model by hand, in numpy."""
    images, targets = _data()
    generator = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(10, 192, generator=generator), torch.randn(10, generator=generator)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255
    if normalise:
        x = normalise(x)
    return (x.flatten(1) @ weight.double().T + bias.double()).numpy(), targets


def _data():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (200, 8, 8, 3), dtype=np.uint8), np.arange(200) % 10


def test_logits_and_accuracy_are_those_of_the_model(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert not report.failed
    expected, targets = reference_logits(1)
    np.testing.assert_allclose(tiny.logits(store, "tiny_a", "tiny"), expected, atol=1e-4)
    (top1, top5) = results(store)
    assert top1.value == pytest.approx(100 * np.mean(expected.argmax(1) == targets))
    assert top5.metric == "top5"
    assert top1.n == 200
    assert top1.ci_low < top1.value < top1.ci_high


def test_bgr_normalisation_flips_channels_before_it_subtracts(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_b"], ["tiny"])
    mean = torch.tensor([0.5, 0.4, 0.3]).view(1, 3, 1, 1)
    expected, _ = reference_logits(2, lambda x: (x.flip(1) - mean) / 0.2)
    np.testing.assert_allclose(tiny.logits(store, "tiny_b", "tiny"), expected, atol=1e-3)


def test_derived_setting_takes_rows_and_columns_of_its_parent_without_running(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even", "tiny-some", "tiny-some-even"])
    assert len(report.outcome.derived) == 3
    expected, targets = reference_logits(1)
    even = [0, 2, 4, 6, 8]
    rows = np.isin(targets, even)
    np.testing.assert_allclose(tiny.logits(store, "tiny_a", "tiny-even"), expected[rows][:, even], atol=1e-4)
    np.testing.assert_allclose(tiny.logits(store, "tiny_a", "tiny-some"), expected[[7, 3, 3, 11]], atol=1e-4)
    again = expected[np.isin(targets, [2, 0])][:, [2, 0]]
    np.testing.assert_allclose(tiny.logits(store, "tiny_a", "tiny-some-even"), again, atol=1e-4)
    value = results(store, eval_settings=["tiny-even"])[0].value
    hits = np.array(even)[expected[rows][:, even].argmax(1)] == targets[rows]
    assert value == pytest.approx(100 * hits.mean())


def test_asking_for_a_derived_setting_runs_its_parent_once(tmp_path):
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny-even"])
    assert [p.setting.name for p in report.outcome.completed] == ["tiny"]
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny-some"])
    assert not report.outcome.completed
    assert [p.setting.name for p in report.outcome.derived] == ["tiny-some"]


def test_some_images_alone_are_run_without_the_others_and_with_the_noise_they_have_there(tmp_path):
    alone, store = tiny.run(tmp_path / "alone", ["tiny_a"], ["tiny.noise-some"])
    assert [(p.setting.name, p.n_images) for p in alone.outcome.completed] == [("tiny.noise-some", 4)]
    both, whole = tiny.run(tmp_path / "both", ["tiny_a"], ["tiny.noise", "tiny.noise-some"])
    assert [p.setting.name for p in both.outcome.derived] == ["tiny.noise-some"]
    some = [tiny.logits(s, "tiny_a", "tiny.noise-some") for s in (store, whole)]
    np.testing.assert_allclose(*some, atol=1e-4)
    again, _ = tiny.run(tmp_path / "alone", ["tiny_a"], ["tiny.noise"])
    assert [p.setting.name for p in again.outcome.completed] == ["tiny.noise"]


def test_model_that_votes_among_the_sublist_is_run_and_not_derived(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_votes"], ["tiny-even"])
    assert [p.setting.name for p in report.outcome.completed] == ["tiny-even"]
    expected, targets = reference_logits(1)
    even = [0, 2, 4, 6, 8]
    voted = 2 * expected[np.isin(targets, even)][:, even]
    np.testing.assert_allclose(tiny.logits(store, "tiny_votes", "tiny-even"), voted, atol=1e-4)


def test_model_that_attacks_itself_is_not_attacked_from_outside(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_self_attacked", "tiny_a"], ["tiny.attack"])
    plain, _ = reference_logits(1)
    attacked, _ = reference_logits(1, lambda x: 1 - x)
    np.testing.assert_allclose(tiny.logits(store, "tiny_self_attacked", "tiny.attack"), -plain, atol=1e-4)
    np.testing.assert_allclose(tiny.logits(store, "tiny_a", "tiny.attack"), attacked, atol=1e-4)


@pytest.mark.parametrize("setting", ["tiny.noise", "tiny.batch_noise"])
def test_noise_is_the_same_for_every_batch_size_chunk_size_and_rerun(tmp_path, setting):
    _, a = tiny.run(tmp_path / "a", ["tiny_a"], [setting])
    _, b = tiny.run(tmp_path / "b", ["tiny_a"], [setting], batch_size=7, chunk_size=21, workers=3)
    # Other batches are other matrix products: equal but for float32 rounding of logits that reach 20.
    np.testing.assert_allclose(tiny.logits(a, "tiny_a", setting), tiny.logits(b, "tiny_a", setting), atol=1e-4)
    clean, _ = reference_logits(1)
    assert np.abs(tiny.logits(a, "tiny_a", setting) - clean).mean() > 0.5


def test_other_seed_gives_other_noise_and_stands_apart(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny.noise"])
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny.noise"], seed=1)
    a, b = tiny.logits(store, "tiny_a", "tiny.noise"), tiny.logits(store, "tiny_a", "tiny.noise", "seed=1")
    assert np.abs(a - b).mean() > 0.1
    assert {r.variant for r in every_number(store)} == {"", "seed=1"}
    assert len({r.evaluation_id for r in results(store)}) == 1


def test_random_classify_function_is_repeatable(tmp_path):
    _, a = tiny.run(tmp_path / "a", ["tiny_random"], ["tiny"])
    torch.rand(3)
    _, b = tiny.run(tmp_path / "b", ["tiny_random"], ["tiny"])
    np.testing.assert_array_equal(tiny.logits(a, "tiny_random", "tiny"), tiny.logits(b, "tiny_random", "tiny"))


def test_limit_takes_the_same_number_of_each_class_and_stands_apart(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"], limit=50)
    (evaluation,) = evaluations(store, eval_setting="tiny")
    samples = stored_outputs(store, evaluation).rows
    assert np.bincount(samples.targets).tolist() == [5] * 10
    assert results(store) == []
    limited = results(store, variant="limit=50")
    assert {(r.eval_setting, r.n) for r in limited} == {("tiny", 50), ("tiny-even", 25)}


def test_float16_logits_are_measured_as_they_are_stored(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], logits_dtype="float16")
    stored = tiny.logits(store, "tiny_a", "tiny")
    assert stored.dtype == np.float16
    assert results(store)[0].value == pytest.approx(100 * np.mean(stored.argmax(1) == _data()[1]))


def test_probe_records_arrays_beside_the_logits(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny-probe"], chunk_size=32)
    stored = stored_outputs(store, completed(store, "tiny_a", "tiny-probe"))
    images, _ = _data()
    np.testing.assert_allclose(stored.extras["brightness"], images.mean((1, 2, 3)) / 255, atol=1e-5)
    np.testing.assert_array_equal(stored.extras["argmax"], stored.logits.argmax(1))


def test_metric_without_an_interval_gets_one_by_resampling_images(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny-metric", "tiny"])
    rows = {r.metric: r for r in results(store)}
    assert rows["mean_logit"].ci_low < rows["mean_logit"].value < rows["mean_logit"].ci_high
    # The bootstrap interval of an accuracy is close to the exact one.
    assert rows["accuracy"].ci_low == pytest.approx(rows["top1"].ci_low, abs=2.5)
    assert rows["accuracy"].ci_high == pytest.approx(rows["top1"].ci_high, abs=2.5)


def test_provenance_says_what_computed_a_result(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_b"], ["tiny"])
    evaluation = completed(store, "tiny_b", "tiny")
    assert evaluation.provenance.versions["torch"] == torch.__version__.split("+")[0]
    assert "mean=(0.5, 0.4, 0.3)" in evaluation.provenance.normalization
    assert len(evaluation.weights_sha256) == len(evaluation.logits_sha256) == 64
    assert evaluation.images_per_second > 0
    assert evaluation.provenance.other["batch_size"] == 16


def test_provenance_tells_the_constants_of_a_corruption(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny.motion_blur"])
    told = completed(store, "tiny_a", "tiny.motion_blur").provenance.other["perturbation"]
    # Pictures of 8 pixels take what make_cifar_c.py of hendrycks/robustness has at severity 3.
    assert told == "motion_blur, severity 3, constants for 32 pixels (radius=6, sigma=2)"


def test_rerun_does_nothing(tmp_path):
    tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
    assert not report.worked
    assert {p.action for p in report.plan.pairs} == {"done"}


def test_overwrite_runs_again_and_derived_results_follow(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
    first = completed(store, "tiny_a", "tiny")
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], overwrite=True)
    second = completed(store, "tiny_a", "tiny")
    assert second.id != first.id
    assert completed(store, "tiny_a", "tiny-even").derived_from_id == second.id
    assert not (store.folder / first.logits_path).exists()
    assert second.logits_sha256 == first.logits_sha256


def test_result_derived_from_an_older_version_is_derived_again(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
    import sqlalchemy as sa

    with store.writing() as connection:  # as if both had been made from version 0 of `tiny`
        connection.execute(
            sa.update(schema.eval_settings).where(schema.eval_settings.c.name == "tiny").values(version=0)
        )
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny-even"])
    assert [p.setting.name for p in report.outcome.completed] == ["tiny"]
    assert [p.setting.name for p in report.outcome.derived] == ["tiny-even"]
    parent = completed(store, "tiny_a", "tiny-even").derived_from_id
    assert evaluation_by_id(store, parent).version == 1


@pytest.mark.parametrize(
    ("less", "reason"),
    [({"logits_dtype": "float16"}, "stored in float16"), ({"amp": "bf16"}, "computed in bfloat16")],
)
def test_less_precise_result_is_made_again_when_more_is_asked_for_and_not_the_other_way(tmp_path, less, reason):
    kept = {name: value for name, value in less.items() if name != "amp"}
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even", "tiny-some"], **kept)
    if "amp" in less:  # not every processor has it
        with store.writing() as connection:
            connection.execute(schema.evaluations.update().values(dtype="bfloat16"))
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny-even"])
    assert {(p.setting.name, p.reason) for p in report.plan.having("run")} == {("tiny", reason)}
    # What nobody asked for is derived again too: it would go with the logits it came from.
    assert [p.setting.name for p in report.outcome.derived] == ["tiny-even", "tiny-some"]
    expected, _ = reference_logits(1)
    np.testing.assert_allclose(tiny.logits(store, "tiny_a", "tiny-some"), expected[[7, 3, 3, 11]], atol=1e-4)
    for options in ({}, less):
        report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"], **options)
        assert not report.worked


def saved(path, label):
    """A checkpoint for tiny_a with which it always says `label`."""
    path.parent.mkdir(exist_ok=True)
    torch.save({"1.weight": torch.zeros(10, 192), "1.bias": torch.eye(10)[label]}, path)
    return str(path)


def test_checkpoints_of_one_name_are_told_apart_by_their_content(tmp_path):
    a, b = (saved(tmp_path / run / "best.pth.tar", label) for run, label in (("runA", 1), ("runB", 2)))
    names = []
    for checkpoint in (a, b, a, b):
        report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], checkpoint=checkpoint)
        names.append(report.plan.pairs[0].stored_model)
        assert report.worked == (len(names) <= 2)
        assert tiny.logits(store, names[-1], "tiny")[0].argmax() == (1 if checkpoint == a else 2)
    digest = hashlib.sha256((tmp_path / "runB/best.pth.tar").read_bytes()).hexdigest()
    assert names == ["tiny_a@best", f"tiny_a@best-{digest[:8]}"] * 2
    assert report.plan.notes == [f"{b} is not the file that tiny_a@best was run with: it goes under {names[1]}"]


def test_checkpoint_is_not_hashed_before_there_is_a_result_to_tell_it_from(tmp_path, monkeypatch):
    from testbed.data import writing

    hashed, real = [], writing.sha256_of
    monkeypatch.setattr(writing, "sha256_of", lambda path: (hashed.append(path.name), real(path))[1])
    checkpoint = saved(tmp_path / "best.pth", 1)
    tiny.run(tmp_path, ["tiny_a"], ["tiny"], checkpoint=checkpoint)
    assert "best.pth" not in hashed
    tiny.run(tmp_path, ["tiny_a"], ["tiny"], checkpoint=checkpoint)
    assert hashed.count("best.pth") == 1


def test_plan_of_many_pairs_is_made_in_linear_time(tmp_path):
    """400 settings derived from one, for 50 models: each looks for its parent once."""
    from testbed import EvalSetting, Model
    from testbed.engine.plan import make_plan
    from testbed.entries.registry import Registry
    from testbed.options import RunOptions
    from testbed.store.opening import open_store

    registry = Registry()
    registry.load_folder(tiny.REGISTRY)
    for i in range(400):
        registry.eval_settings.add(EvalSetting(name=f"child-{i}", logits_from="tiny", class_sublist=[i % 10]), "here")
    for i in range(50):
        registry.models.add(Model(f"model-{i}", None, lambda: None, 1), "here")
    store = open_store(str(tmp_path / "results.db"), create=True)
    plan = make_plan(registry, store, ["model-*"], ["child-*"], RunOptions())
    assert len(plan.having("derive")) == 20_000
    assert len(plan.having("run")) == 50
    parent = plan.having("run")[7]
    assert [p.stored_model for p in plan.children_of(parent)] == ["model-7"] * 400


def test_a_sublist_of_a_sublist_is_the_same_run_directly_and_derived(tmp_path):
    """The votes of tiny_votes are counted among the sublist's classes, so its settings are run, not derived."""
    report, store = tiny.run(tmp_path, ["tiny_votes", "tiny_a"], ["tiny-some-even"])
    assert not report.failed
    assert (
        tiny.logits(store, "tiny_votes", "tiny-some-even").shape == tiny.logits(store, "tiny_a", "tiny-some-even").shape
    )
    found = {m: stored_outputs(store, completed(store, m, s)).rows for m, s in (("tiny_votes", "tiny-some-even"),)}
    _, targets = reference_logits(1)
    taken = [i for i in range(200) if targets[i] in (2, 0)]  # classes 1 and 0 of (0, 2, 4, 6, 8)
    np.testing.assert_array_equal(found["tiny_votes"].indices, taken)


def test_models_of_a_group_get_perturbed_images_that_were_made_once(tmp_path, monkeypatch):
    """Three models perturb each image once, and get what they would get alone."""
    from testbed.engine import pictures as images

    made = []

    def counted(seed, key, image_id):
        made.append((key, image_id))
        return image_generator(seed, key, image_id)

    image_generator = images.image_generator
    monkeypatch.setattr(images, "image_generator", counted)
    _, together = tiny.run(tmp_path / "together", ["tiny_a", "tiny_b", "tiny_slow"], ["tiny.noise"])
    assert len(made) == len(set(made)) == 200
    for model in ("tiny_a", "tiny_b"):
        _, alone = tiny.run(tmp_path / model, [model], ["tiny.noise"])
        np.testing.assert_array_equal(
            tiny.logits(alone, model, "tiny.noise"), tiny.logits(together, model, "tiny.noise")
        )
    assert len(made) == 600


def test_a_sublist_takes_the_same_images_and_labels_run_directly_and_derived(tmp_path):
    """Own labels, a class sublist and a metric of one's own: tiny_votes runs it, tiny_a derives it."""
    import testbed
    from testbed.metrics.labels import OWN, targets_are

    images, labels = _data()

    def mean_label(logits, targets):
        return {"mean_label": float(targets.mean()), "images": float(len(targets))}

    dataset = testbed.ArrayDataset(make=lambda: (images, labels), num_classes=10)
    base = testbed.EvalSetting(name="base", dataset=dataset)
    for declared, expected in (
        (None, {"mean_label": 0.5, "images": 40.0}),
        (OWN, {"mean_label": 4.5, "images": 200.0}),
    ):
        metric = mean_label if declared is None else targets_are(declared)(mean_label)
        child = testbed.EvalSetting(name="child", logits_from="base", class_sublist=(7, 2), metrics_fn=metric)
        registry = tiny_registry()
        for setting in (base, child):
            registry.eval_settings.add(setting, "here")
        measured = {
            model: evaluated_in(tmp_path / str(declared) / model, registry, model, ["base", "child"])
            for model in ("tiny_votes", "tiny_a")
        }
        assert measured["tiny_votes"] == measured["tiny_a"] == expected


def tiny_registry():
    from testbed.entries.registry import Registry

    registry = Registry()
    registry.load_folder(tiny.REGISTRY)
    return registry


def evaluated_in(folder, registry, model, settings):
    """What is measured of the last of the settings."""
    from testbed.engine.run import run_evaluations
    from testbed.options import RunOptions
    from testbed.store.opening import open_store

    store = open_store(str(folder / "results.db"), create=True)
    options = RunOptions(cache_folder=str(folder / "cache"))
    report = run_evaluations(registry, store, [model], settings, options, ["cpu"], inline=True, quiet=True)
    assert not report.failed
    return {n.metric: n.value for n in results(store, eval_settings=[settings[-1]])}
