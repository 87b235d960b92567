"""Accuracies in percent straight from the logits of one model, with the labelled source set and nothing fitted.

Each function takes the temperature at which the softmax is read: 1, or, for the variants in -ts, the source's own
(Guo et al. 2017), which takes most of the overconfidence out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from testbed.store.outputs import Outputs
from testbed.studies.labelfree.outputs import LabelFreeNote, Source
from testbed.studies.labelfree.transport import transport_value


def average_confidence(outputs: Outputs, source: Source, temperature: float = 1.0) -> float:
    """AC: 100 * mean of the largest probability (Hendrycks and Gimpel 2017, arXiv 1610.02136)."""
    return 100 * float(outputs.softmax(temperature).confidence.mean())


def difference_of_confidences(outputs: Outputs, source: Source, temperature: float = 1.0) -> float:
    """DoC: source accuracy + AC on the set - AC on the source (Guillory et al. 2021, arXiv 2107.03315)."""
    lost = average_confidence(source.outputs, source, temperature) - average_confidence(outputs, source, temperature)
    return 100 * source.accuracy - lost


def atc_confidence(outputs: Outputs, source: Source, temperature: float = 1.0) -> float:
    """ATC-MC: 100 * share of images with max p >= t, P_source(max p < t) being the source error (Garg et al. 2022)."""
    return _share_above(outputs, source, "confidence", temperature)


def atc_entropy(outputs: Outputs, source: Source, temperature: float = 1.0) -> float:
    """ATC-NE: the same with the negative entropy sum p log p for the largest probability (arXiv 2201.04234)."""
    return _share_above(outputs, source, "negative_entropy", temperature)


def confidence_transport(outputs: Outputs, source: Source, temperature: float = 1.0) -> float:
    """COT: 100 * (1 - W), W the optimal transport cost from predictions to labels (Lu et al. 2023, arXiv 2305.15640).

    The cost of predicting p for class k is half the L1 distance of p from its corner, 1 - p_k. Labels are known by
    their shares only, which are taken to be `source.class_prior`.
    """
    probabilities, prior = outputs.softmax(temperature).probabilities, source.class_prior
    # `cot` and `cot-fit` ask for the same number, the dearest of all methods.
    return outputs.once(
        ("transport", temperature, prior.tobytes()), lambda: 100 * transport_value(probabilities, prior)
    )


def calibrated(
    function: Callable[[Outputs, Source, float], float],
) -> Callable[[Outputs, Source], float]:
    """The same estimate at the source's temperature."""

    def at_source_temperature(outputs: Outputs, source: Source) -> float:
        if source.temperature_at_bound:
            message = (
                f"temperature {source.temperature:.2g}: the NLL of the source still falls at the end of the search"
            )
            warnings.warn(message, LabelFreeNote, stacklevel=3)
        return function(outputs, source, source.temperature)

    return at_source_temperature


def _share_above(outputs: Outputs, source: Source, score: str, temperature: float) -> float:
    # Not below the threshold, as the paper has it: images that tie with it count as right.
    values = getattr(outputs.softmax(temperature), score)
    return 100 * float(np.mean(values >= source.threshold(score, temperature)))
