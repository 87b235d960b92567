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
from testbed.metrics.estimate import Estimate
from testbed.metrics.sequences import mean_flip_rate


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

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        found = [e for e in (stored.estimate(m, self.metric) for m in stored.members) if e is not None]
        return {f"mean_{self.metric}": mean_estimate(found)} if found else {}


@dataclass(frozen=True)
class Difference:
    """How much better the model is on one setting than on another, in points of a metric.

    The interval is as if the two were measured on unrelated pictures, which is too wide where they share them.
    """

    name: str
    better: str
    worse: str
    metric: str = "top1"

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        one, other = (stored.estimate(setting, self.metric) for setting in (self.better, self.worse))
        if one is None or other is None:
            return {}
        value = one.value - other.value
        if None in (one.ci_low, one.ci_high, other.ci_low, other.ci_high):
            return {self.name: Estimate(value)}
        below = np.hypot(one.value - float(one.ci_low or 0), float(other.ci_high or 0) - other.value)
        above = np.hypot(float(one.ci_high or 0) - one.value, other.value - float(other.ci_low or 0))
        return {self.name: Estimate(value, value - float(below), value + float(above))}


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
        found = {c: self._severities(stored, c) for c in self.corruptions}
        complete = {c: v for c, v in found.items() if len(v) == self.severities}
        every = [e for values in found.values() for e in values]
        result = {"mean_top1": mean_estimate(every)} if every else {}
        compared = {c: v for c, v in complete.items() if c in self.baseline}
        if compared:
            clean = stored.estimate(self.clean, "top1")
            errors = corruption_error.corruption_errors(compared, self.baseline)
            if len(compared) == len(self.baseline):
                result["mce"] = corruption_error.mean_of(errors)
                if clean is not None:
                    relative = corruption_error.relative_corruption_errors(compared, clean, self.baseline)
                    result["relative_mce"] = corruption_error.mean_of(relative)
            result |= {f"ce.{c}": e for c, e in errors.items()}
        else:
            result |= {f"mean_top1.{c}": mean_estimate(v) for c, v in complete.items()}
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
        for metric, name, relative in (("flip_rate", "mean_flip_rate", "mfr"), ("t5d", "mean_t5d", "mt5d")):
            found = _of_members(stored, metric)
            if found:
                result[name] = mean_estimate(list(found.values()))
            baseline = {m: e.value for m, e in _of_members(other, metric).items() if e.value > 0} if other else {}
            if len(found) == len(stored.members) and set(found) <= set(baseline):
                result[relative] = mean_flip_rate(found, baseline)
        return result


def _of_members(stored: StoredGroup, metric: str) -> dict[str, Estimate]:
    found = {member: stored.estimate(member, metric) for member in stored.members}
    return {member: estimate for member, estimate in found.items() if estimate is not None}


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
        return {name: shortcuts.mean_over(values) for name, values in scores.items() if values}


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
                        means[f"{kind}.{score}.{name}"] = mean_estimate(values)
        return means | result


def mean_estimate(members: Sequence[Estimate]) -> Estimate:
    """The mean, with the mean of the ends: sets share pictures, and this interval is never too narrow."""
    value = float(np.mean([e.value for e in members]))
    if any(e.ci_low is None or e.ci_high is None for e in members):
        return Estimate(value)
    low, high = (float(np.mean([getattr(e, end) for e in members])) for end in ("ci_low", "ci_high"))
    return Estimate(value, low, high)
