"""What would explain a result that is not the published one: causes are tried on a few hundred images, not guessed.

One thing is changed at a time and the images are run again by the same code: the entry as it is now, normalisation,
resize and crop, interpolation, another way to load the same weights. How 1000 classes become 16 categories is tried on
the stored logits of all images. Stored result and trial share their images, so the difference between them carries
over to the whole set with little noise.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from testbed.data.locate import data_roots
from testbed.data.select import even_sample
from testbed.data.transforms import StandardTransform
from testbed.entries import EvalSetting, Model, StandardNormalization
from testbed.errors import TestbedError
from testbed.metrics.categories16 import RULES
from testbed.outputs import Outputs, measure, outputs_of
from testbed.references.table import Check
from testbed.registry import Registry
from testbed.store import queries
from testbed.store.database import Store

IMAGES = 320
_CONFIRMED_ON = 5  # so many times as many images, for the best explanation
_GROUPS = 20  # of the jackknife
# Numbers of images rather than percentages: they grow with the set.
_COUNTS = ("shape_correct", "texture_correct", "neither")

_NORMALISATIONS: dict[str, StandardNormalization | None] = {
    "ImageNet's mean and std": StandardNormalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mean 0.5 and std 0.5": StandardNormalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none, pixels from 0 to 1": None,
    "none, pixels from 0 to 255": StandardNormalization((0, 0, 0), (1 / 255, 1 / 255, 1 / 255)),
}
_CROP_RATIOS = (0.875, 0.9, 1.0)
_INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


@dataclass(frozen=True)
class Trial:
    """One thing changed."""

    cause: str
    change: str
    model: Model
    setting: EvalSetting


@dataclass(frozen=True)
class Guess:
    """What a metric would be on the whole set with the change, and how far that may be off (two standard errors)."""

    value: float
    margin: float


@dataclass(frozen=True)
class Finding:
    """What a change does to each checked metric, and how much of the difference to the published values it leaves."""

    cause: str
    change: str
    guesses: Mapping[str, Guess] = field(default_factory=dict)
    left: float = math.nan  # 0: the published values; 1: as far from them as the stored result
    explains: bool = False
    images: int = 0
    error: str = ""

    @property
    def title(self) -> str:
        return f"{self.cause}: {self.change}"


@dataclass(frozen=True)
class Diagnosis:
    """All that was tried for one pair, the best explanation first."""

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
    """Try what may explain the checks of one pair, of which at least one is outside its tolerance."""
    name, setting_name = checks[0].model, checks[0].reference.eval_setting
    evaluation = queries.completed(store, name, setting_name)
    stored = outputs_of(store, registry, evaluation)
    setting = registry.runnable(setting_name)
    checkpoint = (evaluation.row["provenance"] or {}).get("checkpoint")
    entry = registry.model(name.removesuffix(f"@{Path(checkpoint).stem}") if checkpoint else name)
    roots = roots or data_roots()
    trials = {(t.cause, t.change): t for t in _trials(registry, entry, setting, checks, roots)}

    def tried(trial: Trial, n: int) -> Finding:
        scale = _Scale(checks, setting, stored, even_sample(stored.samples.targets, n))
        tell(f"{trial.cause}: {trial.change}, {len(scale.rows):,} images")
        try:
            return scale.finding(trial.cause, trial.change, _run(trial, scale, checkpoint, roots, devices))
        except TestbedError as error:
            return Finding(trial.cause, trial.change, error=str(error))

    findings = list(_aggregations(checks, setting, stored))
    findings += [tried(trial, n_images) for trial in trials.values()]
    findings.sort(key=_by_merit)
    best = trials.get((findings[0].cause, findings[0].change))
    if findings[0].explains and best is not None and findings[0].images < len(stored.logits):
        findings[0] = tried(best, _CONFIRMED_ON * n_images)
        findings.sort(key=_by_merit)
    return Diagnosis(name, setting_name, len(stored.logits), findings)


def _by_merit(finding: Finding) -> tuple[bool, bool, float]:
    return bool(finding.error), not finding.explains, finding.left


# ---- from some images to all -----------------------------------------------------------------------------


class _Scale:
    """Turns the outputs of a trial on some images into what it would give on all of them."""

    def __init__(self, checks: Sequence[Check], setting: EvalSetting, stored: Outputs, rows: np.ndarray) -> None:
        self.checks = [c for c in checks if c.value is not None]
        self.setting = setting
        self.rows = rows
        self.indices = stored.samples.indices[rows]
        self.factor = len(stored.logits) / len(rows)
        self._before = _rows(stored, rows)

    def finding(self, cause: str, change: str, after: Outputs) -> Finding:
        differences = self._differences(after)
        guesses = {}
        for c in self.checks:
            metric = c.reference.metric
            assert c.value is not None
            grow = self.factor if metric.startswith(_COUNTS) else 1.0
            value, margin = differences[metric]
            guesses[metric] = Guess(c.value + grow * value, 2 * grow * margin)
        return _judged(self.checks, cause, change, guesses, len(self.rows))

    def _differences(self, after: Outputs) -> dict[str, tuple[float, float]]:
        """Trial minus stored result on the shared images, with the standard error of a grouped jackknife."""
        names = [c.reference.metric for c in self.checks]

        def difference(rows: np.ndarray) -> np.ndarray:
            one, other = (self._values(_rows(o, rows), names) for o in (after, self._before))
            return one - other

        n = len(self.rows)
        whole = difference(np.arange(n))
        groups = min(_GROUPS, n)
        parts = np.stack([difference(np.flatnonzero(np.arange(n) % groups != g)) for g in range(groups)])
        counts = np.array([name.startswith(_COUNTS) for name in names])
        parts[:, counts] *= n / (n - n / groups)  # counts of the remaining images, as of all of them
        error = np.sqrt((groups - 1) / groups * ((parts - parts.mean(axis=0)) ** 2).sum(axis=0))
        return {name: (float(w), float(e)) for name, w, e in zip(names, whole, error, strict=True)}

    def _values(self, outputs: Outputs, names: Sequence[str]) -> np.ndarray:
        found = measure(self.setting, None, outputs)
        return np.array([found[name].value if name in found else math.nan for name in names])


def _judged(checks: Sequence[Check], cause: str, change: str, guesses: Mapping[str, Guess], images: int) -> Finding:
    """A change explains the published values if it leaves under half the difference and all within reach."""
    left, reached = [], True
    for c in checks:
        guess, reference = guesses[c.reference.metric], c.reference
        miss = abs(guess.value - reference.value)
        reached &= miss <= reference.tolerance + guess.margin
        if not c.inside:
            left.append(miss / abs(c.difference))
    mean = float(np.mean(left))
    return Finding(cause, change, guesses, mean, bool(reached and mean < 0.5), images)


def _rows(outputs: Outputs, rows: np.ndarray) -> Outputs:
    extras = {name: array[rows] for name, array in outputs.extras.items()}
    return Outputs(np.asarray(outputs.logits)[rows], outputs.samples.rows(rows), extras)


# ---- what is tried ---------------------------------------------------------------------------------------


def _aggregations(checks: Sequence[Check], setting: EvalSetting, stored: Outputs) -> Iterator[Finding]:
    """Other ways to decide among the 16 categories, from all stored logits: exact."""
    decided = getattr(setting.metrics_fn, "decided", None)
    if decided is None:
        return
    checks = [c for c in checks if c.value is not None]
    for rule in RULES:
        values = decided(stored.logits, list(stored.samples.ids), rule)
        plain = {c.reference.metric: _plain(c.reference.metric) for c in checks}
        if not set(plain.values()) <= set(values):  # a number of one category, or of one condition
            return
        guesses = {metric: Guess(values[name].value, 0.0) for metric, name in plain.items()}
        if any(guesses[c.reference.metric].value != c.value for c in checks):
            yield _judged(checks, "aggregation", rule, guesses, len(stored.logits))


def _plain(metric: str) -> str:
    """The metric's name without the aggregation at its end."""
    base, _, last = metric.rpartition("_")
    return base if last in RULES else metric


def _trials(
    registry: Registry, model: Model, setting: EvalSetting, checks: Sequence[Check], roots: Sequence[Path]
) -> Iterator[Trial]:
    model = replace(model, classifier_loader=cache(model.classifier_loader))
    yield Trial("stored result", "run again as registered now", model, setting)
    for change, normalization in _normalisations(model):
        yield Trial("normalisation", change, replace(model, normalization=normalization), setting)
    transform = setting.transforms_for(model)[1]
    if isinstance(model.transform, StandardTransform) and isinstance(transform, StandardTransform):
        for change, other in _geometries(model.transform, setting):
            # The transform as it stands is what is tried, so the setting must not replace it again.
            yield Trial("resize and crop", change, replace(model, transform=other), replace(setting, resize=None))
        if not _fits(setting, transform, roots):
            for kind in _INTERPOLATIONS:
                if kind != transform.interpolation:
                    other = replace(model.transform, interpolation=kind)
                    yield Trial("interpolation", kind, replace(model, transform=other), setting)
    for name in dict.fromkeys(n for c in checks for n in c.reference.models if n != model.name):
        try:
            yield Trial("loading route", name, registry.model(name), setting)
        except TestbedError:
            continue  # a name that nothing here can load


def _normalisations(model: Model) -> Iterator[tuple[str, StandardNormalization | None]]:
    own = model.normalization
    for change, other in _NORMALISATIONS.items():
        if other != own:
            yield change, other
    if isinstance(own, StandardNormalization):
        space = "BGR" if own.input_space == "RGB" else "RGB"
        yield f"{space} instead of {own.input_space}", replace(own, input_space=space)


def _geometries(own: StandardTransform, setting: EvalSetting) -> Iterator[tuple[str, StandardTransform]]:
    """Transforms to the same input size; where pictures are shown whole, the model's own is the usual mistake."""
    crop = own.img_crop_size
    used = own.whole() if setting.resize == "whole" else own
    tried = [used]
    candidates = [("the whole picture, nothing cropped", own.whole()), (_described(own), own)]
    if isinstance(crop, int) and setting.resize is None:
        others = [StandardTransform(math.floor(crop / ratio), crop, own.interpolation) for ratio in _CROP_RATIOS]
        candidates += [(_described(other), other) for other in others]
    for change, candidate in candidates:
        if candidate not in tried:
            tried.append(candidate)
            yield change, candidate


def _described(transform: StandardTransform) -> str:
    return f"shorter side to {transform.img_resize_size}, centre crop of {transform.img_crop_size}"


def _fits(setting: EvalSetting, transform: StandardTransform, roots: Sequence[Path]) -> bool:
    """Whether the first picture passes without being resized, as stimuli made for this input size do."""
    assert setting.dataset is not None
    try:
        image = setting.dataset.open(roots).load(0)
        size = setting.transform(image).size if setting.transform else image.size
    except TestbedError:
        return False
    return transform.img_crop_size is None and transform.img_resize_size == (size[1], size[0])


def _run(
    trial: Trial, scale: _Scale, checkpoint: str | None, roots: Sequence[Path], devices: Sequence[str] | None
) -> Outputs:
    """The trial's outputs on the chosen images, by the code every evaluation goes through."""
    from testbed.run.devices import chosen_devices
    from testbed.run.evaluate import run_evaluations
    from testbed.run.options import RunOptions
    from testbed.store.database import open_store

    setting = replace(trial.setting, idx_subsample_list=[int(i) for i in scale.indices], derived_from=None, size=None)
    object.__setattr__(setting, "noise_key", trial.setting.noise_key)
    registry = Registry()
    registry.models.add(trial.model, "diagnosis")
    registry.eval_settings.add(setting, "diagnosis")
    with tempfile.TemporaryDirectory(prefix="testbed-") as folder:
        store = open_store(str(Path(folder) / "results.db"), create=True)
        options = RunOptions(
            data_roots=tuple(map(str, roots)), cache_gb=0, chunk_size=len(scale.rows), checkpoint=checkpoint
        )
        report = run_evaluations(
            registry,
            store,
            [trial.model.name],
            [setting.name],
            options,
            devices=list(devices or chosen_devices())[:1],
            inline=True,
            quiet=True,
        )
        if report.failed:
            raise TestbedError(report.failed[0].error)
        (pair,) = report.plan.pairs
        outputs = outputs_of(store, registry, queries.completed(store, pair.stored_model, setting.name))
        kept: Outputs = _rows(outputs, np.arange(len(outputs.logits)))  # in memory: the files go with the folder
        store.engine.dispose()
    return kept
