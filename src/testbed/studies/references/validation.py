"""Shape bias of networks with published values, and of DeiT prepared in three ways: is the calculation right?

The suite is a list of models in metadata/shape_bias_validation.json. This module compares their stored results and says
in words what that means; testbed.commands.validating downloads, runs and prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.entries.registry import Registry
from testbed.errors import DataError, StoreError
from testbed.metrics.categories16 import decide
from testbed.metrics.shape_bias import CueCounts, cue_counts, cues
from testbed.stats.intervals import bootstrap_rows
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Number
from testbed.store.find import find_one
from testbed.store.measuring import outputs_of
from testbed.studies.references.table import Reference

SETTING = "cue-conflict"
TESTS = ("resnet", "deit")
SUITE = "metadata/shape_bias_validation.json"
POINTS = 3.0  # a result farther from the published one is off; nearer ones may still be outside their tolerance
AGREES, NEAR, OFF, UNKNOWN = "agrees", "near", "OFF", ""


@dataclass(frozen=True)
class Entry:
    """A model of the suite. One that is not `usual` is run only where it is asked for."""

    model: str
    title: str
    test: str
    usual: bool = True


@dataclass(frozen=True)
class Measured:
    """A model's counts on the stimuli, and the published bias in percent, if there is one."""

    entry: Entry
    counts: CueCounts
    expected: float | None
    tolerance: float

    @property
    def bias(self) -> float:
        return self.counts.bias.value

    @property
    def difference(self) -> float | None:
        return None if self.expected is None else self.bias - self.expected

    @property
    def verdict(self) -> str:
        if self.difference is None:
            return UNKNOWN
        far = abs(self.difference)
        return AGREES if far <= self.tolerance + 1e-9 else NEAR if far <= POINTS else OFF


@dataclass(frozen=True)
class Route:
    """One way to prepare pictures for the same weights, compared with the first one on the same stimuli."""

    entry: Entry
    normalization: str
    bias: float
    others: int  # decisions that are not those of the first way
    stimuli: int
    difference: float = 0.0  # of the shape bias, in points
    low: float = 0.0
    high: float = 0.0

    @property
    def differs(self) -> bool:
        """Whether the difference of the shape bias is more than chance."""
        return not self.low <= 0 <= self.high


def read_suite(registry_folders: Sequence[Path]) -> list[Entry]:
    """The models of the suite. A test that a later folder lists replaces that of an earlier one."""
    from testbed.data.download import read_json

    tests: dict[str, list[Entry]] = {}
    for folder in registry_folders:
        for test, models in read_json(folder / SUITE).items():
            try:
                tests[test] = [Entry(m["model"], m["title"], test, not m.get("asked")) for m in models]
            except (KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{folder / SUITE}: '{test}' needs a list of model and title: {error}") from error
    return [entry for test in TESTS for entry in tests.get(test, [])]


def measured(entries: Sequence[Entry], numbers: Sequence[Number], references: Sequence[Reference]) -> list[Measured]:
    """The stored counts of these models, beside the published values; models without a result are left out."""
    stored = {(n.model, n.metric): n.value for n in numbers}
    published = {
        model: (r.value, r.tolerance)
        for r in references
        if (r.eval_setting, r.metric) == (SETTING, "shape_bias")
        for model in r.models
    }
    networks = []
    for entry in entries:
        counts = [stored.get((entry.model, metric)) for metric in ("shape_correct", "texture_correct", "neither")]
        if None not in counts:
            expected, tolerance = published.get(entry.model, (None, 0.0))
            networks.append(Measured(entry, CueCounts(*(int(c or 0) for c in counts)), expected, tolerance))
    return networks


def routes(store: Store, registry: Registry, entries: Sequence[Entry]) -> list[Route]:
    """The ways of one network, the first one to compare with; all must have stored logits."""
    ways: list[Route] = []
    evaluations = (find_one(store, entry.model, SETTING, variant="", source=OWN) for entry in entries)
    outputs = [outputs_of(store, registry, evaluation) for evaluation in evaluations]
    shapes, textures = cues(list(outputs[0].ids))
    first = decide(outputs[0].logits)
    for entry, its in zip(entries, outputs, strict=True):
        if not np.array_equal(its.ids, outputs[0].ids):
            raise StoreError(f"{entry.model} was run on other stimuli than {entries[0].model}: run both again")
        decisions = decide(its.logits)
        difference, low, high = _paired(first, decisions, shapes, textures)
        bias = cue_counts(decisions, shapes, textures).bias.value
        said = _mean_and_std(registry.model(entry.model).normalization)
        ways.append(Route(entry, said, bias, int((decisions != first).sum()), len(first), difference, low, high))
    return ways


def _paired(first: np.ndarray, other: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> tuple[float, ...]:
    """Shape bias of `other` minus that of `first` in points, with a bootstrap interval over the stimuli they share."""
    if np.array_equal(first, other):
        return 0.0, 0.0, 0.0

    def difference(rows: np.ndarray) -> dict[str, float]:
        biases = [cue_counts(d[rows], shapes[rows], textures[rows]).bias.value for d in (first, other)]
        return {"": biases[1] - biases[0]}

    low, high = bootstrap_rows(difference, len(first), resamples=1000)[""]
    return difference(np.arange(len(first)))[""], low, high


def _mean_and_std(normalization: Any) -> str:
    mean, std = getattr(normalization, "mean", None), getattr(normalization, "std", None)
    if mean is None or std is None:
        return "none"
    known = {"0.485 0.456 0.406": "ImageNet's", "0.5 0.5 0.5": "0.5"}
    numbers = " ".join(f"{m:g}" for m in mean)
    return known.get(numbers, numbers)


# ---- in words --------------------------------------------------------------------------------------------


def deit_verdict(found: Sequence[Route]) -> list[str]:
    """What the comparison of the ways means, a sentence for each after the first."""
    lines = []
    for route in found[1:]:
        base = found[0]
        names = f"{base.entry.title} and {route.entry.title}"
        alike = route.normalization == base.normalization
        if route.others == 0:
            why = "the same weights, prepared alike" if alike else "the other normalisation changes nothing here"
            lines.append(f"{names}: the same decisions on all {route.stimuli:,} stimuli: {why}.")
            continue
        size = f"{route.difference:+.2f} points [{route.low:+.2f}, {route.high:+.2f}]"
        sure = "more than chance" if route.differs else "which may be chance"
        text = f"{names}: {route.others:,} of {route.stimuli:,} decisions differ, shape bias {size}, {sure}. "
        if alike:
            text += "Mean and std are the same, so weights or interpolation must differ."
        else:
            text += (
                f"The cause is the normalisation: mean and std {route.normalization} instead of {base.normalization}, "
                "the only difference where stimuli are shown whole."
            )
        lines.append(text)
    return lines


def scenario(found: Sequence[Measured], ways: Mapping[str, Sequence[Route]]) -> list[str]:
    """The scenario of the diagnosis guide that applies, its cause, and what to do, as lines."""
    nets = [m for m in found if m.verdict != UNKNOWN]
    off = [m for m in nets if m.verdict == OFF]
    names = ", ".join(m.entry.title for m in off)
    models = " ".join(m.entry.model for m in off)
    tried = f"`python db.py --check-references --models {models}` tries causes on a part of the stimuli"
    compared = [route for routes_ in ways.values() for route in routes_[1:]]
    base = {test: routes_[0].normalization for test, routes_ in ways.items() if routes_}
    unlike = [r for t, rs in ways.items() for r in rs[1:] if r.normalization == base[t] and r.others]
    by_normalisation = [r for t, rs in ways.items() for r in rs[1:] if r.normalization != base[t] and r.differs]
    if not nets and not compared:
        return ["No scenario can be told: no network could be measured."]
    if off and len(off) == len(nets):
        return [
            "Scenario 2: all results significantly off.",
            "Cause: the stimuli, or the calculation. Names, number and categories of the stimuli were checked before",
            "the run, mean aggregation and conflict stimuli alone are fixed.",
            f"To do: `python db.py --audit-data {SETTING}` opens every file; {tried}.",
        ]
    if off:
        return [
            f"None of the three scenarios: {names} off, the other networks agree.",
            f"Cause: most likely the weights of those. To do: {tried}.",
        ]
    if unlike:
        return [
            "Scenario 1: ResNet results match the paper, DeiT does not." if nets else "Scenario 1: DeiT is not right.",
            "Cause: preparation or loading of DeiT: ways with the same mean and std must decide alike.",
            "To do: compare weights_sha256 of the two in `python db.py --print-eval MODEL cue-conflict`.",
        ]
    if by_normalisation:
        return [
            "Scenario 3: DeiT by torch.hub and by Hugging Face differ significantly.",
            "Cause: the normalisation. Hugging Face's processor of deit-*-patch16-224 has mean and std 0.5.",
            "To do: use the entries *_hub or *_timm, which have ImageNet's mean and std, as in training.",
        ]
    return ["None of the three scenarios: everything that was measured agrees."]
