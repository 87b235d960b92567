"""Aggregates: numbers for a whole group of settings, such as means, corruption errors, detection of unknown classes.

An aggregate is a function of the stored results of one model. A group declares it by
`registry.add_group(..., aggregate=)`, and `db.py --print-group` prints its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from testbed.metrics import corruption_error, ood, shortcuts
from testbed.metrics.estimate import ACCURACY, Estimate, MetricKind, clipped, mean_estimate, mean_of_estimates
from testbed.metrics.sequences import FLIP_RATE, TOP5_DISTANCE, mean_flip_rate
from testbed.stats.combined import PerImage, combined_interval, image_correlations

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

    def per_image(self, setting: str, metric: str) -> PerImage | None:
        """The value of each image whose mean is the stored number; None if it is no mean, or no logits are stored."""

    def of(self, model: str) -> StoredGroup | None:
        """The same group for another model; None if nothing is stored of that model."""


Aggregate = Callable[[Any], Mapping[str, Any]]  # a StoredGroup -> numbers by name


class Combinations:
    """Weighted sums of one metric over settings, with intervals that know which images the settings share.

    Settings whose images are matched by id are correlated as their images say (testbed.stats.combined). Others are
    taken as fully correlated if they are added, and as independent if they are subtracted.
    """

    def __init__(self, stored: StoredGroup, metric: str, estimates: Mapping[str, Estimate]):
        self.estimates = estimates
        self.places = {setting: i for i, setting in enumerate(estimates)}
        known = all(e.ci_low is not None and e.ci_high is not None for e in estimates.values())
        # A single setting has nothing to be correlated with, and reading its logits takes time.
        wanted = known and len(estimates) > 1
        images = [stored.per_image(setting, metric) if wanted else None for setting in estimates]
        self.correlations = image_correlations(images)

    def __call__(self, weights: Mapping[str, float], kind: MetricKind, constant: float = 0.0) -> Estimate:
        """constant + the sum of weight x value; without an interval if a member has none."""
        members = [self.estimates[setting] for setting in weights]
        value = constant + sum(w * e.value for w, e in zip(weights.values(), members, strict=True))
        if any(e.ci_low is None or e.ci_high is None for e in members):
            return Estimate(value, kind=kind)
        rows = [self.places[setting] for setting in weights]
        values, lows, highs = ([getattr(e, name) for e in members] for name in ("value", "ci_low", "ci_high"))
        correlations = self.correlations[np.ix_(rows, rows)]
        low, high = combined_interval(list(weights.values()), values, lows, highs, correlations)
        return clipped(value, constant + low, constant + high, None, kind)


def equal_weights(settings: Collection[str]) -> dict[str, float]:
    """Weights of the plain mean."""
    return dict.fromkeys(settings, 1 / len(settings))


@dataclass(frozen=True)
class Mean:
    """The unweighted mean of a metric over the stored members."""

    metric: str = "top1"
    kind: MetricKind = ACCURACY

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        members = _of_members(stored, self.metric)
        if not members:
            return {}
        return {f"mean_{self.metric}": Combinations(stored, self.metric, members)(equal_weights(members), self.kind)}


@dataclass(frozen=True)
class Difference:
    """The value of a metric on the setting `better` minus that on `worse`."""

    name: str
    better: str
    worse: str
    metric: str = "top1"
    kind: MetricKind = POINTS

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        better, worse = (stored.estimate(setting, self.metric) for setting in (self.better, self.worse))
        if better is None or worse is None:
            return {}
        combined = Combinations(stored, self.metric, {self.better: better, self.worse: worse})
        return {self.name: combined({self.better: 1.0, self.worse: -1.0}, self.kind)}


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
    remark: str = ""  # what to know of the numbers; printed below them

    def __call__(self, stored: StoredGroup) -> dict[str, Estimate]:
        accuracies = {c: self._severities(stored, c) for c in self.corruptions}
        complete = {c: v for c, v in accuracies.items() if len(v) == self.severities}
        every = {name: e for values in accuracies.values() for name, e in values.items()}
        clean = stored.estimate(self.clean, "top1")
        combined = Combinations(stored, "top1", every | ({self.clean: clean} if clean is not None else {}))
        result = {"mean_top1": combined(equal_weights(every), ACCURACY)} if every else {}
        compared = {c: list(v) for c, v in complete.items() if c in self.baseline}
        if compared:
            if len(compared) == len(self.baseline):
                result["mce"] = combined(*corruption_error.mce_weights(compared, self.baseline))
                if clean is not None:
                    relative = corruption_error.relative_mce_weights(compared, self.clean, self.baseline)
                    result["relative_mce"] = combined(*relative)
            for c, names in compared.items():
                result[f"ce.{c}"] = combined(*corruption_error.mce_weights({c: names}, self.baseline))
        else:
            result |= {f"mean_top1.{c}": combined(equal_weights(v), ACCURACY) for c, v in complete.items()}
        return {f"{name}{self.suffix}": value for name, value in result.items()}

    def _severities(self, stored: StoredGroup, corruption: str) -> dict[str, Estimate]:
        names = [self.pattern.format(corruption=corruption, severity=s + 1) for s in range(self.severities)]
        estimates = {name: stored.estimate(name, "top1") for name in names}
        return {name: e for name, e in estimates.items() if e is not None}


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
