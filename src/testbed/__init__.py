"""A registry-driven robustness testbed for image classifiers: the words an entry is written in.

Importing this package imports no torch. `evaluate`, `results` and `logits` load what they need when called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed import registry
from testbed.data.arrays import ArrayDataset
from testbed.data.folders import StandardDataset
from testbed.data.manifests import ManifestDataset
from testbed.data.transforms import CropBorder, StandardTransform
from testbed.entries import EvalSetting, Model, StandardNormalization
from testbed.errors import TestbedError
from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.estimate import Estimate

if TYPE_CHECKING:
    from testbed.cue_conflict import CueConflictEvaluator
    from testbed.notebook import evaluate, logits, results

__version__ = "0.1.0"

__all__ = [
    "ArrayDataset",
    "CropBorder",
    "CueConflictEvaluator",
    "Estimate",
    "EvalSetting",
    "ManifestDataset",
    "Model",
    "StandardDataset",
    "StandardNormalization",
    "StandardTransform",
    "TestbedError",
    "accuracy_topk",
    "evaluate",
    "logits",
    "registry",
    "results",
]


def __getattr__(name: str) -> Any:
    if name in ("evaluate", "results", "logits"):
        from testbed import notebook

        return getattr(notebook, name)
    if name == "CueConflictEvaluator":
        from testbed.cue_conflict import CueConflictEvaluator

        return CueConflictEvaluator
    raise AttributeError(f"module 'testbed' has no attribute {name!r}")
