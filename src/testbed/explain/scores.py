"""The score that is explained: one number for each group of classes of each image, from the model's logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Groups = Sequence[Sequence[Sequence[int]]]  # image -> its groups -> classes of a group


class Score:
    """A function from logits to one number per image and group: the logsumexp of the group's logits.

    For a single class that is its logit. With `probability` it is the group's summed softmax instead, for methods that
    compare scores of different images. Images may have different numbers of groups; the unused places up to `width`
    have some number, and their maps mean nothing.
    """

    def __init__(self, groups: Groups, device: torch.device | str = "cpu", probability: bool = False) -> None:
        if any(not classes for row in groups for classes in row):
            raise ValueError("expected at least one class in every group, got an empty one")
        self.groups = [[tuple(int(c) for c in classes) for classes in row] for row in groups]
        self.probability = probability
        self.width = max((len(row) for row in self.groups), default=0)  # J
        longest = max((len(classes) for row in self.groups for classes in row), default=1)
        index = torch.zeros(len(self.groups), self.width, longest, dtype=torch.int64)
        member = torch.zeros_like(index, dtype=torch.bool)
        member[:, :, 0] = True  # an unused place counts as class 0: without a member its score would be -inf
        for i, row in enumerate(self.groups):
            for j, classes in enumerate(row):
                index[i, j, : len(classes)] = torch.tensor(classes)
                member[i, j, : len(classes)] = True
        self._index, self._member = index.to(device), member.to(device)

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (n, classes) -> scores (n, J). `rows` are the image numbers of the logits; by default 0, 1, 2, ..."""
        index = self._index if rows is None else self._index[rows]
        member = self._member if rows is None else self._member[rows]
        if self.probability:
            logits = logits.log_softmax(dim=1)
        chosen = logits.gather(1, index.flatten(1)).view(index.shape)
        total = chosen.masked_fill(~member, float("-inf")).logsumexp(dim=2)
        return total.exp() if self.probability else total

    def as_probability(self) -> Score:
        """The same groups, scored by probability."""
        return Score(self.groups, self._index.device, probability=True)

    def regrouped(self, groups: Groups) -> Score:
        """The same kind of score for other groups of the same images."""
        return Score(groups, self._index.device, self.probability)
