"""One number for a group of settings: means, corruption errors, detection of unknown classes.

An aggregate is a function of what is stored of one model; a group carries it (`registry.add_group(..., aggregate=)`)
and `db.py --print-group` prints it.
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
GAP = MetricKind("points", "lower", -100.0, 100.0)  # the same where a model loses what it should keep


class Samples(Protocol):
    """Which pictures the rows of stored logits belong to."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def targets(self) -> np.ndarray: ...


class StoredGroup(Protocol):
    """The stored results of one model that an aggregate may look at."""

    @property
    def members(self) -> Sequence[str]: ...

    def estimate(self, setting: str, metric: str) -> Estimate | None:
        """The stored number, of a member or of any other setting; None where there is none."""

    def logits(self, setting: str) -> np.ndarray | None:
        """The stored logits, None where there are none."""

    def samples(self, setting: str) -> Samples | None:
        """Ids and targets of the stored logits' rows, None where there are none."""

    def of(self, model: str) -> StoredGroup | None:
        """The same of another model, None where it has been run on nothing."""


@dataclass(frozen=True)
class Mean:
    """The plain mean of a metric over the members that are stored."""

    metric: str = "top1"
    kind: MetricKind = ACCURACY

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        members = list(_of_members(stored, self.metric).values())
        return {f"mean_{self.metric}": mean_of_estimates(members, self.kind)} if members else {}


@dataclass(frozen=True)
class Difference:
    """How much better the model is on one setting than on another, in points of a metric.

    The interval is as if the two were measured on unrelated pictures, which is too wide where they share them.
    """

    name: str
    better: str
    worse: str
    metric: str = "top1"
    kind: MetricKind = POINTS

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        one, other = (stored.estimate(setting, self.metric) for setting in (self.better, self.worse))
        if one is None or other is None:
            return {}
        value = one.value - other.value
        if one.ci_low is None or one.ci_high is None or other.ci_low is None or other.ci_high is None:
            return {self.name: Estimate(value, kind=self.kind)}
        below = float(np.hypot(one.value - one.ci_low, other.ci_high - other.value))
        above = float(np.hypot(one.ci_high - one.value, other.value - other.ci_low))
        return {self.name: clipped(value, value - below, value + above, None, self.kind)}


@dataclass(frozen=True)
class CorruptionSummary:
    """Mean top1 over corruptions and severities; CE of each corruption, mCE and relative mCE.

    `pattern` gives a setting's name from {corruption} and {severity}. CE is of the corruptions that `baseline` has and
    whose severities are all stored; mCE comes only where none is missing.
    """

    pattern: str
    clean: str
    corruptions: Sequence[str]
    baseline: Mapping[str, Sequence[float]] = field(default_factory=dict)
    baseline_model: str = "AlexNet"
    suffix: str = ""  # of the names of the numbers, where a group has several kinds of members
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
    """Several aggregates of one group, one after the other."""

    parts: Sequence[CorruptionSummary | Mean | Difference]

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        return {name: value for part in self.parts for name, value in part(stored).items()}


@dataclass(frozen=True)
class FlipRates:
    """ImageNet-P: mean flip rate; mFR and mT5D, relative to a baseline model that must have been run here too.

    AlexNet's own flip rates were never published as a file, so they are measured rather than copied.
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
            baseline = {m: e.value for m, e in _of_members(other, metric).items() if e.value > 0} if other else {}
            if len(own) == len(stored.members) and set(own) <= set(baseline):
                result[relative] = mean_flip_rate(own, baseline)
        return result


def _of_members(stored: StoredGroup, metric: str) -> dict[str, Estimate]:
    estimates = {member: stored.estimate(member, metric) for member in stored.members}
    return {member: estimate for member, estimate in estimates.items() if estimate is not None}


@dataclass(frozen=True)
class SpuriousScore:
    """Spurious ImageNet: how well the probability of a class tells its own pictures from those of its spurious feature.

    For each class that has such pictures: validation images of the class against them, then the mean over classes.
    `spurious_ap` is what the published program computes, `spurious_auroc` what the paper describes; 100 is perfect.
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
    """Detection of each member's pictures against known ones, by every score; then means over near and far sets."""

    known: Mapping[str, str]  # member -> the setting of known pictures with the same classes
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)  # near, far -> members

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        result: dict[str, Estimate] = {}
        done = []
        known_scores: dict[tuple[str, str], np.ndarray] = {}
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
