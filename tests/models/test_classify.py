"""Ready-made classify functions, against what their papers say of models where the answer is known."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

import tiny
from testbed.entries.functions import argument_names
from testbed.errors import EntryError
from testbed.models.classify import flip_averaged, smoothed
from testbed.perturb.attacks import projected_gradient_descent
from testbed.perturb.seeding import BatchRandom, SharedRandom

IDS = [f"image {i}" for i in range(6)]
IMAGES = torch.from_numpy(np.random.default_rng(1).uniform(0, 1, (6, 3, 4, 4)).astype("float32"))
WEIGHT = torch.from_numpy(np.random.default_rng(2).normal(0, 1, (3, 4, 4)).astype("float32"))


def random_numbers(ids=IDS):
    return BatchRandom(0, "test", ids, "cpu")


def linear(images):
    """Two classes, the second where the pixels weigh more than they do on average."""
    margin = ((images - 0.5) * WEIGHT).sum(dim=(1, 2, 3))
    return torch.stack([torch.zeros_like(margin), margin], dim=1)


def test_votes_on_a_linear_classifier_are_its_gaussian_tail():
    # Cohen et al. 2019 on linear classifiers of two classes: P(f(x + e) = 1) = Phi(margin / (sigma |w|)).
    sigma, votes = 0.5, 2000
    counts = smoothed(sigma, votes)(IMAGES, linear, None, random_numbers())
    expected = norm.cdf(linear(IMAGES)[:, 1].numpy() / (sigma * WEIGHT.norm().item()))
    assert counts.sum(dim=1).tolist() == [votes] * 6
    assert np.abs(counts[:, 1].numpy() / votes - expected).max() < 4 * 0.5 / votes**0.5  # four standard errors
    assert np.ptp(expected) > 0.3  # the six pictures differ


def test_noise_counts_in_pixels_before_the_normalisation():
    mean, std = torch.full((3, 1, 1), 0.4), torch.tensor([0.2, 0.3, 0.1]).view(3, 1, 1)

    def normalised_linear(images):
        return linear(images * std + mean)

    plain = smoothed(0.5, 50)(IMAGES, linear, None, random_numbers())
    within = smoothed(0.5, 50, std=std.flatten())((IMAGES - mean) / std, normalised_linear, None, random_numbers())
    torch.testing.assert_close(plain, within)


def test_votes_depend_neither_on_the_batch_nor_on_who_else_is_in_it():
    together = smoothed(0.5, 37, batch=1000)(IMAGES, linear, None, random_numbers())
    in_sevens = smoothed(0.5, 37, batch=42)(IMAGES, linear, None, random_numbers())
    alone = [
        smoothed(0.5, 37, batch=5)(IMAGES[i : i + 1], linear, None, random_numbers(IDS[i : i + 1])) for i in (3, 5)
    ]
    assert torch.equal(together, in_sevens)
    assert torch.equal(together[[3, 5]], torch.cat(alone))


def test_only_the_sublists_classes_are_voted_on():
    def three(images):
        return torch.cat([linear(images), torch.full((len(images), 1), 100.0)], dim=1)

    everybody = smoothed(0.5, 20)(IMAGES, three, None, random_numbers())
    assert everybody[:, 2].tolist() == [20] * 6
    two = smoothed(0.5, 20)(IMAGES, three, (1, 0), random_numbers())
    assert torch.equal(two.flip(1), smoothed(0.5, 20)(IMAGES, linear, None, random_numbers()))


def test_gradient_is_that_of_the_mean_probability():
    inputs = IMAGES.clone().requires_grad_()
    log_probabilities = smoothed(0.5, gradient_draws=4)(inputs, linear, None, random_numbers())
    (gradient,) = torch.autograd.grad(log_probabilities[:, 1].sum(), inputs)
    # d/dx log mean_k s(m_k) = w * mean_k s(m_k) (1 - s(m_k)) / mean_k s(m_k), with m_k the margin under noise k.
    drawn = random_numbers()
    noisy = IMAGES[:, None] + 0.5 * torch.stack([drawn.normal((3, 4, 4)) for _ in range(4)], dim=1)
    sure = torch.sigmoid(linear(noisy.flatten(0, 1))[:, 1]).view(6, 4)
    factor = (sure * (1 - sure)).mean(dim=1) / sure.mean(dim=1)
    torch.testing.assert_close(gradient, factor.view(6, 1, 1, 1) * WEIGHT)


def test_attack_goes_through_the_smoothed_classifier():
    classify = smoothed(0.1, 50)

    def model(images):
        return classify(images, linear, None, SharedRandom(0, "test", len(images), "cpu"))

    targets = linear(IMAGES).argmax(dim=1)
    attack = projected_gradient_descent("l2", eps=4, step=0.7, steps=10)
    with torch.no_grad():
        assert (model(IMAGES).argmax(1) == targets).all()
        attacked = attack(IMAGES, model, targets, random_numbers())
        assert (model(attacked).argmax(1) != targets).all()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ({"sigma": 0}, "sigma must be above 0, got 0"),
        ({"sigma": 1, "votes": 0}, "votes must be at least 1, got 0"),
        ({"sigma": 1, "std": (0.2, 0, 0.2)}, r"std\[1\] must be above 0, got 0"),
    ],
)
def test_impossible_smoothing_is_refused(words, answer):
    with pytest.raises(EntryError, match=answer):
        smoothed(**words)


def test_flip_averaged_answers_a_mirror_image_alike():
    classify = flip_averaged()
    assert argument_names(classify, "classify", "test") == {"images", "model"}
    found = classify(IMAGES, linear)
    torch.testing.assert_close(found, (linear(IMAGES) + linear(IMAGES.flip(3))) / 2)
    torch.testing.assert_close(classify(IMAGES.flip(3), linear), found)


# ---- in the engine ---------------------------------------------------------------------------------------


def test_engine_gives_an_image_the_same_noise_whatever_the_batch(tmp_path):
    found = []
    for folder, size in (("a", 16), ("b", 7)):
        report, store = tiny.run(tmp_path / folder, ["tiny_smoothed"], ["tiny", "tiny-even"], batch_size=size)
        assert not report.failed
        found.append([tiny.logits(store, "tiny_smoothed", s) for s in ("tiny", "tiny-even")])
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)
        assert set(first.sum(axis=1)) == {20.0}
    assert found[0][1].shape == (100, 5)
    assert len(np.unique(found[0][0].max(axis=1))) > 3  # votes are split


def test_classifiers_noise_is_not_the_perturbations(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_draws"], ["tiny.batch_noise"])
    drawn = tiny.logits(store, "tiny_draws", "tiny.batch_noise")[5]
    own, perturbation = (
        BatchRandom(0, key, ["000005"], "cpu").normal((10,))[0].numpy()
        for key in ("tiny.batch_noise|classify", "tiny.batch_noise")
    )
    np.testing.assert_array_equal(drawn, own)
    assert not np.isin(perturbation, own).any()
