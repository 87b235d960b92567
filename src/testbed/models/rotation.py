"""The rotation head: a linear layer on a frozen classifier's features that predicts how a picture is turned.

On shifted data its accuracy falls with the classifier's own (Deng et al. 2021), and it needs no labels.
engine/rotation_training.py trains it.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import torch
from torch import nn

from testbed.data.writing import safe_name, write_aside
from testbed.errors import ModelError

TURNS = 4


def turned(images: torch.Tensor, quarters: int) -> torch.Tensor:
    """Images turned counter-clockwise by a number of quarter turns."""
    return torch.rot90(images, quarters, dims=(2, 3))


class RotationHead(nn.Linear):
    def __init__(self, width: int) -> None:
        super().__init__(width, TURNS)


# ---- the file ------------------------------------------------------------------------------------------------


def head_path(results: Path, model: str) -> Path:
    return results / "rotation-heads" / f"{safe_name(model)}.safetensors"


def save_head(path: Path, head: RotationHead, weights_sha256: str | None, trained_on: str, **how: object) -> None:
    """Write a head. `trained_on` and `how` (epochs, seed, limit) go into the file's metadata."""
    from safetensors.torch import save_file

    facts = {"weights_sha256": weights_sha256 or "", "trained_on": trained_on, **how}
    about = {name: str(value) for name, value in facts.items() if value is not None}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in head.state_dict().items()}
    write_aside(path, lambda aside: save_file(tensors, aside, about))


def read_head(path: Path, model: str, weights_sha256: str | None, checkpoint: str | None = None) -> RotationHead:
    """The head that was trained on exactly these weights of the registered `model`; an error for other weights."""
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
    """The checksum of a head's tensors and how it was trained, for the provenance; empty where there is no head."""
    from safetensors import safe_open

    if not path.is_file():
        return {}
    digest = hashlib.sha256()
    with safe_open(path, framework="np") as file:
        about = dict(file.metadata() or {})
        for name in sorted(file.keys()):
            digest.update(file.get_tensor(name).tobytes())
    about.pop("weights_sha256", None)  # the evaluation records it already
    return {"sha256": digest.hexdigest(), **about}
