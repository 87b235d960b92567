"""The filters of the corruptions against scipy and plain loops, in the forms of the CPU and of other devices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import fft, ndimage, stats

from testbed.perturb.corruptions import blur, filters
from testbed.perturb.corruptions.blur import _copied, _mirrored, _steps
from testbed.perturb.corruptions.filters import line_blur, line_kernel, sample, smooth, zoomed
from testbed.perturb.seeding import BatchRandom, GeneratorRandom, Random


def noise(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random(shape, dtype=np.float32))


@pytest.fixture(params=["few entries", "dense"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How matrices are applied: as on the CPU where they have few entries, or as on other devices."""
    narrow = request.param == "few entries"
    monkeypatch.setattr(filters, "_narrow", lambda *_: narrow)
    return request.param


@pytest.mark.parametrize("mode", ["nearest", "reflect"])
@pytest.mark.parametrize("sigma", [0.5, 2.0, 9.0])
@pytest.mark.parametrize("shape", [(2, 3, 40, 57), (2, 40, 57), (40, 57)])
def test_smooth_is_the_gaussian_filter_of_scipy(shape: tuple[int, ...], sigma: float, mode: str, form: str) -> None:
    images = noise(*shape)
    expected = ndimage.gaussian_filter(images.double().numpy(), sigma, mode=mode, truncate=3.0, axes=(-2, -1))
    found = smooth(images, sigma, mode, truncate=3.0)
    assert found.is_contiguous()
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_wide_filters_are_dense_and_narrow_ones_are_not() -> None:
    assert filters._narrow(224, "smoothing", 1.0, "nearest", 4.0)
    assert filters._narrow(224, "clipped_zoom", 1.3)
    assert not filters._narrow(224, "smoothing", 20.0, "nearest", 4.0)


def test_pictures_that_are_not_contiguous_are_filtered_alike(form: str) -> None:
    images = noise(2, 3, 40, 56)
    turned = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    torch.testing.assert_close(smooth(turned, 1.0), smooth(images, 1.0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("factors", [(1.0,), (1.3,), (1.01, 1.05, 1.1, 1.2, 1.31)])
def test_zoomed_is_the_middle_enlarged_by_scipy(factors: tuple[float, ...], form: str) -> None:
    images = noise(2, 3, 40, 57)
    expected = np.zeros(images.shape)
    for factor in factors:
        middle = images.double().numpy()
        for axis in (2, 3):
            side = images.shape[axis]
            kept = int(np.ceil(side / factor))
            start = (side - kept) // 2
            middle = middle.take(range(start, start + kept), axis)
            middle = ndimage.zoom(middle, [factor if axis == i else 1 for i in range(4)], order=1)
            trim = (middle.shape[axis] - side) // 2
            middle = middle.take(range(trim, trim + side), axis)
        expected += middle
    np.testing.assert_allclose(zoomed(images, *factors).numpy(), expected, atol=2e-6)


@pytest.mark.parametrize(("border", "mode"), [("mirror", "mirror"), ("reflect", "reflect"), ("zero", "grid-constant")])
def test_sample_is_linear_interpolation_with_the_border_rules_of_scipy(border: str, mode: str) -> None:
    images, rng = noise(2, 3, 20, 31), np.random.default_rng(1)
    rows, columns = rng.uniform(-50, 70, (2, 24, 17)), rng.uniform(-80, 110, (2, 24, 17))
    found = sample(images, *(torch.from_numpy(a.astype(np.float32)) for a in (rows, columns)), border)
    for n in range(2):
        for c in range(3):
            places = [rows[n].astype(np.float32), columns[n].astype(np.float32)]
            expected = ndimage.map_coordinates(images[n, c].numpy(), places, order=1, mode=mode)
            np.testing.assert_allclose(found[n, c].numpy(), expected, atol=5e-5)


@pytest.mark.parametrize("angle", [-135.0, -90.0, -50.0, -13.0, 0.0, 45.0])
def test_line_blur_adds_up_shifted_copies(angle: float) -> None:
    images = noise(2, 3, 20, 31)
    radius, sigma = 6, 3
    margin = 2 * radius
    angles = [angle, angle / 2]
    found = line_blur(images, radius, sigma, torch.tensor(angles))
    padded = np.pad(images.double().numpy(), ((0, 0), (0, 0), (margin, margin), (margin, margin)), mode="edge")
    expected = np.zeros(images.shape)
    lines = [line_kernel(radius, sigma, one) for one in angles]
    for n, line in enumerate(lines):
        for weight, down, across in zip(*line, strict=True):
            top, left = margin + down, margin + across
            expected[n] += weight * padded[n, :, top : top + 20, left : left + 31]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    by_fourier = filters._lines_by_fourier(images, margin, lines)
    np.testing.assert_allclose(by_fourier.numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("reach", [3, 7, 25])
def test_small_pictures_are_mirrored_as_often_as_needed(reach: int) -> None:
    images = noise(2, 3, 8, 11)
    expected = np.pad(images.numpy(), ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="reflect")
    assert np.array_equal(_mirrored(images, reach).numpy(), expected)


@pytest.mark.parametrize("radius", [0.5, 2.5, 4, 10])
def test_defocus_blur_filters_with_the_disk(radius: float) -> None:
    images = noise(2, 3, 40, 57)
    found = blur.defocus_blur(images, BatchRandom(0, "key", ["a", "b"], "cpu"), radius, 0.5)
    kernel = blur.disk(radius, 0.5)[None, None]
    expected = ndimage.correlate(images.double().numpy(), kernel, mode="mirror").clip(0, 1)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("taps", [3, 5])
def test_defocus_kernel_is_softened_as_by_scipy(taps: int) -> None:
    kernel, soft = noise(17, 21).double().numpy(), np.exp(-((np.arange(taps) - taps // 2) ** 2) / 0.5)
    expected = ndimage.correlate1d(kernel, soft, axis=0, mode="mirror")
    assert np.array_equal(blur._softened(kernel, soft), expected)


def test_fourier_shapes_are_the_fast_lengths_of_scipy() -> None:
    lengths = range(1, 700)
    assert [filters._of_small_primes(n) for n in lengths] == [fft.next_fast_len(n, real=True) for n in lengths]


@pytest.mark.parametrize("reach", [1, 2, 4])
@pytest.mark.parametrize("size", [(24, 31), (8, 8)])
def test_copies_are_those_of_the_published_loop(size: tuple[int, int], reach: int) -> None:
    height, width = size
    own = torch.arange(2 * height * width, dtype=torch.int32).view(2, height, width)
    found = _copied(own, BatchRandom(0, "key", ["a", "b"], "cpu"), reach)
    inner = [max(side - 2 * reach, 0) for side in size]
    steps = _steps(BatchRandom(0, "key", ["a", "b"], "cpu"), reach, inner, width)
    pixels = own.clone().numpy()
    for picture, step in zip(pixels, steps.numpy(), strict=True):
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                neighbour = row * width + column + step[row - reach - 1, column - reach - 1]
                picture[row, column] = picture.flat[neighbour]
    assert np.array_equal(found.view_as(own).numpy(), pixels)


@pytest.mark.parametrize("rng", [BatchRandom(0, "key", ["a"], "cpu"), GeneratorRandom(np.random.default_rng(0))])
@pytest.mark.parametrize("reach", [1, 3, 4])
def test_all_neighbours_within_reach_are_drawn_equally_often(reach: int, rng: Random) -> None:
    steps = _steps(rng, reach, (400, 500), width=1000).flatten().numpy()
    seen = dict(zip(*np.unique(steps, return_counts=True), strict=True))
    near = range(-reach, reach)
    assert set(seen) == {1000 * down + across for down in near for across in near}
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3
