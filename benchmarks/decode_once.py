"""What reuse is worth: prepared pictures read again instead of decoded, and one run instead of one process per pair."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
MODELS = """
from testbed import Model, StandardTransform
from testbed.entries import registry


def load():
    import torch

    return torch.nn.Sequential(torch.nn.AvgPool2d(56), torch.nn.Flatten(), torch.nn.Linear(48, 4))


for i in range(4):
    registry.add_model(
        Model(name=f"cheap_{i}", transform=StandardTransform(256, 224), classifier_loader=load, eval_batch_size=64)
    )
"""
N_IMAGES, N_MODELS = 400, 4


def make_pictures(folder: Path) -> None:
    """Photograph-sized JPEGs in four classes."""
    rng = np.random.default_rng(0)
    for i in range(N_IMAGES):
        rough = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        path = folder / f"class_{i % 4}" / f"{i:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rough).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)


def evaluate(folder: Path, models: list[str], db: str) -> float:
    words = ["--models", *models, "--eval-settings", f"folder:{folder / 'pictures'}", "--registry", str(folder)]
    words += ["--gpus", "cpu", "--db", str(folder / db / "results.db")]
    started = time.perf_counter()
    subprocess.run([sys.executable, str(ROOT / "eval.py"), *words], check=True, capture_output=True)
    return time.perf_counter() - started


def stored_seconds(folder: Path, db: str) -> list[float]:
    import sqlite3

    with sqlite3.connect(folder / db / "results.db") as connection:
        return [s for (s,) in connection.execute("SELECT seconds FROM evaluations ORDER BY id")]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models").mkdir()
        (folder / "models/cheap.py").write_text(MODELS)
        make_pictures(folder / "pictures")
        models = [f"cheap_{i}" for i in range(N_MODELS)]
        together = evaluate(folder, models, "together")
        first, *later = stored_seconds(folder, "together")
        apart = sum(evaluate(folder, [m], f"apart_{m}") for m in models)
    again = sum(later) / len(later)
    print(f"first model, decoding {N_IMAGES} pictures:   {first:6.2f} s")
    print(f"each further model, from the cache:      {again:6.2f} s, {first / again:.1f} times as fast")
    print(f"{N_MODELS} models in one run:                    {together:6.2f} s")
    print(f"{N_MODELS} runs, each with its own process:      {apart:6.2f} s, {apart / together:.1f} times as long")


if __name__ == "__main__":
    main()
