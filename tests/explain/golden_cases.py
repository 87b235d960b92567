"""Cases measured with the published program (github.com/vaynexie/CWOX at 9b0efdc, float64, stable sort).

Inputs are linear models on random pictures from numpy's frozen RandomState; the numbers in golden_cases.csv are
rounded to ten digits. The whole file, with curves and float32 values, is part of the shared data.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    name: str
    seed: int | None
    size: tuple[int, int]
    classes: int
    scale: float
    pos: list[int]
    neg: list[int]
    heat: str
    step: int
    delta: float
    tau: float
    smooth: int
    count: float
    cauc: float
    cdrop: float
    readme_cauc: float
    readme_cdrop: float

    def __str__(self) -> str:
        return self.name


def _integers(text: str) -> list[int]:
    return [int(word) for word in text.replace("x", " ").split()]


def _read() -> list[Case]:
    found = []
    with Path(__file__).with_name("golden_cases.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            read: dict[str, Any] = {**row, "size": tuple(_integers(row["size"]))}
            for name in ("pos", "neg"):
                read[name] = _integers(row[name])
            for name in ("classes", "step", "smooth"):
                read[name] = int(row[name])
            for name in ("scale", "delta", "tau", "count", "cauc", "cdrop", "readme_cauc", "readme_cdrop"):
                read[name] = float(row[name])
            found.append(Case(**{**read, "seed": int(row["seed"]) if row["seed"] else None}))
    return found


CASES = _read()


@dataclass(frozen=True)
class Inputs:
    """A picture (1, 3, H, W), a linear model on it, and the heatmap before and after clip(0) / max."""

    image: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    raw: np.ndarray
    heatmap: np.ndarray

    def probabilities(self, image: np.ndarray) -> np.ndarray:
        logits = self.weights @ image.ravel() + self.bias
        shifted = np.exp(logits - logits.max())
        return shifted / shifted.sum()


def inputs(seed, size, classes, scale, pos, neg, heat) -> Inputs:
    """As golden.json tells how to build them; the order of the draws matters."""
    height, width = size
    if seed is None:
        image = np.ones((1, 3, 4, 4))
        parts = np.zeros((3, 16))
        parts[0, :7] = [0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
        parts[1] = 0.1
        parts[1, :4] = -0.2
        weights, bias, noise = np.tile(parts / 3, (1, 3)), np.zeros(3), parts[0].reshape(4, 4)
    else:
        random = np.random.RandomState(seed)
        image = random.randn(1, 3, height, width)
        weights = random.randn(classes, 3 * height * width) * scale
        noise = random.rand(height, width)
        start = np.zeros(classes)
        start[neg] = 1
        start[pos] = 2
        bias = start - weights @ image.ravel()
    against = weights[neg].mean(axis=0) if neg else 0
    parts = (weights[pos].mean(axis=0) - against).reshape(3, height, width) * image[0]
    raw = {
        "contrib": parts.sum(axis=0),
        "rand": noise,
        "ties": np.floor(noise * 4) / 4,
        "const": np.ones(size),
        "zero": np.zeros(size),
        "offset": noise + 1,
        "signed": noise - 0.5,
        "negative": -noise - 0.1,
        "onehot": (noise == noise.max()).astype(float),
    }[heat]
    with np.errstate(invalid="ignore", divide="ignore"):
        heatmap = raw.clip(0) / raw.max()
    return Inputs(image, weights, bias, raw, np.nan_to_num(heatmap, nan=0.0))


def inputs_of(case: Case) -> Inputs:
    return inputs(case.seed, case.size, case.classes, case.scale, case.pos, case.neg, case.heat)
