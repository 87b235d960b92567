"""Random tensors of a batch: their distributions, and that nothing but seed, setting and image id changes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from testbed.perturb import seeding
from testbed.perturb.philox import by_tensors
from testbed.perturb.seeding import BatchRandom, GeneratorRandom, Random, SharedRandom, image_generator, image_key

IDS = ("a", "b", "c", "d", "e")
MANY = 40_000


def random(ids: tuple[str, ...] = IDS, seed: int = 0, key: str = "key", device: str = "cpu") -> BatchRandom:
    return BatchRandom(seed, key, ids, device)


# By name: one draw of each kind, with the images as its first axis.
DRAWS: dict[str, Callable[..., torch.Tensor]] = {
    "normal": lambda rng, **how: rng.normal((3, 7), **how),
    "uniform": lambda rng, **how: rng.uniform(-2, 5, (3, 7), **how),
    "share": lambda rng, **how: rng.uniform(0, 1, (), **how),
    "integers": lambda rng, **how: rng.integers(-3, 40, (2, 5), **how),
    "permutation": lambda rng, **how: rng.permutation(11, **how),
}


# ---- distributions -------------------------------------------------------------------------------------------------


def test_normal_numbers_are_normal() -> None:
    drawn = random().normal((MANY,))
    assert drawn.dtype == torch.float32
    for one in drawn.numpy():
        assert stats.kstest(one, "norm").pvalue > 0.001
        halves = one[: MANY // 2], one[MANY // 2 :]  # made of the same radii
        for pair in (halves, np.abs(halves)):
            assert abs(stats.pearsonr(*pair).statistic) < 5 / np.sqrt(MANY / 2)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 4.5), (0, 2 * np.pi)])
def test_uniform_numbers_fill_their_range(low: float, high: float) -> None:
    drawn = random().uniform(low, high, (MANY,))
    assert drawn.dtype == torch.float32
    assert low <= drawn.min()
    assert drawn.max() <= high
    for one in drawn.numpy():
        assert stats.kstest(one, "uniform", (low, high - low)).pvalue > 0.001


def test_uniform_numbers_stay_below_one() -> None:
    most = random(tuple(map(str, range(200)))).uniform(0, 1, (20_000,))
    assert 0 <= most.min() < 1e-6
    assert 1 - 1e-6 < most.max() < 1


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-256, 256), (4, 7), (0, 21)])
def test_integers_are_equally_likely(low: int, high: int) -> None:
    drawn = random().integers(low, high, (MANY,))
    assert drawn.dtype == torch.int64
    for one in drawn.numpy():
        assert stats.chisquare(np.bincount(one - low, minlength=high - low)).pvalue > 0.001
        assert one.min() >= low
        assert one.max() < high


def test_permutations_are_equally_likely() -> None:
    many = random(tuple(map(str, range(6000))))
    drawn = many.permutation(4).numpy()
    assert (np.sort(drawn) == np.arange(4)).all()
    counts = np.unique(drawn @ [64, 16, 4, 1], return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 0.001


def test_a_long_permutation_has_every_number_once() -> None:
    assert torch.equal(random().permutation(256).sort().values, torch.arange(256).expand(5, -1))


def test_draws_of_a_batch_do_not_depend_on_each_other() -> None:
    rng = random()
    first, second = rng.uniform(0, 1, (MANY,)), rng.uniform(0, 1, (MANY,))
    rows = torch.cat([first, second]).numpy()
    others = np.abs(np.corrcoef(rows) - np.eye(10))
    assert others.max() < 5 / np.sqrt(MANY)


# ---- what they depend on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWS)
def test_image_has_the_same_numbers_in_any_batch(name: str) -> None:
    batch = random()
    together = [DRAWS[name](batch) for _ in range(3)]
    for place, image_id in enumerate(IDS):
        alone = random((image_id,))
        for drawn in together:
            assert torch.equal(DRAWS[name](alone), drawn[place : place + 1])


@pytest.mark.parametrize("name", DRAWS)
def test_draw_before_does_not_shift_the_next(name: str) -> None:
    short, long = random(), random()
    short.uniform(0, 1, (1,)), long.normal((100, 3))
    assert torch.equal(DRAWS[name](short), DRAWS[name](long))


@pytest.mark.parametrize("name", DRAWS)
def test_seed_setting_and_image_change_the_numbers(name: str) -> None:
    usual = DRAWS[name](random(("a", "b")))
    assert not torch.equal(usual[0], usual[1])
    for other in (random(("a", "b"), seed=1), random(("a", "b"), key="another"), random(("b", "a"))):
        assert not torch.equal(DRAWS[name](other), usual)
    rng = random(("a", "b"))
    assert not torch.equal(DRAWS[name](rng), DRAWS[name](rng))


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_for_the_host_are_those_of_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is the CPU here, with the program of other devices."""
    for_host = DRAWS[name](random(), on_host=True)
    assert for_host.device.type == "cpu"
    assert torch.equal(DRAWS[name](random()), for_host)
    monkeypatch.setattr(seeding, "random_bits", by_tensors)
    assert torch.equal(DRAWS[name](random()), for_host)


@pytest.mark.parametrize("name", DRAWS)
def test_shared_numbers_are_the_same_for_all_images(name: str) -> None:
    shared = DRAWS[name](SharedRandom(0, "key", 4, "cpu"))
    assert len(shared) == 4
    assert torch.equal(shared, DRAWS[name](random(("",))).expand_as(shared))
    assert torch.equal(shared[:2], DRAWS[name](SharedRandom(0, "key", 2, "cpu")))


def test_numpy_generator_of_an_image_has_its_key() -> None:
    key = image_key(3, "setting", "image")
    assert 0 <= key < 2**128
    expected = np.random.Generator(np.random.Philox(key=key)).random(5)
    np.testing.assert_array_equal(image_generator(3, "setting", "image").random(5), expected)


def words(own: np.random.Generator) -> np.ndarray:
    return own.bit_generator.random_raw(1000)


def test_generators_of_a_batch_are_the_same_in_any_batch() -> None:
    batch = random()
    together = [batch.each(words), batch.each(words)]
    for place, image_id in enumerate(IDS):
        alone = random((image_id,))
        for drawn in together:
            np.testing.assert_array_equal(alone.each(words)[0], drawn[place])


def test_generators_of_a_batch_share_no_bits_with_each_other_or_with_tensors() -> None:
    rng = random()
    drawn = [
        *rng.each(words),
        *rng.bits((2000,)).numpy().view(np.uint64),
        *rng.each(words),
        words(image_generator(0, "key", "a")),
    ]
    assert len(np.unique(drawn)) == 1000 * len(drawn)


def test_shared_generators_are_the_same_for_all_images() -> None:
    one, *others = SharedRandom(0, "key", 4, "cpu").each(words)
    assert len(others) == 3
    for other in others:
        np.testing.assert_array_equal(one, other)


def test_image_ids_need_not_be_unicode() -> None:
    assert image_key(0, "key", "picture\udcff.png") != image_key(0, "key", "picture.png")


# ---- one picture, with a generator of NumPy --------------------------------------------------------------------------


def test_generator_random_draws_as_numpy_does() -> None:
    rng: Random = GeneratorRandom(np.random.default_rng(7))
    own = np.random.default_rng(7)
    pairs = [
        (rng.uniform(-2, 3, (2, 3)), own.uniform(-2, 3, (2, 3)).astype(np.float32)),
        (rng.uniform(0, 1, ()), np.float32(own.uniform(0, 1))),
        (rng.normal((4,)), own.standard_normal(4, dtype=np.float32)),
        (rng.integers(3, 90, (5,), on_host=True), own.integers(3, 90, 5)),
        (rng.permutation(6), own.permutation(6)),
    ]
    for found, expected in pairs:
        assert found.shape == (1, *np.shape(expected))
        np.testing.assert_array_equal(found[0].numpy(), expected)
