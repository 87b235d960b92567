"""Searches for the cause of a result that differs from the published one, by trials on a few hundred images.

Each trial changes one thing and runs the images again with the same code: the entry unchanged, normalisation, resize
and crop, interpolation, another way to load the same weights. Other rules to decide among 16 categories are tried on
the stored logits of all images. testbed.studies.references.extrapolate tells what a trial on some images would give on
all of them, and how surely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from testbed.data.locate import data_roots
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import TestbedError
from testbed.metrics.categories16 import RULES
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import find_one
from testbed.store.measuring import outputs_of
from testbed.store.outputs import Outputs
from testbed.studies.references.extrapolate import Expected, Whole, exactly
from testbed.studies.references.table import Check
from testbed.studies.references.trials import Trial, run, trials_of

IMAGES = 320
LEAST = 64  # fewer images tell nothing, and are not tried
_FINALISTS, _MORE = 3, 5  # the three best trials are run again on five times as many images
# Standard errors to rule a change out. All metrics of a pair must be nearer: in simulations the true cause is kept in
# 99 of 100 diagnoses, with 32 images as with 320.
_FAR = 4
_HALF, _NEARLY_ALL = 0.5, 0.975  # less than half of the difference is left in that many of the draws
EXPLAINS, UNDECIDED, RULED_OUT = "explains it", "undecided", ""


@dataclass(frozen=True)
class Guess:
    """The value of a metric expected on the whole set with the change, and two standard errors to both sides."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Finding:
    """The effect of one change on each checked metric, and the share of the difference to the published ones left."""

    cause: str
    change: str
    guesses: Mapping[str, Guess] = field(default_factory=dict)
    left: float = math.nan  # 0: at the published values; 1: as far away as the stored result
    verdict: str = RULED_OUT  # EXPLAINS, UNDECIDED or RULED_OUT
    images: int = 0
    error: str = ""

    @property
    def title(self) -> str:
        return f"{self.cause}: {self.change}"


@dataclass(frozen=True)
class Diagnosis:
    """The findings of all trials for one pair, the best explanation first."""

    model: str
    eval_setting: str
    n_all: int
    findings: list[Finding]

    @property
    def likely(self) -> list[Finding]:
        return [f for f in self.findings if f.verdict == EXPLAINS]

    @property
    def undecided(self) -> list[Finding]:
        """Causes that these images neither confirm nor rule out."""
        return [f for f in self.findings if f.verdict == UNDECIDED]


def diagnose(
    store: Store,
    registry: Registry,
    checks: Sequence[Check],
    n_images: int = IMAGES,
    roots: Sequence[Path] = (),
    devices: Sequence[str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Diagnosis:
    """Run all trials for one pair, of which a check is outside its tolerance; on LEAST images or more."""
    name, setting_name = checks[0].model, checks[0].reference.eval_setting
    evaluation = find_one(store, name, setting_name, source=OWN)
    stored = outputs_of(store, registry, evaluation)
    setting = registry.runnable(setting_name)
    checkpoint = evaluation.provenance.checkpoint
    entry = registry.model(name.removesuffix(f"@{Path(checkpoint).stem}") if checkpoint else name)
    roots = roots or data_roots()
    trials = {(t.cause, t.change): t for t in trials_of(registry, entry, setting, checks, roots)}

    compared = [c for c in checks if c.value is not None]
    whole = Whole(setting, stored, [c.reference.metric for c in compared])

    def tried(trial: Trial, n: int) -> Finding:
        rows = spread(stored.targets, n)
        tell(f"{trial.cause}: {trial.change}, {len(rows):,} images")
        try:
            after = run(trial, stored.rows.indices[rows], checkpoint, roots, devices)
        except TestbedError as error:
            return Finding(trial.cause, trial.change, error=str(error))
        return judged(compared, trial.cause, trial.change, whole.expected(rows, after), len(rows))

    n_images = max(n_images, LEAST)
    findings = list(_aggregations(compared, setting, stored))
    findings += [tried(trial, n_images) for trial in trials.values()]
    findings.sort(key=_by_merit)
    # An explanation on all images is exact, and needs no further trials.
    if not (findings[0].verdict == EXPLAINS and findings[0].images == len(stored)):
        open_ones = [f for f in findings if (f.cause, f.change) in trials and f.verdict != RULED_OUT]
        for finding in [f for f in open_ones if f.images < len(stored)][:_FINALISTS]:
            findings[findings.index(finding)] = tried(trials[finding.cause, finding.change], _MORE * n_images)
        findings.sort(key=_by_merit)
    return Diagnosis(name, setting_name, len(stored), findings)


def spread(targets: np.ndarray, n: int) -> np.ndarray:
    """n rows: every class gets its share, by chance within the class.

    Every k-th row would not do. The order of a set has a structure, such as the five cue-conflict stimuli of each pair
    of categories, and equal steps through it may always meet the same kind of picture.
    """
    order = np.lexsort((np.random.default_rng(0).random(len(targets)), targets))
    return np.sort(order[np.linspace(0, len(order) - 1, min(n, len(order))).round().astype(int)])


def _by_merit(finding: Finding) -> tuple[bool, int, float]:
    """Sort key: explanations, then what is undecided, each by the difference that is left; failed trials last."""
    order = (EXPLAINS, UNDECIDED, RULED_OUT).index(finding.verdict)
    return bool(finding.error), order, math.inf if math.isnan(finding.left) else finding.left


# ---- judging a trial -------------------------------------------------------------------------------------


def judged(checks: Sequence[Check], cause: str, change: str, expected: Expected, images: int) -> Finding:
    """The finding of a trial, from what its change would make of the metrics of the whole set.

    A change is ruled out if a metric is farther from the published value than its tolerance and four standard errors.
    It explains the published values if, besides, less than half of the difference is left in nearly all draws.
    Anything between is undecided.
    """
    values, errors = expected.value, expected.standard_error
    guesses = {}
    possible = True
    for i, c in enumerate(checks):
        ends = np.clip([values[i] - 2 * errors[i], values[i] + 2 * errors[i]], expected.lowest[i], expected.highest[i])
        guesses[c.reference.metric] = Guess(float(values[i]), float(ends[0]), float(ends[1]))
        possible &= bool(abs(values[i] - c.reference.value) <= c.reference.tolerance + 1e-9 + _FAR * errors[i])
    outside = [i for i, c in enumerate(checks) if not c.inside]
    left = _left(checks, values[None], outside)[0] if outside else math.nan
    sure = bool(outside) and float(np.mean(_left(checks, expected.draws, outside) < _HALF)) >= _NEARLY_ALL
    verdict = RULED_OUT if not possible else EXPLAINS if sure else UNDECIDED
    return Finding(cause, change, guesses, float(left), verdict, images)


def _left(checks: Sequence[Check], values: np.ndarray, outside: Sequence[int]) -> np.ndarray:
    """The share of the difference that is left, averaged over the metrics that were outside, for each row of values."""
    shares = [abs(values[:, i] - checks[i].reference.value) / abs(checks[i].difference) for i in outside]
    return np.asarray(np.mean(shares, axis=0))


# ---- without running anything ----------------------------------------------------------------------------


def _aggregations(checks: Sequence[Check], setting: EvalSetting, stored: Outputs) -> Iterator[Finding]:
    """Findings for the other rules to decide among 16 categories. They use all stored logits, so they are exact."""
    decided = getattr(setting.metrics_fn, "decided", None)
    if decided is None:
        return
    for rule in RULES:
        values = decided(stored.logits, list(stored.ids), rule)
        plain = {c.reference.metric: _plain(c.reference.metric) for c in checks}
        if not set(plain.values()) <= set(values):  # a check of one category or condition has no counterpart
            return
        exact = np.array([values[plain[c.reference.metric]].value for c in checks])
        if any(value != c.value for value, c in zip(exact, checks, strict=True)):
            yield judged(checks, "aggregation", rule, exactly(exact), len(stored))


def _plain(metric: str) -> str:
    """The metric's name without a final aggregation: shape_bias for shape_bias_max."""
    base, _, last = metric.rpartition("_")
    return base if last in RULES else metric
