"""What is explained of a model's answer: for each image some groups of classes, each with one number."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Groups = Sequence[Sequence[Sequence[int]]]  # image -> its groups -> classes of a group


class Score:
    """From logits to one number per image and group: the log of the summed exponentials (for one class its logit).

    With `probability` it is the summed softmax instead, which methods that compare images want. Images may have
    different numbers of groups; missing ones are filled up and their maps mean nothing.
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
        member[:, :, 0] = True  # a missing group is class 0, so that its score is a number
        for i, row in enumerate(self.groups):
            for j, classes in enumerate(row):
                index[i, j, : len(classes)] = torch.tensor(classes)
                member[i, j, : len(classes)] = True
        self._index, self._member = index.to(device), member.to(device)

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """(n, classes) -> (n, J). `rows` names the image of each row of logits where they are not in order."""
        index = self._index if rows is None else self._index[rows]
        member = self._member if rows is None else self._member[rows]
        if self.probability:
            logits = logits.log_softmax(dim=1)
        chosen = logits.gather(1, index.flatten(1)).view(index.shape)
        total = chosen.masked_fill(~member, float("-inf")).logsumexp(dim=2)
        return total.exp() if self.probability else total

    def as_probability(self) -> Score:
        return Score(self.groups, self._index.device, probability=True)

    def regrouped(self, groups: Groups) -> Score:
        """Other groups of the same images."""
        return Score(groups, self._index.device, self.probability)
