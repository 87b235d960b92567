"""Aggregates: numbers for a whole group of settings, such as means, corruption errors, detection of unknown classes.

An aggregate is a function of the stored results of one model. A group declares it by
`registry.add_group(..., aggregate=)`, and `db.py --print-group` prints its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from testbed.metrics import corruption_error, ood, shortcuts
from testbed.metrics.estimate import ACCURACY, Estimate, MetricKind, clipped, mean_estimate, mean_of_estimates
from testbed.metrics.sequences import FLIP_RATE, TOP5_DISTANCE, mean_flip_rate

POINTS = MetricKind("points", None, -100.0, 100.0)  # a difference of two percentages
GAP = MetricKind("points", "lower", -100.0, 100.0)  # a difference that is a loss: 0 is best


class Samples(Protocol):
    """The images of stored logits, row by row."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def targets(self) -> np.ndarray: ...


class StoredGroup(Protocol):
    """The stored results of one model, as an aggregate reads them (implemented in testbed.studies.groups)."""

    @property
    def members(self) -> Sequence[str]: ...

    def estimate(self, setting: str, metric: str) -> Estimate | None:
        """A stored number of a member or of any other setting; None if it is not stored."""

    def logits(self, setting: str) -> np.ndarray | None:
        """The stored logits of a setting; None if there are none."""

    def samples(self, setting: str) -> Samples | None:
        """Ids and targets of the rows of the stored logits; None if there are none."""

    def of(self, model: str) -> StoredGroup | None:
        """The same group for another model; None if nothing is stored of that model."""


@dataclass(frozen=True)
class Mean:
    """The unweighted mean of a metric over the stored members."""

    metric: str = "top1"
    kind: MetricKind = ACCURACY

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        members = list(_of_members(stored, self.metric).values())
        return {f"mean_{self.metric}": mean_of_estimates(members, self.kind)} if members else {}


@dataclass(frozen=True)
class Difference:
    """The value of a metric on the setting `better` minus that on `worse`.

    The interval treats the two as independent, so it is too wide if they share images.
    """

    name: str
    better: str
    worse: str
    metric: str = "top1"
    kind: MetricKind = POINTS

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        better, worse = (stored.estimate(setting, self.metric) for setting in (self.better, self.worse))
        if better is None or worse is None:
            return {}
        value = better.value - worse.value
        if better.ci_low is None or better.ci_high is None or worse.ci_low is None or worse.ci_high is None:
            return {self.name: Estimate(value, kind=self.kind)}
        # Sides of independent intervals add in squares; the difference is lowest with `worse` at its upper end.
        below = float(np.hypot(better.value - better.ci_low, worse.ci_high - worse.value))
        above = float(np.hypot(better.ci_high - better.value, worse.value - worse.ci_low))
        return {self.name: clipped(value, value - below, value + above, None, self.kind)}


@dataclass(frozen=True)
class CorruptionSummary:
    """Mean top1 over corruptions and severities; CE of each corruption, mCE and relative mCE.

    `pattern` gives a setting's name from {corruption} and {severity}. `baseline` has the baseline model's errors. CE is
    given for its corruptions with all severities stored, mCE only if none of its corruptions is missing.
    """

    pattern: str
    clean: str
    corruptions: Sequence[str]
    baseline: Mapping[str, Sequence[float]] = field(default_factory=dict)
    baseline_model: str = "AlexNet"
    suffix: str = ""  # appended to metric names, for a group with several kinds of members
    severities: int = 5

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        accuracies = {c: self._severities(stored, c) for c in self.corruptions}
        complete = {c: v for c, v in accuracies.items() if len(v) == self.severities}
        every = [e for values in accuracies.values() for e in values]
        result = {"mean_top1": mean_of_estimates(every, ACCURACY)} if every else {}
        compared = {c: v for c, v in complete.items() if c in self.baseline}
        if compared:
            clean = stored.estimate(self.clean, "top1")
            errors = corruption_error.corruption_errors(compared, self.baseline)
            if len(compared) == len(self.baseline):
                result["mce"] = corruption_error.mean_of(errors, corruption_error.ABSOLUTE)
                if clean is not None:
                    relative = corruption_error.relative_corruption_errors(compared, clean, self.baseline)
                    result["relative_mce"] = corruption_error.mean_of(relative, corruption_error.RELATIVE)
            result |= {f"ce.{c}": e for c, e in errors.items()}
        else:
            result |= {f"mean_top1.{c}": mean_of_estimates(v, ACCURACY) for c, v in complete.items()}
        return {f"{name}{self.suffix}": value for name, value in result.items()}

    def _severities(self, stored: StoredGroup, corruption: str) -> list[Estimate]:
        names = [self.pattern.format(corruption=corruption, severity=s + 1) for s in range(self.severities)]
        return [e for e in (stored.estimate(name, "top1") for name in names) if e is not None]


@dataclass(frozen=True)
class Together:
    """Several aggregates of one group; their numbers are joined."""

    parts: Sequence[CorruptionSummary | Mean | Difference]

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        return {name: value for part in self.parts for name, value in part(stored).items()}


@dataclass(frozen=True)
class FlipRates:
    """ImageNet-P: the mean flip rate; mFR and mT5D, relative to a baseline model.

    The baseline must have been run here: AlexNet's flip rates were never published as a file.
    """

    baseline: str = "alexnet"

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        other = stored.of(self.baseline)
        result: dict[str, Estimate] = {}
        for metric, kind, name, relative in (
            ("flip_rate", FLIP_RATE, "mean_flip_rate", "mfr"),
            ("t5d", TOP5_DISTANCE, "mean_t5d", "mt5d"),
        ):
            own = _of_members(stored, metric)
            if own:
                result[name] = mean_of_estimates(list(own.values()), kind)
            # Ratios need a baseline above 0 for every member.
            baseline = {m: e.value for m, e in _of_members(other, metric).items() if e.value > 0} if other else {}
            if len(own) == len(stored.members) and set(own) <= set(baseline):
                result[relative] = mean_flip_rate(own, baseline)
        return result


def _of_members(stored: StoredGroup, metric: str) -> dict[str, Estimate]:
    estimates = {member: stored.estimate(member, metric) for member in stored.members}
    return {member: estimate for member, estimate in estimates.items() if estimate is not None}


@dataclass(frozen=True)
class SpuriousScore:
    """Spurious ImageNet: does the probability of a class separate its images from images of its spurious feature alone?

    For each class the score compares its validation images (`known`) with the images of its feature (`spurious`); then
    the mean over classes is taken. The paper describes AUROC, the published program computes average precision: both
    are given, as `spurious_auroc` and `spurious_ap`. 100 is perfect.
    """

    spurious: str
    known: str

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        spurious, known = stored.logits(self.spurious), stored.logits(self.known)
        pictures, validation = stored.samples(self.spurious), stored.samples(self.known)
        if spurious is None or known is None or pictures is None or validation is None:
            return {}
        of_class = shortcuts.class_of_feature(pictures.ids)
        scores: dict[str, list[float]] = {"spurious_ap": [], "spurious_auroc": []}
        for c in np.unique(of_class):
            own = validation.targets == c
            if own.any():
                pair = [shortcuts.probability(rows, int(c)) for rows in (known[own], spurious[of_class == c])]
                scores["spurious_ap"].append(ood.average_precision(*pair).value)
                scores["spurious_auroc"].append(ood.auroc(*pair).value)
        return {name: mean_estimate(values, ood.DETECTION) for name, values in scores.items() if values}


@dataclass(frozen=True)
class UnknownClasses:
    """Detection of each member's images among known ones, with every score; first the means over near and far sets."""

    known: Mapping[str, str]  # member -> the setting of known images with the same columns of logits
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)  # near, far -> members

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        result: dict[str, Estimate] = {}
        done = []
        known_scores: dict[tuple[str, str], np.ndarray] = {}  # most members share `val`, with its 50,000 images
        for member in stored.members:
            unknown, known = stored.logits(member), stored.logits(self.known[member])
            if unknown is None or known is None:
                continue
            done.append(member)
            for score in ood.SCORES:
                key = (self.known[member], score)
                if key not in known_scores:
                    known_scores[key] = ood.familiarity(known, score)
                numbers = ood.detection(known_scores[key], ood.familiarity(unknown, score))
                result |= {f"{member}.{score}.{name}": value for name, value in numbers.items()}
        means: dict[str, Estimate] = {}
        for kind, members in self.kinds.items():
            if members and set(members) <= set(done):
                for score in ood.SCORES:
                    for name in ("auroc", "fpr95"):
                        values = [result[f"{m}.{score}.{name}"] for m in members]
                        means[f"{kind}.{score}.{name}"] = mean_of_estimates(values, values[0].kind)
        return means | result
