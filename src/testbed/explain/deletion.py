"""Asking a model about pictures with pixels deleted: one queue over images, heatmaps and points, in full batches.

The number of points is fixed by the heatmap, so nothing is sequential: pixels are ranked once per map, a deleted image
is a comparison on the device, and every answer that several questions need (classes, contrasts, deltas) is asked once.
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
    """How faithful is this heatmap (H, W) of an image to the model's belief in `positive` rather than `contrast`?"""

    image: int
    heatmap: np.ndarray
    positive: tuple[int, ...]
    contrast: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The numbers of one question and one recipe, with the curve they come from; NaN for an invalid map."""

    plan: DeletionPlan
    invalid: int  # place of the reason in metrics.contrastive.INVALID; 0 is a valid map
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
    """An answer for every question and recipe. Heatmaps become clip(0) / max, unless they are to be taken as they are.

    substrate: what deleted pixels become, (B, 3, H, W) or anything that broadcasts; 0 unless given. whole_points: at
    how many points deletion and insertion over the whole image are sampled; 0 leaves them out. intact: logits of the
    images, where they are known already. Invalid maps cost no forward pass unless `skip_invalid` is False; then their
    numbers are the published program's.
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
    heatmap = np.asarray(question.heatmap)
    if heatmap.shape != queue.size:
        raise EntryError(f"expected a heatmap of the image's size {queue.size}, got {heatmap.shape}")
    codes = [invalid_code(heatmap, recipe) for recipe in recipes]
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
    """All states (image, map, pixels changed) that anybody asked for, each once."""

    def __init__(self, images: torch.Tensor, substrate: torch.Tensor) -> None:
        self._images, self._substrate = images, substrate
        self.size = (int(images.shape[2]), int(images.shape[3]))
        self._n = self.size[0] * self.size[1]
        self._maps: dict[tuple[int, bytes], int] = {}
        self._ranks: list[torch.Tensor] = []
        self._rows: dict[tuple[int, int, int, bool], int] = {}

    def add_map(self, image: int, ranks: np.ndarray) -> int:
        """The map's place; equal maps of an image share it."""
        key = (image, ranks.tobytes())
        if key not in self._maps:
            self._maps[key] = len(self._ranks)
            self._ranks.append(torch.from_numpy(ranks))
        return self._maps[key]

    def ask(self, image: int, place: int, changed: np.ndarray, insert: bool = False) -> np.ndarray:
        """Rows of the answers with so many pixels deleted (or inserted into the substrate)."""
        states = []
        for pixels in changed.tolist():
            if pixels in (0, self._n):  # the intact image or the bare substrate, whatever the map
                states.append((image, 0, 0 if (pixels == 0) != insert else self._n, False))
            else:
                states.append((image, place, pixels, insert))
        return np.array([self._rows.setdefault(state, len(self._rows)) for state in states], dtype=np.int64)

    def run(
        self, model: Classifier, classes: Sequence[int], batch_size: int, intact: torch.Tensor | None
    ) -> np.ndarray:
        """Probabilities (rows, classes) of everything asked."""
        if not self._rows:
            return np.zeros((0, len(classes)))
        states = torch.tensor(list(self._rows), dtype=torch.int64)
        ranks = torch.stack(self._ranks).to(self._images.device)
        todo = torch.arange(len(states))
        known: list[tuple[torch.Tensor, torch.Tensor]] = []
        if intact is not None:
            there = states[:, 2] == 0
            of_images = intact[states[there, 0].to(intact.device)]
            known.append((todo[there], _probabilities(of_images, classes)))
            todo = todo[~there]

        def answers(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return rows, _probabilities(model(self._changed(states[rows], ranks)), classes)

        with torch.no_grad():
            known += in_batches(todo, batch_size, answers)
        found = np.empty((len(states), len(classes)))
        found[torch.cat([rows for rows, _ in known]).numpy()] = torch.cat([p for _, p in known]).cpu().numpy()
        return found

    def _changed(self, states: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
        """The images of some states: pixels ranked below a number are deleted, or are all that is there."""
        device = self._images.device
        one = bool((states[:, 0] == states[0, 0]).all())  # then nothing is copied for every row
        rows = states[:1, 0] if one else states[:, 0]
        _, place, pixels, insert = states.to(device).T
        changed = ranks[place] < pixels[:, None, None]
        kept = (changed == insert[:, None, None].bool())[:, None]
        deleted = self._substrate if len(self._substrate) == 1 else self._substrate[rows.to(device)]
        return torch.where(kept, self._images[rows.to(device)], deleted)


def _probabilities(logits: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """Softmax in at least single precision, of the asked classes only."""
    if classes and max(classes) >= logits.shape[1]:
        raise EntryError(f"class {max(classes)} is asked for, but the model gives {logits.shape[1]} classes")
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=1)[:, list(classes)]
