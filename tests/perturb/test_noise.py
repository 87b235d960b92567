"""The noise of ImageNet-C against the distributions of scipy. Every check is also shown to refuse a wrong one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from testbed.perturb.corruptions.noise import (
    _alias_tables,
    _from_tables,
    gaussian_noise,
    impulse_noise,
    shot_noise,
    speckle_noise,
)
from testbed.perturb.seeding import BatchRandom, GeneratorRandom, Random

SIDE = 512
N_VALUES = 3 * SIDE * SIDE
ENOUGH = 200_000  # for a test of Kolmogorov and Smirnov to tell 5 % apart
AGREES, REFUSED = 1e-3, 1e-9  # probabilities; the seeds are fixed, so that a test that passes does so always


def batch_random() -> Random:
    return BatchRandom(0, "key", ["image"], "cpu")


def generator_random() -> Random:
    return GeneratorRandom(np.random.default_rng(0))


def flat(value: float) -> torch.Tensor:
    return torch.full((1, 3, SIDE, SIDE), value)


# ---- shot noise ------------------------------------------------------------------------------------------------------


def counts_of(value: float, photons: float, rng: Random) -> np.ndarray:
    """How often each count of photons came; the last entry stands for all counts of white."""
    counts = shot_noise(flat(value), rng, photons) * photons
    assert counts.max() <= photons
    whole = counts.round()
    torch.testing.assert_close(counts, whole, rtol=0, atol=1e-3)
    return np.bincount(whole.long().flatten().numpy(), minlength=int(photons) + 1)


def probability(counts: np.ndarray, rate: float) -> float:
    """Of counts as far from a Poisson distribution or further, by a chi-square test; white stands for all above."""
    expected = stats.poisson.pmf(np.arange(len(counts)), rate) * counts.sum()
    expected[-1] = stats.poisson.sf(len(counts) - 2, rate) * counts.sum()
    usual = expected >= 10
    seen = np.append(counts[usual], counts[~usual].sum())
    wanted = np.append(expected[usual], expected[~usual].sum())
    if wanted[-1] < 1:  # what hardly ever comes must hardly ever be seen
        assert seen[-1] <= 10
        seen, wanted = seen[:-1], wanted[:-1]
    if len(wanted) == 1:
        return 1.0
    return float(stats.chisquare(seen, wanted * (seen.sum() / wanted.sum())).pvalue)


GREY_LEVELS = [0, 1, 2, 30, 127, 128, 200, 254, 255]
BETWEEN = [0.0004, 0.0039, 0.1, 0.37, 0.7505, 0.9999]


@pytest.mark.parametrize("photons", [3, 60, 500])
@pytest.mark.parametrize("level", GREY_LEVELS)
def test_shot_noise_of_grey_levels_is_poisson(level: int, photons: float) -> None:
    value = float(np.float32(level) / np.float32(255))
    assert probability(counts_of(value, photons, batch_random()), value * photons) > AGREES


@pytest.mark.parametrize("photons", [3, 60, 500])
@pytest.mark.parametrize("value", BETWEEN)
def test_shot_noise_between_grey_levels_is_poisson(value: float, photons: float) -> None:
    assert value * 255 % 1 > 0.01
    assert probability(counts_of(value, photons, batch_random()), value * photons) > AGREES


@pytest.mark.parametrize("value", [100 / 255, 0.37])
def test_shot_noise_of_a_numpy_generator_is_poisson(value: float) -> None:
    assert probability(counts_of(value, 60, generator_random()), value * 60) > AGREES


@pytest.mark.parametrize("value", [0.1, 100 / 255, 0.7505])
@pytest.mark.parametrize("wrong", [0.98, 1.02])
def test_another_rate_is_refused(value: float, wrong: float) -> None:
    assert probability(counts_of(value, 60, batch_random()), wrong * value * 60) < REFUSED


@pytest.mark.parametrize("photons", [3, 5, 12, 15, 25, 30, 50, 60, 75, 100, 250, 500])
def test_tables_are_poisson_up_to_a_step_of_32_bits(photons: float) -> None:
    table, columns = _alias_tables(torch.device("cpu"), photons)
    entries = table.view(256, columns).numpy().astype(np.int64)
    full = 2**32 // columns
    threshold, other = (entries >> int(np.log2(columns))) + full // 2, entries & (columns - 1)
    assert threshold.min() >= 0
    assert threshold.max() < full
    of_level = np.zeros((256, columns), dtype=np.int64)
    of_level += threshold
    np.add.at(of_level, (np.arange(256)[:, None], other), full - threshold)
    assert (of_level.sum(axis=1) == 2**32).all()
    expected = stats.poisson.pmf(np.arange(columns), np.arange(256)[:, None] / 255 * photons)
    assert np.abs(of_level / 2**32 - expected).max() <= 2**-32


def test_the_threshold_of_a_column_divides_the_bits_exactly() -> None:
    """The last bits below a threshold give the column's own number, the first from it on give the other."""
    table, columns = _alias_tables(torch.device("cpu"), 60)
    entries = table.view(256, columns)[128]
    own, other = torch.arange(columns, dtype=torch.int32), entries & (columns - 1)
    divided = (entries - other > -(2**31)) & (own != other)
    assert divided.sum() > columns // 4
    at_threshold = entries - other + own
    level = torch.full((columns,), 128.0)
    below, above = (_from_tables(level.clone(), at_threshold - step, 60) for step in (columns, 0))
    assert torch.equal(below[divided], own[divided].float())
    assert torch.equal(above[divided], other[divided].float())


def test_shot_noise_of_an_image_is_the_same_beside_one_between_grey_levels() -> None:
    """On the CPU the second draw is left out where no value of the batch needs it."""
    levels = torch.randint(0, 256, (1, 3, 64, 64), generator=torch.Generator().manual_seed(0)) / 255
    alone = shot_noise(levels, BatchRandom(0, "key", ["a"], "cpu"), 60)
    together = shot_noise(torch.cat([levels, levels * 0.99]), BatchRandom(0, "key", ["a", "b"], "cpu"), 60)
    assert torch.equal(alone[0], together[0])
    assert not torch.equal(together[0], together[1])


def test_neighbouring_values_are_drawn_independently() -> None:
    """The column and the threshold come from one draw: no trace of it may be left in the next value."""
    counts = shot_noise(flat(0.5), batch_random(), 60)[0]
    for first, second in ((counts[:, :, :-1], counts[:, :, 1:]), (counts[:-1], counts[1:])):
        found = stats.pearsonr(first.flatten().numpy(), second.flatten().numpy())
        assert found.pvalue > AGREES


# ---- normal noise ----------------------------------------------------------------------------------------------------


def normal_part(corrupt: Callable[..., torch.Tensor], rng: Random, sigma: float) -> np.ndarray:
    """What was added to grey, in units of the standard deviation; sigma is small, so that nothing is clipped."""
    scale = sigma * (0.5 if corrupt is speckle_noise else 1)
    out = corrupt(flat(0.5), rng, sigma)
    assert out.min() > 0
    assert out.max() < 1
    return ((out.double() - 0.5) / scale).flatten()[:ENOUGH].numpy()


@pytest.mark.parametrize("make", [batch_random, generator_random])
@pytest.mark.parametrize("corrupt", [gaussian_noise, speckle_noise])
def test_normal_noise_is_normal(corrupt: Callable[..., torch.Tensor], make: Callable[[], Random]) -> None:
    values = normal_part(corrupt, make(), 0.05)
    assert stats.kstest(values, "norm").pvalue > AGREES
    assert stats.kstest(values * 1.05, "norm").pvalue < REFUSED
    assert stats.kstest(values + 0.05, "norm").pvalue < REFUSED


def test_speckle_noise_is_proportional_to_the_value() -> None:
    bright, dim = (speckle_noise(flat(value), batch_random(), 0.1) for value in (0.5, 0.125))
    torch.testing.assert_close(dim * 4, bright, rtol=0, atol=1e-6)


@pytest.mark.parametrize("corrupt", [gaussian_noise, speckle_noise])
def test_strong_noise_is_clipped(corrupt: Callable[..., torch.Tensor]) -> None:
    out = corrupt(flat(0.9), batch_random(), 0.6)
    assert out.min() == 0
    assert out.max() == 1


# ---- uniform numbers and impulse noise -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [batch_random, generator_random])
def test_uniform_numbers_are_uniform(make: Callable[[], Random]) -> None:
    values = make().uniform(0, 1, (ENOUGH,)).flatten().double().numpy()
    assert stats.kstest(values, "uniform").pvalue > AGREES
    assert stats.kstest(values**1.05, "uniform").pvalue < REFUSED


@pytest.mark.parametrize("amount", [0.03, 0.27])
def test_impulse_noise_replaces_its_share_by_white_and_by_black(amount: float) -> None:
    out = impulse_noise(flat(0.25), batch_random(), amount)
    seen = [int((out == value).sum()) for value in (0.0, 0.25, 1.0)]
    assert sum(seen) == N_VALUES

    def agreement(share: float) -> float:
        wanted = np.array([share / 2, 1 - share, share / 2]) * N_VALUES
        return float(stats.chisquare(seen, wanted).pvalue)

    assert agreement(amount) > AGREES
    assert agreement(amount * 1.06) < REFUSED
