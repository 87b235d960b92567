"""All methods, in the order in which they are printed. A new one is a function and an entry of the table here.

docs/adding-a-label-free-method.md builds one from nothing.

A name has one kind, and the kind says how its function is called and what it returns:

- "score": function(outputs, source) -> a number that a line turns into an accuracy (`regression.fit_score`), fitted on
  sets whose accuracy is known. Names in -fit are direct estimates used as scores.
- "direct": function(outputs, source) -> an accuracy in percent. Nothing is fitted. Names in -ts read the softmax at
  the temperature fitted on the source.
- "pairs": function(source predictions, target predictions, source accuracies) -> `AgreementEstimate` of several models
  together (`agreement`).

What the reader of one number should know (a singular covariance, a bent agreement line) comes as a `LabelFreeNote`
warning; what holds for the method in general stands in `Method.notes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from testbed.store.outputs import Outputs
from testbed.studies.labelfree import agreement, direct, feature_scores, logits_scores
from testbed.studies.labelfree.outputs import FEATURES, ROTATION, LabelFreeError, Source, check_finite, checked

MODELS = "models"


@dataclass(frozen=True)
class Method:
    """One way to tell an accuracy without labels."""

    name: str
    title: str
    kind: Literal["score", "direct", "pairs"]
    function: Callable[..., Any]
    needs: frozenset[str] = frozenset()  # of FEATURES, ROTATION and MODELS, beside logits
    notes: tuple[str, ...] = ()  # assumptions, one line each; "{class_prior}" stands for the class shares asked for
    better: Literal["higher", "lower"] = "higher"  # the score of a more accurate set
    fewest_models: int = 1

    def compute(self, outputs: Outputs, source: Source) -> float:
        """The score or estimate of one set, after a look at whether the method can be used on it."""
        if self.kind == "pairs":
            raise LabelFreeError(f"{self.name} compares several models; call its function with their predictions")
        expected, columns = source.outputs.columns, checked(outputs).columns
        if columns != expected:
            raise LabelFreeError(f"{self.name}: expected {expected} classes as on the source set, got {columns}")
        for need in sorted(self.needs):
            if need not in outputs.extras:
                raise LabelFreeError(f"{self.name} needs {need} of the set, got none; evaluate it with {need} recorded")
        for what in ("logits", *sorted(self.needs)):
            check_finite(outputs, what)
        return float(self.function(outputs, source))

    @property
    def uses_class_prior(self) -> bool:
        return any("{class_prior}" in note for note in self.notes)


_SPAN = "holds within the span of the fit sets; a score beyond it is extrapolated"
_ATC = "assumes that a score below the threshold is as often wrong on the set as on the source"
_CALIBRATED = "assumes that confidence is as honest on the set as on the source"
_PRIOR = "assumes {class_prior} class shares; fails under label shift (docs/label-free.md)"
_RUNS = "assumes independent runs of one training procedure, calibrated by class"
_LINE = f"assumes that agreement and accuracy lie on one line; not to be relied on for R2 below {agreement.STRAIGHT}"


def _score(name: str, title: str, function: Callable[..., float], needs: str | None = None, **more: Any) -> Method:
    needed = frozenset() if needs is None else frozenset({needs})
    return Method(name, title, "score", function, needed, **{"notes": (_SPAN,), **more})


def _with_temperature(name: str, title: str, function: Callable[..., float], note: str) -> tuple[Method, Method]:
    """A direct estimate as published, and at the temperature of the source."""
    calm = direct.calibrated(function)
    return (
        Method(name, title, "direct", function, notes=(note,)),
        Method(f"{name}-ts", f"{title}, temperature scaled", "direct", calm, notes=(note,)),
    )


def _pairs(name: str, title: str, function: Callable[..., Any], note: str, fewest_models: int) -> Method:
    return Method(name, title, "pairs", function, frozenset({MODELS}), (note,), fewest_models=fewest_models)


_WRONG_QUANTILE = "the threshold of autoeval_baselines, at the wrong quantile; for comparison only"

_TABLE = (
    # The baselines published with the meta-sets of autoeval_baselines, under the names they have there.
    _score("confscore", "Average confidence", logits_scores.confscore),
    _score("entropy", "Average entropy", logits_scores.entropy, better="lower"),
    _score("atc", "Average thresholded confidence", logits_scores.atc, better="lower"),
    _score(
        "atc-compat",
        "ATC with the accuracy quantile",
        logits_scores.atc_compat,
        better="lower",
        notes=(_SPAN, _WRONG_QUANTILE),
    ),
    _score("rotation", "Rotation prediction error", feature_scores.rotation, needs=ROTATION, better="lower"),
    _score("fid", "Frechet distance to the source", feature_scores.fid, needs=FEATURES, better="lower"),
    # Scores published later.
    _score("nuclear-norm", "Nuclear norm", logits_scores.nuclear_norm),
    _score("dispersion", "Dispersion of features", feature_scores.dispersion, needs=FEATURES),
    _score("mutual-information", "Mutual information", logits_scores.mutual_information),
    _score("mano", "Matrix norm of logits (MaNo)", logits_scores.mano),
    _score("energy", "Meta-distribution energy (MDE)", logits_scores.energy),
    _score("atc-mc-fit", "ATC-MC, regressed", direct.atc_confidence),
    _score("cot-fit", "COT, regressed", direct.confidence_transport, notes=(_SPAN, _PRIOR)),
    # Direct estimates: no fit sets.
    *_with_temperature("ac", "Average confidence", direct.average_confidence, _CALIBRATED),
    *_with_temperature("doc", "Difference of confidences", direct.difference_of_confidences, _CALIBRATED),
    *_with_temperature("atc-mc", "ATC, largest probability", direct.atc_confidence, _ATC),
    *_with_temperature("atc-ne", "ATC, negative entropy", direct.atc_entropy, _ATC),
    *_with_temperature("cot", "Confidence optimal transport", direct.confidence_transport, _PRIOR),
    # Agreement of several models.
    _pairs("gde", "Agreement of models (GDE)", agreement.gde, _RUNS, 2),
    _pairs("aline-s", "Agreement on the line, simple", agreement.aline_s, _LINE, agreement.FEWEST_MODELS),
    _pairs("aline-d", "Agreement on the line, by pairs", agreement.aline_d, _LINE, agreement.FEWEST_MODELS),
)

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
