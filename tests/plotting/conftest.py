"""Databases to draw from: the published table, and a small one of own results with logits."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import stored_results
from shared_data import PROJECT, shared_data
from testbed.metrics.estimate import share
from testbed.store.database import Store
from testbed.store.formats import published
from testbed.store.opening import open_store

sys.path.insert(0, str(PROJECT / "plotting"))  # as Python does for a script there

SOURCE = "imagenet-testbed"
IMAGES = 200
MODELS = {  # tags, and how likely an answer is right without and under shift
    "line_a": (["standard"], 0.60, 0.40),
    "line_b": (["standard"], 0.70, 0.52),
    "line_c": (["standard"], 0.80, 0.64),
    "line_d": (["small", "standard"], 0.90, 0.80),
    "line_e": (["standard"], 0.93, 0.86),
    "above": (["robust"], 0.75, 0.75),
    "untyped": ([], 0.65, 0.40),
}
SHIFTS = ("toy.blur.1", "toy.blur.2", "toy.noise.1", "toy.noise.2")


@pytest.fixture(scope="session")
def published_db(tmp_path_factory) -> str:
    """The 338 published models x 213 settings."""
    csv, types = (shared_data("testbed", name) for name in ("robustness_top1s.csv", "model_types.csv"))
    path = tmp_path_factory.mktemp("published") / "results.db"
    store = open_store(str(path), create=True)
    published.import_published(store, published.read_csv(csv), published.read_types(types), SOURCE)
    return str(path)


@pytest.fixture(scope="session")
def small_db(tmp_path_factory) -> str:
    """Seven models on a clean setting `toy` and four shifts, with logits."""
    path = tmp_path_factory.mktemp("small") / "results.db"
    store = open_store(str(path), create=True)
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 5, IMAGES)
    luck = rng.random(IMAGES)  # hard images are hard for everyone
    for model, (tags, clean, shifted) in MODELS.items():
        for setting in ("toy", *SHIFTS):
            chance = clean if setting == "toy" else shifted
            add_result(store, model, setting, tags, targets, 0.7 * luck + 0.3 * rng.random(IMAGES) < chance)
    return str(path)


def add_result(store: Store, model: str, setting: str, tags, targets: np.ndarray, right: np.ndarray, **more) -> None:
    """A completed own evaluation with logits, in which these images were right."""
    answers = np.where(right, targets, (targets + 1) % 5)
    logits = np.random.default_rng(len(right)).normal(0, 0.5, (len(right), 5))
    logits[np.arange(len(right)), answers] = logits.max(axis=1) + 0.5
    store.ensure_model(model, tags=tags)
    metrics = {"top1": share(int(right.sum()), len(right))}
    facts = {"weights_sha256": "ab" * 32, "device": "cpu"}
    stored_results.add(
        store, model, setting, logits=logits.astype(np.float32), targets=targets, metrics=metrics, **facts, **more
    )


@pytest.fixture(scope="session")
def draw():
    """Run a script's command inside this process; returns what click saw."""

    def run(script: str, *arguments: object, fails: bool = False):
        command = importlib.import_module(script).main
        result = CliRunner().invoke(command, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert (result.exit_code != 0) == fails, result.output
        return result

    return run


def looks_drawn(path: Path) -> bool:
    """Whether a PNG shows something: of fair size and with many colours."""
    from PIL import Image

    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return min(pixels.shape[:2]) > 200 and len(np.unique(pixels[::2, ::2].reshape(-1, 3), axis=0)) > 30


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "results.db"), create=True)


def add_share(store, model, setting, right, n=100, tags=("standard",)):
    store.ensure_model(model, tags=list(tags))
    stored_results.add(store, model, setting, metrics={"top1": share(right, n)})


def notes_of(monkeypatch) -> list[str]:
    """Whatever the figures write below their titles from now on."""
    from matplotlib.figure import Figure

    said: list[str] = []
    text = Figure.text
    monkeypatch.setattr(Figure, "text", lambda self, x, y, s, **how: said.append(s) or text(self, x, y, s, **how))
    return said
