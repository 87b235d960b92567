"""Perturbations of batches: an image does not depend on its batch, and nothing waits for a GPU or mixes devices."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

import tiny
from testbed import EvalSetting, StandardDataset
from testbed.engine import forward
from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS, corruption
from testbed.perturb.corruptions.apply import CPU_ONLY
from testbed.perturb.metaset import OPERATIONS, meta_set, recipe
from testbed.perturb.seeding import BatchRandom, SharedRandom

ALL = CORRUPTIONS + BAR_CORRUPTIONS
META_SETS = (0, 1, 4, 7, 21)
IDS = ("a", "b", "c", "d", "e")

# Sums of these are made by BLAS or an FFT, which may add up in another order for another number of images.
ROUNDED = {"brownish_noise"}


@pytest.fixture(scope="module")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five invented textures of frost."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("frost")
    for number, ending in enumerate(("png", "png", "png", "jpg", "jpg"), 1):
        pixels = np.random.default_rng(number).integers(0, 256, (60, 90, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((450, 300)).save(folder / f"frost{number}.{ending}")
    return folder


@pytest.fixture(autouse=True)
def frost_textures(textures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_FROST", str(textures))


def pictures(height: int, width: int) -> torch.Tensor:
    """Five: smooth shapes with hard edges, and noise on top."""
    rows, columns = np.mgrid[:height, :width]
    rng = np.random.default_rng(0)
    waves = [0.5 + 0.4 * np.sin(rows / (3 + n + c) + columns / (7 - c)) for n in range(len(IDS)) for c in range(3)]
    stack = np.stack(waves).reshape(len(IDS), 3, height, width) + 0.05 * rng.normal(size=(len(IDS), 3, height, width))
    stack[:, :, height // 4 : height // 2, width // 3 :] = 1
    return torch.from_numpy(np.clip(stack, 0, 1).astype(np.float32))


def random(*ids: str) -> BatchRandom:
    return BatchRandom(0, "key", ids or IDS, "cpu")


# ---- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [(32, 32), (65, 57), (96, 128)])
@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", ALL)
def test_image_does_not_depend_on_its_batch(name: str, severity: int, side: tuple[int, int]) -> None:
    images, ours = pictures(*side), corruption(name, severity)
    before = images.clone()
    together = ours.on_batch(images, random())
    assert torch.equal(images, before), "the pictures given were changed"
    assert together.shape == images.shape
    assert together.dtype == torch.float32
    assert together.min() >= 0
    assert together.max() <= 1
    assert (together - images).abs().mean() > 1e-3
    alone = torch.cat([ours.on_batch(images[i : i + 1], random(IDS[i])) for i in range(len(IDS))])
    if name in ROUNDED:
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    else:
        assert torch.equal(together, alone)


@pytest.mark.parametrize("number", META_SETS)
def test_image_of_a_meta_set_does_not_depend_on_its_batch(number: int) -> None:
    images = pictures(32, 40)
    before = images.clone()
    together = meta_set(number).on_batch(images, random())
    assert torch.equal(images, before), "the pictures given were changed"
    alone = [meta_set(number).on_batch(images[i : i + 1], random(IDS[i])) for i in range(len(IDS))]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("name", ALL)
def test_images_without_an_id_get_the_same_noise(name: str) -> None:
    images = pictures(32, 40)[:1].expand(3, -1, -1, -1)
    changed = corruption(name, 3).on_batch(images, SharedRandom(0, "key", 3, "cpu"))
    torch.testing.assert_close(changed, changed[:1].expand_as(changed), rtol=0, atol=1e-6)


# ---- on a GPU, without one -------------------------------------------------------------------------------------------


def _with_values(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    signature = inspect.signature(draw)

    def drawn(*args: Any, **kwargs: Any) -> torch.Tensor:
        with unset_fake_temporarily() if signature.bind(*args, **kwargs).arguments.get("on_host") else nullcontext():
            return draw(*args, **kwargs)

    return drawn


class HostKnows(BatchRandom):
    """What is drawn for the CPU has values, as on a machine with a GPU; what is drawn on the device has none here."""

    normal = _with_values(BatchRandom.normal)
    uniform = _with_values(BatchRandom.uniform)
    integers = _with_values(BatchRandom.integers)
    permutation = _with_values(BatchRandom.permutation)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Fake tensors: those of two devices in one operation raise, and so does what waits for a value of the device.

    What is drawn for the CPU is real, so that tensors that are not fake are allowed, and may become arrays.
    """
    as_array = torch.Tensor.numpy

    def with_values(self: torch.Tensor, *args: Any, **kwargs: Any) -> np.ndarray:
        assert not isinstance(self, FakeTensor), "a tensor without values, as on a device, was turned into an array"
        with unset_fake_temporarily():
            return as_array(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "numpy", with_values)
    _forget()
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield torch.device("cuda")
    _forget()


def _forget() -> None:
    """Empty all caches of tables on a device: fake ones are of no use elsewhere."""
    for name, module in list(sys.modules.items()):
        if name.startswith("testbed.perturb"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def check_on(device: torch.device, perturb: Callable[..., torch.Tensor]) -> None:
    images = torch.rand(len(IDS), 3, 64, 57, device=device)
    for _ in range(2):  # with and without tables in their caches
        changed = perturb(images, HostKnows(0, "key", IDS, device))
        assert changed.device.type == device.type
        assert changed.shape == images.shape
        assert changed.dtype == torch.float32


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", [name for name in ALL if name not in CPU_ONLY])
def test_corruption_stays_on_the_device_and_waits_for_nothing(name: str, severity: int, cuda: torch.device) -> None:
    check_on(cuda, corruption(name, severity).on_batch)


@pytest.mark.parametrize("number", META_SETS)
def test_meta_set_stays_on_the_device_and_waits_for_nothing(number: int, cuda: torch.device) -> None:
    check_on(cuda, meta_set(number).on_batch)


def test_these_meta_sets_use_every_operation() -> None:
    assert {name for number in META_SETS for name in recipe(number)} == set(OPERATIONS)


def test_what_runs_on_the_cpu_is_named_with_its_reason() -> None:
    assert set(CPU_ONLY) < set(ALL)
    assert all(CPU_ONLY.values())
    assert {name for name in ALL if corruption(name, 1).cpu_only} == set(CPU_ONLY)


# ---- in the engine ---------------------------------------------------------------------------------------------------


def test_only_gpus_take_batches_and_only_of_what_runs_there() -> None:
    def form(perturbation: Any, device: str) -> Any:
        setting = EvalSetting(name="s", dataset=StandardDataset(name="x"), perturbation_fn_cpu=perturbation)
        return forward.batched_form(setting, torch.device(device))

    assert form(corruption("gaussian_blur", 1), "cuda:0") is not None
    assert form(meta_set(3), "cuda:0") is not None
    assert form(corruption("gaussian_blur", 1), "cpu") is None
    for name in CPU_ONLY:
        assert form(corruption(name, 1), "cuda:0") is None


def test_worker_perturbs_batches_where_the_device_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def on_every_device(setting: EvalSetting, device: torch.device) -> Callable[..., torch.Tensor]:
        form = setting.perturbation_fn_cpu.on_batch
        return lambda images, rng, **more: used.append(len(images)) or form(images, rng, **more)

    setting = ["tiny.motion_blur"]
    _, usual = tiny.run(tmp_path / "usual", ["tiny_a"], setting)
    monkeypatch.setattr(forward, "batched_form", on_every_device)
    _, batched = tiny.run(tmp_path / "batched", ["tiny_a"], setting)
    assert sum(used) == 200
    a, b = (tiny.logits(store, "tiny_a", *setting) for store in (usual, batched))
    np.testing.assert_allclose(a, b, atol=1e-5)
