"""Cases measured with the published program (github.com/vaynexie/CWOX at 9b0efdc, float64, stable sort).

Inputs are linear models on random pictures from numpy's frozen RandomState; the numbers below are rounded to ten digits.
The whole file, with curves and float32 values, is part of the shared data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NAN = float("nan")


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


_S, _M = (4, 4), (8, 8)
CASES = [
    Case(*row)
    for row in (
        # fmt: off
        ("g00", None, _S, 3, 0.3, [0], [1], "rand", 1, 0.5, 0.05, 3, 3, 0.0726291302, 0.0887285037, 0.1308388130, 0.2629204007),
        ("g02", 1, _S, 3, 0.3, [0], [1], "contrib", 1, 0.3, 0.05, 1, 3, 0.0298439212, 0.1905716715, 0.0497242852, 0.2136137932),
        ("g04", 2, _S, 3, 0.3, [0], [1], "contrib", 1, 0.3, 0.05, 5, 3, 0.0186825068, 0.2217053599, 0.0356782113, 0.2231883005),
        ("g06", 4, _M, 6, 0.15, [0, 1], [2, 3, 5], "contrib", 1, 0.3, 0.05, 3, 9, 0.0147443931, 0.1947858108, 0.0183037228, 0.2041264128),
        ("g08", 6, (32, 32), 10, 0.03, [4], [9], "contrib", 16, 0.3, 0.5, 5, 136, 0.0032129907, 0.3468084129, 0.0025778145, 0.3468100967),
        ("g10", 7, _M, 4, 0.15, [1], [3], "ties", 1, 0.5, 0.05, 3, 36, 0.4633059220, -0.1266151122, 0.4815459611, -0.1286877932),
        ("g12", 9, _M, 4, 0.15, [1], [3], "offset", 1, 0.5, 0.05, 3, 30, 0.3126992577, -0.1329428630, 0.8340549294, -0.1034234428),
        ("g14", 11, _S, 3, 0.3, [0], [1], "const", 1, 0.5, 0.05, 3, 0, 0.0, NAN, 0.6798467209, 0.0648925095),
        ("g16", 11, _S, 3, 0.3, [0], [1], "contrib", 1, 1.0, 0.05, 3, 0, 0.0, NAN, 0.0314023471, 0.2298874179),
        ("g18", 12, _S, 3, 0.3, [0], [1], "rand", 1, 5, 0.05, 3, 5, 0.1861781923, -0.1288940048, 0.2425166859, -0.1437806676),
        ("g20", 12, _S, 3, 0.3, [0], [1], "rand", 1, 40, 0.05, 3, 40, 0.8548146311, NAN, 0.8935645537, -0.1069211754),
        ("g22", 14, _M, 5, 0.15, [2], [2, 4], "rand", 1, 0.3, 0.05, 3, 49, 0.0375070504, 0.0312445296, 0.0391433188, 0.0292739543),
        ("g24", 16, (16, 16), 4, 0.15, [0], [1], "rand", 16, 0.95, 0.05, 3, 14, 0.0, 0.0, 0.0171881804, 0.2157397748),
        ("g26", 18, _S, 3, 0.3, [0], [1], "negative", 1, 0.5, 0.05, 3, 0, 0.0, NAN, 0.6766509440, 0.0714332510),
        ("g28", 12, _S, 3, 0.3, [0], [1], "rand", 1, 5, 0.05, 6, 5, 0.1861781923, -0.1489164210, 0.2425166859, -0.1437806676),
        ("g30", 12, _S, 3, 0.3, [0], [1], "rand", 1, 5.7, 0.05, 3, 5.7, 0.1861781923, -0.1218834500, 0.2425166859, -0.1437806676),
        ("g32", 22, (16, 16), 8, 0.1, [6], [0, 7], "contrib", 1, 0.5, 0.2, 1, 9, 0.0016327489, 0.2866067775, 0.0022047248, 0.2873675727),
        # fmt: on
    )
]


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
