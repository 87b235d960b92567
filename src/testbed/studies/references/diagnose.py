"""Searches for the cause of a result that differs from the published one, by trials on a few hundred images.

Each trial changes one thing and runs the images again with the same code: the entry unchanged, normalisation, resize
and crop, interpolation, another way to load the same weights. Other rules to decide among 16 categories are tried on
the stored logits of all images. Stored result and trial use the same images, so their difference can be extrapolated
to the whole set with little noise.
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
from testbed.store.measuring import measure, outputs_of
from testbed.store.outputs import Outputs
from testbed.studies.references.table import Check
from testbed.studies.references.trials import Trial, run, trials_of

IMAGES = 320
_FINALISTS, _MORE = 3, 5  # the three best trials are run again on five times as many images
_GROUPS = 20  # of the jackknife
# Metrics that are numbers of images, not percentages: they scale with the size of the set.
_COUNTS = ("shape_correct", "texture_correct", "neither")


@dataclass(frozen=True)
class Guess:
    """The value of a metric expected on the whole set with the change; the margin is two standard errors."""

    value: float
    margin: float


@dataclass(frozen=True)
class Finding:
    """The effect of one change on each checked metric, and the share of the difference to the published ones left."""

    cause: str
    change: str
    guesses: Mapping[str, Guess] = field(default_factory=dict)
    left: float = math.nan  # 0: at the published values; 1: as far away as the stored result
    explains: bool = False
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
        return [f for f in self.findings if f.explains]


def diagnose(
    store: Store,
    registry: Registry,
    checks: Sequence[Check],
    n_images: int = IMAGES,
    roots: Sequence[Path] = (),
    devices: Sequence[str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Diagnosis:
    """Run all trials for one pair. At least one of its checks must be outside its tolerance."""
    name, setting_name = checks[0].model, checks[0].reference.eval_setting
    evaluation = find_one(store, name, setting_name, source=OWN)
    stored = outputs_of(store, registry, evaluation)
    setting = registry.runnable(setting_name)
    checkpoint = evaluation.provenance.checkpoint
    entry = registry.model(name.removesuffix(f"@{Path(checkpoint).stem}") if checkpoint else name)
    roots = roots or data_roots()
    trials = {(t.cause, t.change): t for t in trials_of(registry, entry, setting, checks, roots)}

    def tried(trial: Trial, n: int) -> Finding:
        scale = _Scale(checks, setting, stored, _spread(stored.targets, n))
        tell(f"{trial.cause}: {trial.change}, {len(scale.rows):,} images")
        try:
            return scale.finding(trial.cause, trial.change, run(trial, scale.indices, checkpoint, roots, devices))
        except TestbedError as error:
            return Finding(trial.cause, trial.change, error=str(error))

    findings = list(_aggregations(checks, setting, stored))
    findings += [tried(trial, n_images) for trial in trials.values()]
    findings.sort(key=_by_merit)
    # An explanation on all images is exact, and needs no further trials.
    if not (findings[0].explains and findings[0].images == len(stored.logits)):
        for finding in [f for f in findings if (f.cause, f.change) in trials and f.left < 1][:_FINALISTS]:
            findings[findings.index(finding)] = tried(trials[finding.cause, finding.change], _MORE * n_images)
        findings.sort(key=_by_merit)
    return Diagnosis(name, setting_name, len(stored.logits), findings)


def _spread(targets: np.ndarray, n: int) -> np.ndarray:
    """n rows, evenly spaced over the set sorted by class, so that every class gets its share."""
    order = np.argsort(targets, kind="stable")
    return np.sort(order[np.linspace(0, len(order) - 1, min(n, len(order))).round().astype(int)])


def _by_merit(finding: Finding) -> tuple[bool, bool, float]:
    """Sort key: explanations first, then by the difference that is left; failed trials last."""
    return bool(finding.error), not finding.explains, math.inf if math.isnan(finding.left) else finding.left


# ---- from some images to all -----------------------------------------------------------------------------


class _Scale:
    """Extrapolates the outputs of a trial on some images to the whole set."""

    def __init__(self, checks: Sequence[Check], setting: EvalSetting, stored: Outputs, rows: np.ndarray) -> None:
        self.checks = [c for c in checks if c.value is not None]
        self.setting = setting
        self.rows = rows
        self.indices = stored.rows.indices[rows]
        self.factor = len(stored.logits) / len(rows)
        self._before = stored.take(rows)

    def finding(self, cause: str, change: str, after: Outputs) -> Finding:
        differences = self._differences(after)
        guesses = {}
        for c in self.checks:
            metric = c.reference.metric
            assert c.value is not None
            scale = self.factor if metric.startswith(_COUNTS) else 1.0
            change_of_value, standard_error = differences[metric]
            guesses[metric] = Guess(c.value + scale * change_of_value, 2 * scale * standard_error)
        return _judged(self.checks, cause, change, guesses, len(self.rows))

    def _differences(self, after: Outputs) -> dict[str, tuple[float, float]]:
        """Metric -> (trial minus stored result on the same images, its standard error by a grouped jackknife)."""
        names = [c.reference.metric for c in self.checks]

        def difference(rows: np.ndarray) -> np.ndarray:
            changed, unchanged = (self._values(outputs.take(rows), names) for outputs in (after, self._before))
            return changed - unchanged

        n = len(self.rows)
        whole = difference(np.arange(n))
        groups = min(_GROUPS, n)
        parts = np.stack([difference(np.flatnonzero(np.arange(n) % groups != g)) for g in range(groups)])
        counts = np.array([name.startswith(_COUNTS) for name in names])
        parts[:, counts] *= n / (n - n / groups)  # counts of the remaining images, scaled to all n
        error = np.sqrt((groups - 1) / groups * ((parts - parts.mean(axis=0)) ** 2).sum(axis=0))
        error *= math.sqrt(max(0.0, 1 - 1 / self.factor))  # finite population: the error is 0 for all images
        return {name: (float(w), float(e)) for name, w, e in zip(names, whole, error, strict=True)}

    def _values(self, outputs: Outputs, names: Sequence[str]) -> np.ndarray:
        metrics = measure(self.setting, None, outputs)
        return np.array([metrics[name].value if name in metrics else math.nan for name in names])


def _judged(checks: Sequence[Check], cause: str, change: str, guesses: Mapping[str, Guess], images: int) -> Finding:
    """The finding of a trial.

    A change explains the published values if less than half of the difference is left, and every metric is within its
    tolerance plus three standard errors.
    """
    left, reached = [], True
    for c in checks:
        guess, reference = guesses[c.reference.metric], c.reference
        miss = abs(guess.value - reference.value)
        reached &= miss <= reference.tolerance + 1.5 * guess.margin  # 1.5 margins are three standard errors
        if not c.inside:
            left.append(miss / abs(c.difference))
    mean = float(np.mean(left)) if left else math.nan
    return Finding(cause, change, guesses, mean, bool(reached and mean < 0.5), images)


# ---- without running anything ----------------------------------------------------------------------------


def _aggregations(checks: Sequence[Check], setting: EvalSetting, stored: Outputs) -> Iterator[Finding]:
    """Findings for the other rules to decide among 16 categories. They use all stored logits, so they are exact."""
    decided = getattr(setting.metrics_fn, "decided", None)
    if decided is None:
        return
    checks = [c for c in checks if c.value is not None]
    for rule in RULES:
        values = decided(stored.logits, list(stored.ids), rule)
        plain = {c.reference.metric: _plain(c.reference.metric) for c in checks}
        if not set(plain.values()) <= set(values):  # a check of one category or condition has no counterpart
            return
        guesses = {metric: Guess(values[name].value, 0.0) for metric, name in plain.items()}
        if any(guesses[c.reference.metric].value != c.value for c in checks):
            yield _judged(checks, "aggregation", rule, guesses, len(stored.logits))


def _plain(metric: str) -> str:
    """The metric's name without a final aggregation: shape_bias for shape_bias_max."""
    base, _, last = metric.rpartition("_")
    return base if last in RULES else metric
