"""Training of the rotation head: `predict` gives the features of turned pictures, a linear layer learns the turns.

The recipe is that of the authors of the AutoEval baselines: SGD with Nesterov momentum 0.9, weight decay 1e-4, batches
of 64, learning rate 0.01 and a tenth of it after 8, 14 and 16 of 20 epochs, random crops and flips, one random turn per
picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch.nn import functional

from testbed.engine.batch_norm import load_model
from testbed.engine.predict import predict
from testbed.engine.preparing import LocalPreparer
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import ModelError
from testbed.models.rotation import TURNS, RotationHead, turned
from testbed.options import RunOptions

_BATCH = 64
_RATE, _MOMENTUM, _DECAY = 1e-2, 0.9, 1e-4
_MILESTONES = (8 / 20, 14 / 20, 16 / 20)  # of the epochs: the learning rate falls to a tenth at each


def train_rotation_head(
    model: Model,
    setting: EvalSetting,
    options: RunOptions,
    device: str = "cpu",
    epochs: int = 20,
    seen: Callable[[int, float], None] = lambda images, accuracy: None,
) -> tuple[RotationHead, str | None]:
    """A head for `model` from the images of `setting`, and the checksum of the weights it belongs to.

    `seen(images, accuracy)` is called after each batch with how many more images were used and how many of them were
    told right, in percent. `options.limit` takes fewer images, `options.seed` other random numbers.
    """
    options = replace(options, record=("features",))
    loaded = load_model(model, device, options)
    turns = RandomTurns(torch.Generator().manual_seed(options.seed))
    showing = replace(setting, perturbation_fn_gpu=turns, adversarial_attack=None, probe=None)
    preparer = LocalPreparer(options)
    steps: Stepper | None = None
    try:
        rows = setting.rows(preparer.samples(setting), options.limit)
        for _ in range(epochs):
            order = torch.randperm(len(rows), generator=turns.generator).numpy()
            for outputs in predict([loaded], showing, rows.take(order), options, preparer):
                features = torch.from_numpy(outputs.extras["features"]).to(loaded.device)
                steps = steps or Stepper(_new_head(features.shape[1], options.seed).to(loaded.device), epochs)
                seen(len(outputs), steps.learn(features, turns.take(len(outputs)).to(loaded.device)))
            if steps is not None:
                steps.end_epoch()
    finally:
        preparer.close()
    if steps is None:
        raise ModelError(f"'{setting.name}' has no images to train a rotation head on")
    return steps.head, loaded.weights_sha256


def _new_head(width: int, seed: int) -> RotationHead:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return RotationHead(width)


class RandomTurns:
    """perturbation_fn_gpu of the training: crops, flips and turns each picture, and remembers the turns."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self._waiting = torch.empty(0, dtype=torch.int64)  # quarter turns whose features have not come back yet

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        crops = augmented(images, self.generator)
        labels = torch.randint(TURNS, (len(crops),), generator=self.generator)
        views = torch.stack([turned(crop[None], int(k))[0] for crop, k in zip(crops, labels, strict=True)])
        self._waiting = torch.cat([self._waiting, labels])
        return views

    def take(self, n: int) -> torch.Tensor:
        """The turns of the next n pictures. A batch comes back in parts where it does not fit into memory whole."""
        labels, self._waiting = self._waiting[:n], self._waiting[n:]
        return labels


class Stepper:
    """The optimiser and its schedule: one step for every 64 features, whatever batches they come in."""

    def __init__(self, head: RotationHead, epochs: int) -> None:
        self.head = head
        self._optimiser = torch.optim.SGD(
            head.parameters(), _RATE, momentum=_MOMENTUM, weight_decay=_DECAY, nesterov=True
        )
        milestones = [max(1, round(epochs * share)) for share in _MILESTONES]
        self._schedule = torch.optim.lr_scheduler.MultiStepLR(self._optimiser, milestones)
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []

    def learn(self, features: torch.Tensor, labels: torch.Tensor) -> float:
        """How many percent were told right before learning from them; what fills no batch of 64 waits for more."""
        with torch.no_grad():
            right = int((self.head(features).argmax(dim=1) == labels).sum())
        rows, truths = self._waited_for(features, labels)
        whole = len(truths) // _BATCH * _BATCH
        for start in range(0, whole, _BATCH):
            self._step(rows[start : start + _BATCH], truths[start : start + _BATCH])
        self._waiting = [(rows[whole:], truths[whole:])]
        return 100 * right / len(labels)

    def end_epoch(self) -> None:
        """A last, smaller batch of what is left, and the next learning rate."""
        for rows, truths in self._waiting:
            if len(truths):
                self._step(rows, truths)
        self._waiting = []
        self._schedule.step()

    def _waited_for(self, features: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, truths = zip(*self._waiting, (features, labels), strict=True)
        return torch.cat(rows), torch.cat(truths)

    def _step(self, rows: torch.Tensor, truths: torch.Tensor) -> None:
        with torch.enable_grad():
            self._optimiser.zero_grad()
            functional.cross_entropy(self.head(rows), truths).backward()
            self._optimiser.step()


def augmented(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image padded by an eighth of its side with black, cropped at random, and flipped with probability 1/2."""
    n, _, height, width = images.shape
    pad = max(height, width) // 8
    padded = functional.pad(images, (pad, pad, pad, pad))
    tops = torch.randint(2 * pad + 1, (n,), generator=generator)
    lefts = torch.randint(2 * pad + 1, (n,), generator=generator)
    rows = (tops[:, None] + torch.arange(height))[:, None, :, None]
    columns = lefts[:, None] + torch.arange(width)
    flips = torch.rand(n, generator=generator) < 0.5
    columns = torch.where(flips[:, None], columns.flip(1), columns)[:, None, None, :]
    batch = torch.arange(n)[:, None, None, None]
    channel = torch.arange(images.shape[1])[None, :, None, None]
    return padded[batch, channel, rows, columns]
