"""Training of the heads of probes, before a run: features of a frozen network and the labels of a setting in, head out.

A linear head is scikit-learn's logistic regression (L-BFGS); for nearest neighbours the features are kept. All images
of the setting are taken with seed 0, whatever the run is limited to: a head belongs to its name.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.rows import Rows
from testbed.data.samples import Samples, fingerprint_of
from testbed.engine.pairs import Plan
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.made_of import Probe
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import DataError, ModelError, TestbedError
from testbed.metrics.labels import OWN as OWN_LABELS
from testbed.options import RunOptions
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import find, origin_of
from testbed.store.measuring import outputs_of

_MOST_STEPS = 1000  # of L-BFGS, as in CLIP's probes
_AT_ONCE = 1024  # rows of the leave-one-out votes


def with_heads(
    planned: Callable[[], Plan],
    registry: Registry,
    store: Store,
    options: RunOptions,
    devices: Sequence[str] | None,
    quiet: bool,
) -> Plan:
    """The plan, once the heads that its pairs need are trained; a pair whose head cannot be trained fails."""
    plan = planned()
    probes = {p.model.name: p.model for p in plan.having("run") if isinstance(p.model.made_of, Probe)}
    if not probes:
        return plan
    from testbed.engine.devices import chosen_devices

    device = (devices or chosen_devices())[0]
    trained, problems = False, dict[str, str]()
    for model in probes.values():
        assert isinstance(model.made_of, Probe)
        try:
            about = _trained(model, model.made_of, registry, store, options, device)
        except TestbedError as error:
            problems[model.name] = str(error)
            continue
        trained = trained or about is not None
        if about is not None and not quiet:
            print(_in_words(model.name, about), file=sys.stderr, flush=True)
    if trained:  # what is stored of an older head does not stand
        plan = planned()
    for pair in plan.having("run"):
        if pair.model.name in problems:
            pair.action, pair.error = "fail", f"its head cannot be trained: {problems[pair.model.name]}"
    return plan


def _in_words(name: str, about: dict[str, Any]) -> str:
    left_out = ", one image left out at a time" if about["kind"] == "knn" else ""
    early = "" if about.get("converged", True) else f"; not converged after {_MOST_STEPS} steps: a smaller C does"
    return (
        f"{name}: head trained on {about['images']:,} images, {about['accuracy']:.1f} % of them right{left_out}{early}"
    )


@dataclass(frozen=True)
class _Training:
    """What a head is trained on."""

    setting: EvalSetting
    samples: Samples
    rows: Rows

    @property
    def facts(self) -> dict[str, Any]:
        """What it must be equal in for a stored head to stand."""
        rows = self.rows
        return {
            "setting": self.setting.name,
            "version": self.setting.version,
            "data": self.samples.fingerprint,
            "rows": fingerprint_of(rows.indices.tobytes(), rows.targets.tobytes()),
            "seed": 0,
        }

    def classes_of(self, targets: np.ndarray) -> np.ndarray:
        """The class of each label among all of the dataset: a class_sublist has a numbering of its own."""
        sublist, _, keeps = self.setting.choice
        return targets if sublist is None or keeps else np.asarray(sublist, dtype=np.int64)[targets]

    def width(self, classes: np.ndarray) -> int:
        known = self.samples.num_classes or (1000 if self.samples.label_space == "imagenet" else 0)
        return max(known, int(classes.max()) + 1)

    @property
    def class_names(self) -> list[str]:
        """Of folders with names of their own, sorted by class; pictures in other folders of these names have them."""
        folders = {} if self.samples.label_space == "imagenet" else self.samples.class_folders
        labels = sorted(folders.values())
        if not folders or self.samples.num_classes is None or labels != list(range(len(labels))):
            return []
        return sorted(folders, key=lambda name: folders[name])


def _trained(
    model: Model, probe: Probe, registry: Registry, store: Store, options: RunOptions, device: str
) -> dict[str, Any] | None:
    """How the head was made; None where the stored one stands."""
    from testbed.engine.preparing import LocalPreparer
    from testbed.models.classifier import LoadedModel
    from testbed.models.probes import head_facts, head_path, save_head

    exact = replace(options, record=("features",), limit=None, seed=0, amp=None, compile=False, timeout=None)
    setting = registry.runnable(probe.setting)
    preparer = LocalPreparer(exact)
    try:
        samples = preparer.samples(setting)
        training = _Training(setting, samples, setting.rows(samples))
        _refuse_unlabelled(training, probe)
        # Its own classes play no part, and a network without a head has none.
        backbone = LoadedModel(replace(registry.model(probe.backbone), classes=None, columns=None), device, exact)
    finally:
        preparer.close()
    wanted = {
        "kind": probe.kind,
        "backbone": probe.backbone,
        "backbone_sha256": backbone.weights_sha256 or "",
        **({"C": probe.c} if probe.neighbours is None else {"neighbours": probe.neighbours}),
        **training.facts,
    }
    path = head_path(Path(options.results_folder), model.name)
    stored = head_facts(path)
    if stored and all(stored.get(key) == str(value) for key, value in wanted.items()):
        return None
    started = time.monotonic()
    features, targets = _stored_features(store, registry, training, probe, backbone.weights_sha256) or _new_features(
        backbone, training, exact
    )
    labelled = targets >= 0
    features, classes = features[labelled], training.classes_of(targets[labelled])
    width = training.width(classes)
    names = training.class_names
    fit = _linear if probe.neighbours is None else _nearest
    tensors, facts = fit(features, classes, width, probe)
    about = {
        **wanted,
        **facts,
        "width": width,
        "images": len(classes),
        "seconds": round(time.monotonic() - started, 1),
        "class_names": json.dumps(names) if len(names) == width else "[]",
    }
    save_head(path, tensors, about)
    return about


def _refuse_unlabelled(training: _Training, probe: Probe) -> None:
    labels = training.rows.targets
    kinds = len(np.unique(labels[labels >= 0]))
    if training.setting.targets_are == OWN_LABELS or not kinds:
        raise DataError(f"'{probe.setting}' has no labels that are classes: expected some to train a probe on")
    if kinds < 2:
        raise DataError(f"'{probe.setting}' has images of one class: expected two or more to train a probe on")
    labelled = int((labels >= 0).sum())
    if probe.neighbours is not None and probe.neighbours > labelled:
        raise ModelError(
            f"expected at most {labelled} neighbours, the labelled images of '{probe.setting}', got {probe.neighbours}"
        )


def _stored_features(
    store: Store, registry: Registry, training: _Training, probe: Probe, weights_sha256: str | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Recorded by `eval.py --record features` with the same weights on the same images; None where there are none."""
    for evaluation in find(store, [probe.backbone], [probe.setting], "", training.setting.version, OWN):
        origin = origin_of(store, evaluation)
        exact = origin.dtype == "float32" and origin.weights_sha256 == weights_sha256
        if not exact or evaluation.dataset_fingerprint != training.samples.fingerprint:
            continue
        if origin.has_recorded(["features"]) and not evaluation.n_bad:
            try:
                outputs = outputs_of(store, registry, evaluation)
            except TestbedError:  # damaged: computed anew
                continue
            if np.array_equal(outputs.rows.indices, training.rows.indices):
                return np.array(outputs.extras["features"]), outputs.targets
    return None


def _new_features(backbone: Any, training: _Training, options: RunOptions) -> tuple[np.ndarray, np.ndarray]:
    from testbed.engine.predict import predict_all

    # The backbone's outputs are not looked at: there may be any number of them.
    plain = replace(training.setting, class_sublist=None, probe=None, metrics_fn=_measures_nothing)
    outputs = predict_all(backbone, plain, options, training.rows)
    return outputs.extras["features"], outputs.targets


def _measures_nothing(logits: np.ndarray) -> dict[str, float]:
    return {}


def _linear(
    features: np.ndarray, classes: np.ndarray, width: int, probe: Probe
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=probe.c, max_iter=_MOST_STEPS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        fitted.fit(features.astype(np.float64), classes)
    weight, bias = fitted.coef_, fitted.intercept_
    if len(weight) == 1:  # of two classes scikit-learn keeps the second alone
        weight, bias = np.stack([np.zeros_like(weight[0]), weight[0]]), np.array([0.0, bias[0]])
    right = fitted.classes_[(features @ weight.T + bias).argmax(axis=1)] == classes
    tensors = {
        "weight": weight.astype(np.float32),
        "bias": bias.astype(np.float32),
        "classes": fitted.classes_.astype(np.int64),
    }
    early = any(issubclass(one.category, ConvergenceWarning) for one in caught)
    return tensors, {"accuracy": 100 * float(right.mean()), "steps": int(fitted.n_iter_.max()), "converged": not early}


def _nearest(
    features: np.ndarray, classes: np.ndarray, width: int, probe: Probe
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    import torch

    from testbed.models.probes import NearestHead

    assert probe.neighbours is not None
    unit = torch.nn.functional.normalize(torch.from_numpy(np.asarray(features, dtype=np.float32)), dim=1)
    labels = torch.from_numpy(classes.astype(np.int64))
    head, right = NearestHead(unit, labels, width, probe.neighbours), 0
    for start in range(0, len(unit), _AT_ONCE):
        cosines = unit[start : start + _AT_ONCE] @ unit.T
        cosines[torch.arange(len(cosines)), torch.arange(start, start + len(cosines))] = -torch.inf  # not by itself
        votes = head.votes(cosines, min(probe.neighbours, len(unit) - 1))
        right += int((votes.argmax(dim=1) == labels[start : start + _AT_ONCE]).sum())
    return {"features": unit.numpy(), "labels": labels.numpy()}, {"accuracy": 100 * right / len(unit)}


def untrained(plan: Plan, results: Path) -> Sequence[str]:
    """A line for each probe whose head is not there yet."""
    probes = {p.model.name: p.model.made_of for p in plan.having("run") if isinstance(p.model.made_of, Probe)}
    if not probes:
        return []
    from testbed.models.probes import head_path  # torch comes with it

    return [
        f"{name}: its head is trained first, on the images of {probe.setting}"
        for name, probe in probes.items()
        if not head_path(results, name).is_file()
    ]
