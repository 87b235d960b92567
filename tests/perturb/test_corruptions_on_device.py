"""Batched corruptions against those that take one picture: another program for the same pictures."""

import numpy as np
import pytest
import torch

import tiny
from testbed.engine import forward
from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS, corruption
from testbed.perturb.corruptions.on_device import BATCHED
from testbed.perturb.seeding import BatchRandom, image_generator

IDS = ("a", "b", "c")


def pictures(height, width):
    """Smooth shapes with hard edges, and noise on top."""
    rows, columns = np.mgrid[:height, :width]
    rng = np.random.default_rng(0)
    waves = [0.5 + 0.4 * np.sin(rows / (3 + n + c) + columns / (7 - c)) for n in range(len(IDS)) for c in range(3)]
    stack = np.stack(waves).reshape(len(IDS), 3, height, width) + 0.05 * rng.normal(size=(len(IDS), 3, height, width))
    stack[:, :, height // 4 : height // 2, width // 3 :] = 1
    return torch.from_numpy(np.clip(stack, 0, 1).astype(np.float32))


@pytest.mark.parametrize("side", [(32, 32), (64, 57), (150, 224)])
@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("name", sorted(BATCHED))
def test_batch_gives_the_pictures_of_one_at_a_time(name, severity, side):
    images, one = pictures(*side), corruption(name, severity)
    found = one.on_batch(images, BatchRandom(0, "key", IDS, "cpu"))
    expected = torch.stack([one(x, image_generator(0, "key", i)) for x, i in zip(images, IDS, strict=True)])
    assert (expected - images).abs().mean() > 1e-3
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)  # a fortieth of a grey level


def test_others_have_no_batched_form():
    for name in {*CORRUPTIONS, *BAR_CORRUPTIONS} - set(BATCHED):
        assert corruption(name, 1).on_batch is None


def test_worker_perturbs_batches_where_the_device_asks_for_it(tmp_path, monkeypatch):
    used = []

    def on_every_device(setting, device):
        form = setting.perturbation_fn_cpu.on_batch
        return lambda images, rng: used.append(len(images)) or form(images, rng)

    setting = ["tiny.motion_blur"]
    _, usual = tiny.run(tmp_path / "usual", ["tiny_a"], setting)
    monkeypatch.setattr(forward, "batched_form", on_every_device)
    _, batched = tiny.run(tmp_path / "batched", ["tiny_a"], setting)
    assert sum(used) == 200
    a, b = (tiny.logits(store, "tiny_a", *setting) for store in (usual, batched))
    np.testing.assert_allclose(a, b, atol=1e-3)


def test_only_gpus_take_batches():
    from testbed import EvalSetting, StandardDataset

    setting = EvalSetting(
        name="blurred", dataset=StandardDataset(name="x"), perturbation_fn_cpu=corruption("gaussian_blur", 1)
    )
    assert forward.batched_form(setting, torch.device("cpu")) is None
    assert forward.batched_form(setting, torch.device("cuda:0")) is not None
