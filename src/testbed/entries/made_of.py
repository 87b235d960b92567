"""What a model that is made of other models is made of: an ensemble of members, a probe on a backbone."""

from __future__ import annotations

from dataclasses import dataclass

MEANS = ("probabilities", "logits")


@dataclass(frozen=True)
class Ensemble:
    """The mean of what several models answer, computed from their stored logits: it has no network."""

    members: tuple[str, ...]  # names of models
    mean: str = MEANS[0]  # of what; the logarithm of a mean of probabilities serves as logits


@dataclass(frozen=True)
class Probe:
    """A head on the features of a frozen network, trained on the labelled images of a setting."""

    backbone: str  # name of a model
    setting: str
    neighbours: int | None = None  # how many vote; None: a linear head
    c: float = 1.0  # the inverse strength of regularisation of a linear head, as in scikit-learn

    @property
    def kind(self) -> str:
        return "linear" if self.neighbours is None else "knn"
