"""A registry of stand-ins for networks whose weights cannot be had here: small, and of a shape bias that is known."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import numpy as np
from PIL import Image

from testbed.metrics.categories16 import NAMES

SIDE = 16
# Each stimulus shows its shape as a bright pixel in column 0, its texture in column 1, and a number in column 2.
STIMULI = {(s, t): (16 * s + 7 * t) % 256 for s in range(16) for t in range(16)}

_MODELS = '''
import torch
from torch import nn
from testbed import Model, StandardNormalization, StandardTransform, registry
from testbed.metrics.categories16 import SIXTEEN
from testbed.weights import with_weights

IMAGENET = StandardNormalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = StandardNormalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
FIRST = [classes[0] for classes in SIXTEEN.values()]


class StandIn(nn.Module):
    """Names the shape of stimuli whose number is below its only weight, else the texture."""

    def __init__(self):
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(1))

    def forward(self, images):
        red = images[:, 0]
        shape, texture = red[:, :, 0].argmax(1), red[:, :, 1].argmax(1)
        number = 255 * (red[:, 0, 2] * 0.229 + 0.485)  # as it was trained: with ImageNet's mean and std
        chosen = torch.where(number < self.threshold - 0.5, shape, texture)
        logits = torch.zeros(len(images), 1000)
        logits[torch.arange(len(images)), torch.tensor(FIRST)[chosen]] = 20.0
        return logits


def add(name, file, normalization=IMAGENET):
    registry.add_model(
        Model(name, StandardTransform(SIDE, SIDE), lambda: with_weights(StandIn(), file),
              normalization=normalization, eval_batch_size=64)
    )


for name, file, half in MODELS:
    add(name, file, HALF if half else IMAGENET)
'''


def archive() -> bytes:
    """The stimuli as model-vs-human publishes them: one for each pair of categories, 240 of them with a conflict."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for (s, t), number in STIMULI.items():
            pixels = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
            pixels[s, 0], pixels[t, 1], pixels[0, 2] = 255, 255, number
            picture = io.BytesIO()
            Image.fromarray(pixels).save(picture, "PNG")
            entry = tarfile.TarInfo(f"cue-conflict/{NAMES[s]}/{NAMES[s]}1-{NAMES[t]}2.png")
            entry.size = len(picture.getvalue())
            tar.addfile(entry, io.BytesIO(picture.getvalue()))
    return content.getvalue()


def bias_of(threshold: int) -> float:
    """The shape bias in percent: the share of conflict stimuli whose number is below the threshold."""
    numbers = [number for (s, t), number in STIMULI.items() if s != t]
    return 100 * sum(number < threshold for number in numbers) / len(numbers)


def weights_file(threshold: int) -> bytes:
    """A checkpoint as the authors of texture-vs-shape saved theirs: under state_dict, names begin with module."""
    import torch

    content = io.BytesIO()
    torch.save({"epoch": 60, "state_dict": {"module.threshold": torch.tensor([float(threshold)])}}, content)
    return content.getvalue()


def make_registry(folder, server, networks, suite, references):
    """A registry folder.

    networks: name -> (threshold, whether with mean and std 0.5, address of its weights or None for a dead one).
    suite: as in shape_bias_validation.json. references: name -> published shape bias.
    """
    models, published = [], {}
    for name, (threshold, half, alive) in networks.items():
        content = weights_file(threshold)
        file = f"stand_in_{threshold}-{hashlib.sha256(content).hexdigest()[:8]}.pth.tar"
        if alive:
            server.files[file] = content
        models.append((name, file, half))
        url = server.url(file if alive else f"dead/{name}")
        published[name] = {"url": url, "file": file if alive else f"{name}.pth", "sha256": None, "licence": "MIT"}
    for part in ("models", "metadata", "references"):
        (folder / part).mkdir(parents=True)
    (folder / "models" / "stand_ins.py").write_text(f"MODELS = {models!r}\nSIDE = {SIDE}\n{_MODELS}")
    (folder / "metadata" / "weights.json").write_text(json.dumps(published))
    (folder / "metadata" / "shape_bias_validation.json").write_text(json.dumps(suite))
    stimuli = {
        "licence": "CC-BY-4.0",
        "files": [{"url": server.url("cue-conflict.tar.gz"), "checksum": None, "size": None}],
        "places": {"cue-conflict": "model-vs-human/cue-conflict"},
    }
    server.files["cue-conflict.tar.gz"] = archive()
    (folder / "metadata" / "downloads.json").write_text(json.dumps({"model-vs-human-cue-conflict": stimuli}))
    lines = [f"{name},cue-conflict,shape_bias,{value},0.5,made up" for name, value in references.items()]
    header = "model,eval_setting,metric,value,tolerance,source"
    (folder / "references" / "stand_ins.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder
