"""Classifiers small enough to be run hundreds of times, among them all that can go wrong."""

import os
import time
from pathlib import Path

from testbed.classify import smoothed

from testbed import Model, StandardNormalization, StandardTransform, registry


def _linear(seed, classes=10, bias_seed=None):
    import torch

    generator = torch.Generator().manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, classes))
    network[1].weight.data = torch.randn(classes, 192, generator=generator)
    network[1].bias.data = torch.randn(classes, generator=generator)
    return network


def _add(name, load=lambda: _linear(1), transform=None, **more):
    registry.add_model(Model(name=name, transform=transform, classifier_loader=load, eval_batch_size=16, **more))


_add("tiny_a", tags=["tiny"], arch="linear")
_add(
    "tiny_b",
    lambda: _linear(2),
    tags=["tiny"],
    normalization=StandardNormalization(mean=[0.5, 0.4, 0.3], std=[0.2, 0.2, 0.2], input_space="BGR"),
)
_add("tiny_pictures", lambda: _linear(4, classes=3), StandardTransform(8, 8))
_add("tiny_wide", lambda: _linear(3, classes=1000))


def _unloadable():
    raise RuntimeError("no such weights")


_add("tiny_unloadable", _unloadable)


def _raising(images, model):
    raise ZeroDivisionError("this classifier always fails")


_add("tiny_raises", classify=_raising)


def _nan(images, model):
    logits = model(images)
    logits[images.flatten(1).sum(1).argmax()] = float("nan")
    return logits


_add("tiny_nan", classify=_nan)


def _greedy(images, model):
    import torch

    if len(images) > 4:
        raise torch.OutOfMemoryError("tried to allocate more than there is")
    return model(images)


_add("tiny_greedy", classify=_greedy)


def _hungry(images, model):
    """Asks for more than there is, as torch on a CPU is asked by a batch that is too large."""
    import torch

    if len(images) > 4:
        torch.empty(2**50)
    return model(images)


_add("tiny_hungry", classify=_hungry)


def _slow(images, model):
    time.sleep(0.05)
    return model(images)


_add("tiny_slow", classify=_slow)


def _patient(images, model):
    """Waits until the marker file is there."""
    while not Path(os.environ["TINY_MARKER"]).exists():
        time.sleep(0.02)
    return model(images)


_add("tiny_patient", classify=_patient)


def _deadly(images, model):
    """Kills its process once, unless the marker file says that it has done so."""
    import signal

    marker = Path(os.environ["TINY_MARKER"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return model(images)


_add("tiny_deadly", classify=_deadly)


def _always_deadly(images, model):
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


_add("tiny_always_deadly", classify=_always_deadly)


def _once(then):
    """Does something on its first call, unless the marker file says that it was done."""

    def classify(images, model):
        marker = Path(os.environ["TINY_MARKER"])
        if not marker.exists():
            marker.touch()
            then()
        return model(images)

    return classify


def _sleep():
    time.sleep(3600)


def _stop():
    import signal

    os.kill(os.getpid(), signal.SIGSTOP)


_add("tiny_hangs", classify=_once(_sleep))
_add("tiny_stops", classify=_once(_stop))
_add("tiny_always_hangs", classify=lambda images, model: _sleep())
_add("tiny_never_loaded", _sleep)


def _votes(images, model, class_sublist):
    """Counts among the sublist's classes only, as smoothed classifiers do."""
    logits = model(images)
    return logits if class_sublist is None else logits[:, list(class_sublist)] * 2


_add("tiny_votes", classify=_votes)


def _self_attacked(images, model, adversarial_attack):
    return model(images) if adversarial_attack is None else -model(images)


_add("tiny_self_attacked", classify=_self_attacked)


def _random(images, model):
    import torch

    return model(images) + torch.randn(len(images), 10)


_add("tiny_random", classify=_random)
_add("tiny_smoothed", classify=smoothed(0.1, votes=20, batch=64))
_add("tiny_draws", classify=lambda images, model, rng: rng.normal((10,)))
