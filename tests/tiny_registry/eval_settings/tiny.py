"""Settings over 200 random pictures of 8 x 8 pixels."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from testbed import ArrayDataset, EvalSetting, StandardDataset, StandardTransform, registry
from testbed.perturb.corruptions import corruption


def tiny_images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (200, 8, 8, 3), dtype=np.uint8), np.arange(200) % 10


_TINY = ArrayDataset(make=tiny_images, num_classes=10)


def _noise(image, rng):
    import torch

    return (image + torch.from_numpy(rng.normal(0, 0.2, tuple(image.shape)).astype("float32"))).clamp(0, 1)


def _deadly_once(image, rng):
    """Kills its process once, unless the marker file says that it has done so."""
    marker = Path(os.environ["TINY_MARKER"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _noise(image, rng)


def _hangs_once(image, rng):
    marker = Path(os.environ["TINY_MARKER"])
    if not marker.exists():
        marker.touch()
        time.sleep(3600)
    return _noise(image, rng)


def _hungry_once(image, rng):
    marker = Path(os.environ["TINY_MARKER"])
    if not marker.exists():
        marker.touch()
        np.ones(2**50)
    return _noise(image, rng)


def _always_deadly(image):
    os.kill(os.getpid(), signal.SIGKILL)


def _raises(image):
    raise ZeroDivisionError("this perturbation always fails")


def _batch_noise(images, model, rng):
    return (images + 0.2 * rng.normal(images.shape[1:])).clamp(0, 1)


def _negative(images, model):
    return 1 - images


def _mean_logit(logits, targets):
    return {"mean_logit": float(np.mean(logits)), "accuracy": 100 * float(np.mean(logits.argmax(1) == targets))}


def _bad_metric(logits, targets):
    return 1 / 0


def _patient_metric(logits, targets):
    """Takes an hour on its first call, unless the marker file says that it was called."""
    marker = Path(os.environ["TINY_MARKER"])
    if not marker.exists():
        marker.touch()
        time.sleep(3600)
    return {"n": len(logits)}


def _features(images, model):
    return {"brightness": images.mean(dim=(1, 2, 3)), "argmax": model(images).argmax(1)}


for _setting in (
    EvalSetting(name="tiny", dataset=_TINY, size=200, tags=["tiny"]),
    EvalSetting(name="tiny.noise", dataset=_TINY, perturbation_fn_cpu=_noise, size=200),
    EvalSetting(name="picture-deadly", dataset=_TINY, perturbation_fn_cpu=_deadly_once, noise_from="tiny.noise"),
    EvalSetting(name="picture-hangs", dataset=_TINY, perturbation_fn_cpu=_hangs_once, noise_from="tiny.noise"),
    EvalSetting(name="picture-hungry", dataset=_TINY, perturbation_fn_cpu=_hungry_once, noise_from="tiny.noise"),
    EvalSetting(name="picture-always-deadly", dataset=_TINY, perturbation_fn_cpu=_always_deadly),
    EvalSetting(name="picture-raises", dataset=_TINY, perturbation_fn_cpu=_raises),
    EvalSetting(name="tiny.noise-some", logits_from="tiny.noise", idx_subsample_list=(7, 3, 3, 11)),
    EvalSetting(name="tiny.motion_blur", dataset=_TINY, perturbation_fn_cpu=corruption("motion_blur", 3)),
    EvalSetting(name="tiny.batch_noise", dataset=_TINY, perturbation_fn_gpu=_batch_noise),
    EvalSetting(name="tiny.attack", dataset=_TINY, perturbation_fn_gpu=_negative, adversarial_attack={"eps": 1}),
    EvalSetting(name="tiny-even", logits_from="tiny", class_sublist=(0, 2, 4, 6, 8), size=100),
    EvalSetting(name="tiny-some", logits_from="tiny", idx_subsample_list=(7, 3, 3, 11)),
    EvalSetting(name="tiny-some-even", logits_from="tiny-even", class_sublist=(1, 0)),
    EvalSetting(name="tiny-size", dataset=_TINY, size=201),
    EvalSetting(name="tiny-metric", dataset=_TINY, metrics_fn=_mean_logit),
    EvalSetting(name="tiny-bad-metric", dataset=_TINY, metrics_fn=_bad_metric),
    EvalSetting(name="tiny-patient-metric", dataset=_TINY, metrics_fn=_patient_metric),
    EvalSetting(name="tiny-probe", dataset=_TINY, probe=_features),
    EvalSetting(name="tiny-missing", dataset=StandardDataset(name="no-such-set", source="ask its authors")),
    EvalSetting(
        name="tiny-folder", dataset=StandardDataset(name="folder"), transform=StandardTransform(8, 8), tags=["files"]
    ),
):
    registry.add_eval_setting(_setting)

registry.add_group("tiny-group", ["tiny", "tiny.*"])
