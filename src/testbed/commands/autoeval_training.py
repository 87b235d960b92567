"""autoeval.py --train-rotation-head: the four-way head whose logits `eval.py --record rotation` keeps."""

from __future__ import annotations

import shlex
from collections import deque
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.autoeval_tables import progress_bar
from testbed.commands.options import say

if TYPE_CHECKING:
    from testbed.entries.eval_setting import EvalSetting
    from testbed.entries.model import Model
    from testbed.models.rotation import RotationHead
    from testbed.options import RunOptions

_LAST_BATCHES = 10


def train(
    name: str,
    *,
    on: str | None,
    checkpoint: str | None,
    epochs: int,
    limit: int | None,
    seed: int,
    device: str,
    data_root: tuple[str, ...],
    db: str | None,
    registry: tuple[str, ...],
    **_: Any,
) -> None:
    """Train the head on the images of setting `on`, store it beside the database, and say how to use it."""
    if on is None:
        raise click.UsageError("--on is missing: the setting whose images the rotation head is trained on")
    from testbed.data.locate import data_roots
    from testbed.entries.registry import load_registry
    from testbed.models.rotation import head_path, save_head
    from testbed.options import RunOptions, stored_model_name
    from testbed.store.opening import open_store

    _check_device(device)
    entries, store = load_registry(registry), open_store(db, create=True)
    model, setting = entries.model(name), entries.runnable(on)
    options = RunOptions(
        data_roots=tuple(str(r) for r in data_roots(data_root)),
        registry=registry,
        cache_folder=str(store.folder / "cache"),
        limit=limit,
        seed=seed,
        checkpoint=checkpoint,
    )
    head, digest, accuracy = _trained(model, setting, options, device, epochs)
    # Weights of the user's own have a name and a head of their own.
    stored = stored_model_name(model.name, checkpoint)
    path = head_path(store.folder, stored)
    save_head(path, head, digest, on, epochs=epochs, seed=seed, limit=limit)
    same = [*(["--checkpoint", checkpoint] if checkpoint else []), *(["--db", db] if db else [])]
    command = shlex.join(["python", "eval.py", "--models", model.name, *same, "--eval-settings"])
    say(
        f"rotation head of {stored} trained on {on}, {epochs} epochs: {accuracy:.1f} % of turns told "
        f"at the end; stored in {path}\n`{command} ... --record rotation` records its logits"
    )


def _trained(
    model: Model, setting: EvalSetting, options: RunOptions, device: str, epochs: int
) -> tuple[RotationHead, str | None, float]:
    """The head, the checksum of the weights it belongs to, and the share of turns it tells (percent)."""
    from testbed.engine.rotation_training import train_rotation_head

    # The mean over the last batches: one batch alone is noisy.
    last: deque[float] = deque(maxlen=_LAST_BATCHES)
    with progress_bar(0, "images") as bar:

        def seen(images: int, accuracy: float) -> None:
            bar.update(images)
            last.append(accuracy)
            bar.set_postfix_str(f"{sum(last) / len(last):.1f} % of turns told")

        head, digest = train_rotation_head(model, setting, options, device, epochs, seen)
    return head, digest, sum(last) / len(last)


def _check_device(name: str) -> None:
    import torch

    known = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if name not in known:
        raise click.UsageError(f"--device: expected {' or '.join(known)} on this machine, got '{name}'")
