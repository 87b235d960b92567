"""Faithfulness of heatmaps: the model's answers to images with pixels deleted, computed in full batches.

The heatmap alone decides how many pixels are deleted at each point, so all forward passes are known in advance. They
wait in one queue over images, heatmaps and points. Pixels are ranked once per map, a deleted image is a comparison of
ranks on the device, and an image that several questions need (other classes, contrasts, deltas) is forwarded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from testbed.errors import EntryError
from testbed.explain.batches import in_batches
from testbed.metrics.contrastive import (
    DeletionPlan,
    Recipe,
    cauc,
    cauc_per_area,
    cdrop,
    contrastive_score,
    final_score,
    invalid_code,
    normalised,
    pixel_ranks,
    plan_deletion,
    whole_auc,
    whole_curve,
)

Classifier = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Question:
    """A heatmap (H, W) to be measured: it explains why the model predicts `positive` rather than `contrast`.

    `image` is the number of the image in the batch; without `contrast` classes the score is P(positive).
    """

    image: int
    heatmap: np.ndarray
    positive: tuple[int, ...]
    contrast: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The metrics of one question and one recipe, with the curve they come from; NaN for an invalid map."""

    plan: DeletionPlan
    invalid: int  # index of the reason in metrics.contrastive.INVALID; 0 for a valid map
    positive: np.ndarray = field(default_factory=lambda: np.zeros(0))  # P(c) at plan.deleted
    contrast: np.ndarray = field(default_factory=lambda: np.zeros(0))  # P(C') at plan.deleted
    cauc: float = float("nan")
    cdrop: float = float("nan")
    cauc_per_area: float = float("nan")
    final_score: float = float("nan")
    deletion_auc: float = float("nan")
    insertion_auc: float = float("nan")

    @property
    def score(self) -> np.ndarray:
        return contrastive_score(self.positive, self.contrast)


def faithfulness(
    model: Classifier,
    images: torch.Tensor,
    questions: Sequence[Question],
    recipes: Sequence[Recipe] = (Recipe(),),
    *,
    substrate: torch.Tensor | None = None,
    whole_points: int = 0,
    batch_size: int = 64,
    intact: torch.Tensor | None = None,
    skip_invalid: bool = True,
    normalise: bool = True,
) -> list[list[Answer]]:
    """For every question a list with one answer per recipe.

    substrate: what deleted pixels become, (B, 3, H, W) or a shape that broadcasts to it; 0 by default.
    whole_points: number of points of the deletion and insertion curves over the whole image; 0 leaves them out.
    intact: logits of the images, if they are known already; this saves their forward passes.
    skip_invalid: invalid maps get no forward pass and NaN. With False they get the values of the published program.
    normalise: heatmaps are clipped at 0 and divided by their maximum. With False they are used as they are.
    """
    queue = _Queue(images, images.new_zeros(1, 1, 1, 1) if substrate is None else substrate)
    asked = [_ask(queue, q, recipes, whole_points, skip_invalid, normalise) for q in questions]
    classes = sorted({c for q in questions for c in (*q.positive, *q.contrast)})
    probabilities = queue.run(model, classes, batch_size, intact)
    column = {c: i for i, c in enumerate(classes)}

    def curve(rows: np.ndarray, of: Sequence[int]) -> np.ndarray:
        return probabilities[rows][:, [column[c] for c in of]].sum(axis=1)

    return [
        [_answer(curve, question, plan, code, rows, whole) for plan, code, rows in per_recipe]
        for question, (per_recipe, whole) in zip(questions, asked, strict=True)
    ]


# A row is the place of an answer in the queue's results.
_Whole = tuple[np.ndarray, np.ndarray, np.ndarray]  # pixels changed; rows of deletion; rows of insertion
_Asked = tuple[list[tuple[DeletionPlan, int, np.ndarray]], _Whole | None]


def _ask(
    queue: _Queue,
    question: Question,
    recipes: Sequence[Recipe],
    whole_points: int,
    skip_invalid: bool,
    normalise: bool,
) -> _Asked:
    """Queue all images that a question needs. Returns (plan, invalid code, rows) per recipe, and the whole curves."""
    heatmap = np.asarray(question.heatmap)
    if heatmap.shape != queue.size:
        raise EntryError(f"expected a heatmap of the image's size {queue.size}, got {heatmap.shape}")
    codes = [invalid_code(heatmap, recipe) for recipe in recipes]  # before normalising, which hides negative maps
    heatmap = normalised(heatmap) if normalise else heatmap
    wanted = [not (code and skip_invalid) for code in codes]
    place = queue.add_map(question.image, pixel_ranks(heatmap)) if any(wanted) else -1
    per_recipe = []
    for recipe, code, want in zip(recipes, codes, wanted, strict=True):
        plan = plan_deletion(heatmap, recipe)
        rows = queue.ask(question.image, place, plan.deleted) if want else np.zeros(0, np.int64)
        per_recipe.append((plan, code, rows))
    if not whole_points or all(codes):
        return per_recipe, None
    changed = whole_curve(heatmap.size, whole_points)
    deletion, insertion = (queue.ask(question.image, place, changed, insert) for insert in (False, True))
    return per_recipe, (changed, deletion, insertion)


def _answer(
    curve: Callable[[np.ndarray, Sequence[int]], np.ndarray],
    question: Question,
    plan: DeletionPlan,
    code: int,
    rows: np.ndarray,
    whole: _Whole | None,
) -> Answer:
    """The answer to a question from curve(rows, classes), the summed probability of some classes at some rows."""
    if not len(rows):
        return Answer(plan, code)
    positive, contrast = curve(rows, question.positive), curve(rows, question.contrast)
    score = contrastive_score(positive, contrast)
    with_area = "CAUC" in plan.recipe.metrics
    deletion = insertion = float("nan")
    if whole is not None and not code:
        changed, deleting, inserting = whole
        deletion = whole_auc(changed, curve(deleting, question.positive))
        insertion = whole_auc(changed, curve(inserting, question.positive))
    return Answer(
        plan,
        code,
        positive,
        contrast,
        cauc=cauc(plan, score) if with_area else float("nan"),
        cdrop=cdrop(plan, score) if "CDROP" in plan.recipe.metrics else float("nan"),
        cauc_per_area=cauc_per_area(plan, score) if with_area else float("nan"),
        final_score=final_score(plan, score),
        deletion_auc=deletion,
        insertion_auc=insertion,
    )


class _Queue:
    """All states (image, map, pixels changed, deleted or inserted) that were asked for, each of them once."""

    def __init__(self, images: torch.Tensor, substrate: torch.Tensor) -> None:
        self._images, self._substrate = images, substrate
        self.size = (int(images.shape[2]), int(images.shape[3]))
        self._n = self.size[0] * self.size[1]
        self._maps: dict[tuple[int, bytes], int] = {}
        self._ranks: list[torch.Tensor] = []
        self._rows: dict[tuple[int, int, int, bool], int] = {}

    def add_map(self, image: int, ranks: np.ndarray) -> int:
        """The number of a map, given by the ranks of its pixels; equal maps of an image share one."""
        key = (image, ranks.tobytes())
        if key not in self._maps:
            self._maps[key] = len(self._ranks)
            self._ranks.append(torch.from_numpy(ranks))
        return self._maps[key]

    def ask(self, image: int, place: int, changed: np.ndarray, insert: bool = False) -> np.ndarray:
        """Queue an image with these numbers of pixels deleted (or inserted into the substrate); returns their rows."""
        states = []
        for pixels in changed.tolist():
            if pixels in (0, self._n):  # the intact image or the bare substrate, which all maps share
                states.append((image, 0, 0 if (pixels == 0) != insert else self._n, False))
            else:
                states.append((image, place, pixels, insert))
        return np.array([self._rows.setdefault(state, len(self._rows)) for state in states], dtype=np.int64)

    def run(
        self, model: Classifier, classes: Sequence[int], batch_size: int, intact: torch.Tensor | None
    ) -> np.ndarray:
        """The probabilities (rows, classes) of all states; `intact` are logits of the images, where known."""
        if not self._rows:
            return np.zeros((0, len(classes)))
        states = torch.tensor(list(self._rows), dtype=torch.int64)
        ranks = torch.stack(self._ranks).to(self._images.device)
        todo = torch.arange(len(states))
        known: list[tuple[torch.Tensor, torch.Tensor]] = []
        if intact is not None:
            is_intact = states[:, 2] == 0
            logits = intact[states[is_intact, 0].to(intact.device)]
            known.append((todo[is_intact], _probabilities(logits, classes)))
            todo = todo[~is_intact]

        def answers(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return rows, _probabilities(model(self._changed(states[rows], ranks)), classes)

        with torch.no_grad():
            known += in_batches(todo, batch_size, answers)
        probabilities = np.empty((len(states), len(classes)))
        probabilities[torch.cat([rows for rows, _ in known]).numpy()] = torch.cat([p for _, p in known]).cpu().numpy()
        return probabilities

    def _changed(self, states: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
        """The images of some states: the pixels of the lowest ranks are deleted, or are the only ones shown."""
        device = self._images.device
        same_image = bool((states[:, 0] == states[0, 0]).all())  # then it broadcasts and is not copied for every row
        rows = states[:1, 0] if same_image else states[:, 0]
        _, place, pixels, insert = states.to(device).T
        changed = ranks[place] < pixels[:, None, None]
        kept = (changed == insert[:, None, None].bool())[:, None]
        deleted = self._substrate if len(self._substrate) == 1 else self._substrate[rows.to(device)]
        return torch.where(kept, self._images[rows.to(device)], deleted)


def _probabilities(logits: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """The softmax probabilities of some classes, in at least single precision."""
    if classes and max(classes) >= logits.shape[1]:
        raise EntryError(f"class {max(classes)} is asked for, but the model gives {logits.shape[1]} classes")
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=1)[:, list(classes)]
