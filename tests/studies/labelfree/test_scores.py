"""Scores and direct estimates against closed forms and other libraries."""

import warnings

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import entropy

from studies.labelfree.cases import outputs, source
from testbed.data.rows import Rows
from testbed.data.samples import UNKNOWN
from testbed.store.outputs import Outputs
from testbed.studies.labelfree import direct, feature_scores, logits_scores
from testbed.studies.labelfree.outputs import LabelFreeError, LabelFreeNote, Source, outputs_from
from testbed.studies.labelfree.scores import METHODS

ON_LOGITS = [m for m in METHODS.values() if m.kind != "pairs" and not m.needs]


def test_every_method_has_one_kind_a_title_and_a_stated_assumption():
    assert {m.kind for m in METHODS.values()} == {"score", "direct", "pairs"}
    for name, method in METHODS.items():
        assert (
            method.name == name and method.title and method.notes and method.function.__module__.startswith("testbed")
        )
        assert method.needs <= {"features", "rotation", "models"}


def test_the_published_baselines_are_there_by_their_names():
    assert {"confscore", "entropy", "atc", "atc-compat", "rotation", "fid"} <= set(METHODS)


def test_methods_take_the_outputs_of_the_store():
    """No arrays of their own: what `outputs_of` gives goes into every method of one model as it is."""
    drawn = outputs(features=4, signal=1.0, seed=2)
    rows = Rows(np.array([f"{i}.png" for i in range(600)]), drawn.targets, np.arange(600))
    extras = {"features": drawn.extras["features"], "rotation": np.zeros((600, 4, 4)), "else": np.zeros((600, 9))}
    stored = Outputs(rows, drawn.logits, extras, "model", n_bad=3)
    clean = Source.of(stored)
    assert isinstance(clean.outputs, Outputs) and isinstance(drawn, Outputs)
    for method in METHODS.values():
        if method.kind != "pairs":
            assert np.isfinite(method.compute(stored, clean)), method.name


def test_outputs_whose_arrays_do_not_fit_are_refused_wherever_they_enter():
    drawn, clean = outputs(), source()
    wrong = Outputs(drawn.rows, drawn.logits, {"rotation": np.zeros((600, 4, 5))})
    for enter in (lambda: Source.of(wrong), lambda: METHODS["rotation"].compute(wrong, clean)):
        with pytest.raises(
            LabelFreeError, match=r"expected rotation logits of shape \(images, 4, 4\), got \(600, 4, 5\)"
        ):
            enter()


def test_without_targets_all_labels_are_unknown():
    blind = outputs_from(outputs().logits)
    assert (blind.targets == UNKNOWN).all() and blind.accuracy is None


# ---- scores ----------------------------------------------------------------------------------------------


def test_confscore_and_entropy_are_those_of_scipy():
    drawn, p = outputs(), softmax(outputs().logits.astype(float), axis=1)
    assert logits_scores.confscore(drawn, source()) == pytest.approx(p.max(1).mean(), rel=1e-9)
    assert logits_scores.entropy(drawn, source()) == pytest.approx(entropy(p, axis=1).mean(), rel=1e-9)


def test_softmax_in_blocks_is_the_softmax_at_once(monkeypatch):
    from testbed.metrics import softmax as blockwise

    logits = outputs().logits
    whole, energy = outputs_from(logits).softmax(0.7), blockwise.log_sum_exp(logits)
    monkeypatch.setattr(blockwise, "_ELEMENTS_AT_ONCE", 3 * logits.shape[1])
    parts = outputs_from(logits)
    for field in ("probabilities", "confidence", "entropy"):
        np.testing.assert_array_equal(getattr(parts.softmax(0.7), field), getattr(whole, field))
    np.testing.assert_array_equal(blockwise.log_sum_exp(logits), energy)
    np.testing.assert_allclose(energy, logsumexp(logits.astype(float), axis=1), rtol=1e-12)


@pytest.mark.parametrize("shape", [(50, 7), (4, 7)])
def test_nuclear_norm_is_that_of_numpy(shape):
    logits = np.random.default_rng(1).normal(size=shape) * 3
    expected = np.linalg.norm(softmax(logits, axis=1), "nuc") / np.sqrt(min(shape) * shape[0])
    assert logits_scores.nuclear_norm(outputs_from(logits), source()) == pytest.approx(expected, rel=1e-5)


def test_nuclear_norm_of_sure_and_balanced_predictions_is_1():
    assert logits_scores.nuclear_norm(outputs_from(100 * np.eye(5)[np.arange(50) % 5]), source()) == pytest.approx(1)


def test_mutual_information_is_entropy_of_the_mean_less_mean_entropy():
    p = softmax(outputs().logits.astype(float), axis=1)
    expected = entropy(p.mean(0)) - entropy(p, axis=1).mean()
    assert logits_scores.mutual_information(outputs(), source()) == pytest.approx(expected, rel=1e-6)


def test_energy_is_the_published_meta_distribution_energy_without_log_n():
    drawn = outputs()
    energies = -logsumexp(drawn.logits.astype(float), axis=1)
    published = np.log(-log_softmax(energies).mean())  # over the images
    assert np.log(np.exp(logits_scores.energy(drawn, source())) + np.log(len(drawn))) == pytest.approx(published)


@pytest.mark.parametrize(("scale", "above"), [(1.0, False), (12.0, True)])
def test_mano_takes_the_softmax_only_where_the_source_is_far_from_uniform(scale, above):
    """One normalisation for all sets of a model, also for those on the other side of the limit."""
    clean = source(scale=scale)
    phi = -log_softmax(clean.outputs.logits.astype(float), axis=1).mean()
    assert (phi > 5) == above
    for of_set in (1.0, 12.0):
        z = outputs(scale=of_set, seed=1).logits.astype(float)
        q = softmax(z, axis=1) if above else 1 + z + z**2 / 2
        q /= q.sum(1, keepdims=True)
        expected = np.linalg.norm(q.ravel(), 4) / q.size**0.25
        assert logits_scores.mano(outputs_from(z), clean) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", [m.name for m in ON_LOGITS])
def test_a_set_twice_over_scores_the_same(name):
    """No score grows with the number of images: fit sets and targets differ in size."""
    once, clean = outputs(signal=1.0, seed=3), source()
    twice = outputs_from(np.tile(once.logits, (2, 1)), np.tile(once.targets, 2))
    assert METHODS[name].compute(twice, clean) == pytest.approx(METHODS[name].compute(once, clean), abs=1e-5)


@pytest.mark.parametrize("method", [m for m in ON_LOGITS if m.name != "atc-compat"], ids=lambda m: m.name)
def test_a_harder_set_scores_on_the_side_that_the_method_says(method):
    clean = source(n=2000)
    hard, easy = (method.compute(outputs(n=2000, signal=s, seed=5), clean) for s in (0.5, 1.8))
    assert hard < easy if method.better == "higher" else hard > easy


# ---- features and rotation -------------------------------------------------------------------------------


def test_fid_is_the_frechet_distance_with_scipys_matrix_root():
    clean, shifted = source(features=6), outputs(features=6, signal=1.0, seed=4)
    a, b = clean.outputs.extras["features"].astype(float), shifted.extras["features"].astype(float)
    cov_a, cov_b = np.cov(a.T), np.cov(b.T)
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(cov_a + cov_b - 2 * np.real(sqrtm(cov_a @ cov_b)))
    assert feature_scores.fid(shifted, clean) == pytest.approx(expected, rel=1e-9)


def test_fid_of_the_source_is_zero_and_of_a_moved_copy_the_square_of_the_way():
    clean = source(features=6)
    moved = outputs_from(clean.outputs.logits, None, clean.outputs.extras["features"].astype(float) + 0.5)
    assert feature_scores.fid(clean.outputs, clean) == pytest.approx(0, abs=1e-9)
    assert feature_scores.fid(moved, clean) == pytest.approx(6 * 0.25)


def frechet(a, b, ridge):
    cov_a, cov_b = (np.cov(x.astype(float).T) + ridge * np.eye(x.shape[1]) for x in (a, b))
    apart = ((a.astype(float).mean(0) - b.astype(float).mean(0)) ** 2).sum()
    return apart + np.trace(cov_a + cov_b - 2 * np.real(sqrtm(cov_a @ cov_b)))


def test_fid_says_that_a_singular_covariance_was_regularised():
    clean = source(features=6)
    drawn = outputs(features=6, seed=2)
    dead = outputs_from(drawn.logits, None, drawn.extras["features"] * [1, 1, 1, 1, 1, 0])
    with pytest.warns(LabelFreeNote, match="1e-06 added"):
        distance = feature_scores.fid(dead, clean)
    assert distance == pytest.approx(frechet(clean.outputs.extras["features"], dead.extras["features"], 1e-6), rel=1e-6)


def test_fid_of_fewer_images_than_features_is_told_and_right():
    clean = source(features=6)
    few = outputs(n=4, features=6, seed=2)
    with pytest.warns(LabelFreeNote, match="no more images than features"):
        distance = feature_scores.fid(few, clean)
    assert distance == pytest.approx(frechet(clean.outputs.extras["features"], few.extras["features"], 1e-12), rel=1e-4)


def test_dispersion_is_the_spread_of_the_means_of_predicted_classes():
    drawn = outputs(features=6)
    mean, total = drawn.extras["features"].astype(float).mean(0), 0.0
    for k in range(5):
        group = drawn.extras["features"][drawn.predictions == k].astype(float)
        total += len(group) * ((group.mean(0) - mean) ** 2).sum()
    assert feature_scores.dispersion(drawn, source()) == pytest.approx(np.log(total / 4 / len(drawn)))


def test_dispersion_of_one_predicted_class_is_a_floor_that_is_told():
    one = outputs_from(np.eye(3)[np.zeros(8, int)], None, np.random.default_rng(0).normal(size=(8, 2)))
    with pytest.warns(LabelFreeNote, match="dispersion"):
        assert np.isfinite(feature_scores.dispersion(one, source()))


def test_rotation_is_the_share_of_wrong_turns():
    head = np.tile(np.eye(4), (3, 1, 1))
    head[0, 2] = [1, 0, 0, 0]  # one of 12 mistaken
    turned = outputs_from(np.zeros((3, 2)), None, None, head)
    assert feature_scores.rotation(turned, source()) == pytest.approx(1 / 12)


# ---- direct estimates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["doc", "doc-ts", "atc-mc", "atc-mc-ts", "atc-ne", "atc-ne-ts"])
def test_the_source_itself_is_estimated_at_its_accuracy(name):
    clean = source(n=997)
    assert METHODS[name].compute(clean.outputs, clean) == pytest.approx(100 * clean.accuracy, abs=1e-9)


def test_atc_threshold_leaves_the_errors_below_and_the_compat_one_the_correct():
    clean = source(n=1000)
    s = clean.outputs.softmax().negative_entropy
    right = round(1000 * clean.accuracy)
    assert 0 < right < 1000
    assert (s < clean.threshold("negative_entropy")).sum() == 1000 - right
    assert (s < clean.compat_threshold).sum() == pytest.approx(right, abs=1)  # float32 entropies there
    assert logits_scores.atc(clean.outputs, clean) == pytest.approx(1 - clean.accuracy)


@pytest.mark.parametrize(("labels", "estimate"), [("right", 100), ("wrong", 0)])
def test_a_perfect_and_a_hopeless_source_have_thresholds(labels, estimate):
    """autoeval_baselines ends in an IndexError at accuracy 1."""
    drawn = outputs()
    targets = drawn.predictions if labels == "right" else (drawn.predictions + 1) % 5
    clean = Source.of(outputs_from(drawn.logits, targets))
    assert METHODS["atc-ne"].compute(drawn, clean) == METHODS["atc-mc"].compute(drawn, clean) == estimate
    assert 0 <= METHODS["atc-compat"].compute(drawn, clean) <= 1


def test_a_calibrated_estimate_reads_the_softmax_at_the_sources_temperature():
    clean, shifted = source(n=2000), outputs(n=2000, signal=1.0, seed=3)
    p = softmax(shifted.logits.astype(float) / clean.temperature, axis=1)
    assert METHODS["ac-ts"].compute(shifted, clean) == pytest.approx(100 * p.max(1).mean())
    # at the temperature of least NLL the confidence of the source is near its accuracy
    assert direct.average_confidence(clean.outputs, clean, clean.temperature) == pytest.approx(
        100 * clean.accuracy, abs=2
    )


def test_estimates_do_not_see_the_targets_of_the_set():
    clean, labelled = source(), outputs(signal=1.0, seed=3)
    blind = outputs_from(labelled.logits)
    for method in ON_LOGITS:
        assert method.compute(blind, clean) == method.compute(labelled, clean), method.name


def test_adding_a_constant_to_the_logits_of_an_image_changes_no_estimate():
    clean, shifted = source(), outputs(signal=1.0, seed=3)
    moved = outputs_from(shifted.logits.astype(float) + np.random.default_rng(0).normal(size=(600, 1)))
    for method in ON_LOGITS:
        if method.name not in ("mano", "energy"):  # both read the size of logits, by definition
            assert method.compute(moved, clean) == pytest.approx(method.compute(shifted, clean), abs=1e-4), method.name


# ---- the source and refusals -----------------------------------------------------------------------------


def test_images_without_a_label_are_no_part_of_the_source():
    drawn = outputs()
    holes = np.where(np.arange(600) < 100, -1, drawn.targets)
    assert Source.of(outputs_from(drawn.logits, holes)).accuracy == pytest.approx(
        Source.of(outputs_from(drawn.logits[100:], drawn.targets[100:])).accuracy
    )


def test_class_prior_is_the_labels_shares_unless_said():
    drawn = outputs()
    assert Source.of(drawn).class_prior == pytest.approx(np.bincount(drawn.targets) / 600)
    assert Source.of(drawn, "uniform").class_prior == pytest.approx([0.2] * 5)
    assert Source.of(drawn, np.array([2.0, 1, 1, 0, 0])).class_prior == pytest.approx([0.5, 0.25, 0.25, 0, 0])


def with_nan_feature():
    drawn = outputs(features=3)
    drawn.extras["features"][7, 1] = np.nan
    return drawn


def test_features_that_a_method_does_not_read_may_hold_anything():
    assert METHODS["confscore"].compute(with_nan_feature(), source()) > 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Source.of(outputs_from(np.zeros((3, 2)))), "source set needs labels"),
        (lambda: Source.of(outputs(), "equal"), "class prior"),
        (lambda: Source.of(outputs(), np.ones(3)), "expected 5 class shares, one per class, got 3"),
        (lambda: Source.of(outputs(), np.array([1, np.inf, 1, 1, 1])), "finite class shares .* from 1 to inf"),
        (lambda: Source.of(outputs(), np.array([1, -1, 1, 1, 1])), "not negative, got numbers from -1 to 1"),
        (lambda: Source.of(outputs_from(np.zeros((2, 2)), np.array([0, 7]))), "below 2 classes, got 7"),
        (lambda: outputs_from(np.zeros(3)), "expected logits of shape"),
        (lambda: outputs_from(np.zeros((3, 2)), np.zeros(4, int)), "expected targets of 3 images"),
        (lambda: outputs_from(np.zeros((3, 2)), features=np.zeros((2, 9))), "expected features of 3 images.* got 2"),
        (lambda: outputs_from(np.zeros((3, 2)), features=np.zeros(3)), r"features of shape .*, got \(3,\)"),
        (lambda: feature_scores.dispersion(outputs(), source()), "expected features of the set, got none"),
        (lambda: METHODS["fid"].compute(outputs(), source(features=3)), "fid needs features"),
        (lambda: METHODS["fid"].compute(outputs(features=4), source(features=3)), "expected 3 features"),
        (lambda: METHODS["fid"].compute(outputs(features=3), source()), "source set has no features"),
        (lambda: METHODS["rotation"].compute(outputs(), source()), "rotation needs rotation"),
        (lambda: METHODS["entropy"].compute(outputs(classes=4), source()), "expected 5 classes"),
        (lambda: METHODS["entropy"].compute(outputs_from(np.full((2, 5), np.nan)), source()), "NaN or infinity for 2"),
        (
            lambda: METHODS["fid"].compute(with_nan_feature(), source(features=3)),
            "finite features, got NaN .* 1 images",
        ),
        (
            lambda: METHODS["fid"].compute(outputs(features=3), Source.of(with_nan_feature())),
            "finite features of the source, got NaN .* row 7",
        ),
        (
            lambda: METHODS["rotation"].compute(
                outputs_from(np.zeros((3, 5)), rotation=np.full((3, 4, 4), np.nan)), source()
            ),
            "finite rotation, got NaN or infinity for 3 images",
        ),
        (lambda: METHODS["gde"].compute(outputs(), source()), "several models"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(make, words):
    with pytest.raises(LabelFreeError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_ordinary_sets_give_no_notes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean = source(features=4)
        for method in METHODS.values():
            if method.kind != "pairs" and "rotation" not in method.needs:
                method.compute(outputs(features=4, signal=1.0, seed=2), clean)
