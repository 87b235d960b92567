"""The four-way rotation head: a linear layer on a frozen classifier's features that tells how a picture is turned.

Its accuracy falls with the classifier's own (Deng et al., 2021). The recipe is that of the authors of the AutoEval
baselines: SGD with Nesterov momentum 0.9, weight decay 1e-4, batches of 64, learning rate 0.01 and a tenth of it after
8, 14 and 16 of 20 epochs, random crops and flips, one random turn per picture.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from testbed.data.select import select
from testbed.engine.preparing import BatchLoader, PreparedImages, unit_range
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import ModelError
from testbed.models.classifier import Classifier, LoadedModel
from testbed.models.features import FeatureWatch
from testbed.options import RunOptions
from testbed.store.files import safe_name, write_aside

TURNS = 4
_BATCH = 64
_RATE, _MOMENTUM, _DECAY = 1e-2, 0.9, 1e-4
_MILESTONES = (8 / 20, 14 / 20, 16 / 20)  # of the epochs: the learning rate falls to a tenth at each


def turned(images: torch.Tensor, quarters: int) -> torch.Tensor:
    """Counter-clockwise by quarter turns: 90 degrees is a flip of the columns, then a transposition."""
    return torch.rot90(images, quarters, dims=(2, 3))


class RotationHead(nn.Linear):
    def __init__(self, width: int) -> None:
        super().__init__(width, TURNS)


# ---- the file ------------------------------------------------------------------------------------------------


def head_path(results: Path, model: str) -> Path:
    return results / "rotation-heads" / f"{safe_name(model)}.safetensors"


def save_head(path: Path, head: RotationHead, weights_sha256: str | None, trained_on: str, **how: object) -> None:
    """`how` it was trained (epochs, seed, limit) goes into the file with what it was trained on."""
    from safetensors.torch import save_file

    facts = {"weights_sha256": weights_sha256 or "", "trained_on": trained_on, **how}
    about = {name: str(value) for name, value in facts.items() if value is not None}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in head.state_dict().items()}
    write_aside(path, lambda aside: save_file(tensors, aside, about))


def read_head(path: Path, model: str, weights_sha256: str | None, checkpoint: str | None = None) -> RotationHead:
    """The head that was trained for just these weights of the registered `model`."""
    from safetensors import safe_open

    weights = f" --checkpoint {shlex.quote(checkpoint)}" if checkpoint else ""
    command = f"`python autoeval.py --train-rotation-head {shlex.quote(model)}{weights} --on SETTING` trains one"
    if not path.is_file():
        raise ModelError(f"no rotation head for '{model}' in {path.parent}: {command}")
    with safe_open(path, framework="pt") as file:
        if (file.metadata() or {}).get("weights_sha256", "") != (weights_sha256 or ""):
            raise ModelError(f"the rotation head of '{model}' was trained for other weights of it: {command}")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    head = RotationHead(tensors["weight"].shape[1])
    head.load_state_dict(tensors)
    return head.requires_grad_(False)


def head_facts(path: Path) -> dict[str, str]:
    """The checksum of the head's numbers, and how it was trained; nothing where there is none."""
    from safetensors import safe_open

    if not path.is_file():
        return {}
    digest = hashlib.sha256()
    with safe_open(path, framework="np") as file:
        about = dict(file.metadata() or {})
        for name in sorted(file.keys()):
            digest.update(file.get_tensor(name).tobytes())
    about.pop("weights_sha256", None)  # the evaluation has its own
    return {"sha256": digest.hexdigest(), **about}


# ---- training ------------------------------------------------------------------------------------------------


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
    loaded = LoadedModel(model, device, options)
    network = Classifier(loaded, setting).eval()
    watch = FeatureWatch(loaded)
    generator = torch.Generator().manual_seed(options.seed)
    head: RotationHead | None = None
    steps: Stepper | None = None
    with ThreadPoolExecutor(max(1, options.workers)) as threads:
        for images in _epochs(loaded, setting, options, threads, epochs, generator):
            if images is None:
                if steps is not None:
                    steps.end_epoch()
                continue
            crops = augmented(images, generator)
            labels = torch.randint(TURNS, (len(crops),), generator=generator)
            views = torch.stack([turned(crop[None], int(k))[0] for crop, k in zip(crops, labels, strict=True)])
            with torch.no_grad(), watch.watching():
                network(views.to(loaded.device))
                features = watch.features(len(views))
            if head is None:
                with torch.random.fork_rng(devices=[]):
                    torch.default_generator.manual_seed(options.seed)
                    head = RotationHead(features.shape[1]).to(loaded.device)
                steps = Stepper(head, epochs)
            assert steps is not None
            seen(len(views), steps.learn(features, labels.to(loaded.device)))
    if head is None:
        raise ModelError(f"'{setting.name}' has no images to train a rotation head on")
    return head, loaded.weights_sha256


class Stepper:
    """The optimiser and its schedule: one step for every 64 features, whatever batches they come in."""

    def __init__(self, head: RotationHead, epochs: int) -> None:
        self._head = head
        self._optimiser = torch.optim.SGD(
            head.parameters(), _RATE, momentum=_MOMENTUM, weight_decay=_DECAY, nesterov=True
        )
        milestones = [max(1, round(epochs * share)) for share in _MILESTONES]
        self._schedule = torch.optim.lr_scheduler.MultiStepLR(self._optimiser, milestones)
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []

    def learn(self, features: torch.Tensor, labels: torch.Tensor) -> float:
        """How many percent were told right before learning from them; what fills no batch of 64 waits for more."""
        with torch.no_grad():
            right = int((self._head(features).argmax(dim=1) == labels).sum())
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
            functional.cross_entropy(self._head(rows), truths).backward()
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


def _epochs(
    loaded: LoadedModel,
    setting: EvalSetting,
    options: RunOptions,
    threads: ThreadPoolExecutor,
    epochs: int,
    generator: torch.Generator,
) -> Iterator[torch.Tensor | None]:
    """Batches of images in [0, 1], newly shuffled in every epoch, and None at the end of each."""
    assert setting.dataset is not None
    samples = setting.dataset.open([Path(r) for r in options.data_roots])
    chosen = select(samples, setting.class_sublist, setting.idx_subsample_list, options.limit, False)
    images = PreparedImages(samples, setting, loaded.entry, options)
    size = options.batch_size or loaded.entry.batch_size_for(setting)
    for _ in range(epochs):
        order = torch.randperm(len(chosen.indices), generator=generator).numpy()
        indices = np.asarray(chosen.indices)[order]
        ids = [samples.ids[i] for i in indices]
        loader = BatchLoader(images, ids, indices, chosen.targets[order], setting, options, threads)
        for batch in loader.batches(0, len(indices), size):
            yield unit_range(batch.images) if batch.images.dtype == torch.uint8 else batch.images
        yield None
