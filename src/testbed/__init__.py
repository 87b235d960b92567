"""A registry-driven robustness testbed for image classifiers: the words an entry is written in.

Importing this package imports nothing else, neither torch nor numpy. `evaluate`, `predict`, `results`, `logits` and
`outputs` load what they need when called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.commands.notebook import evaluate, logits, outputs, predict, results
    from testbed.data.arrays import ArrayDataset
    from testbed.data.folders import StandardDataset
    from testbed.data.hub import HubDataset
    from testbed.data.manifests import ManifestDataset
    from testbed.data.parquet import ParquetDataset
    from testbed.data.transforms import CropBorder, StandardTransform
    from testbed.entries import registry
    from testbed.entries.eval_setting import EvalSetting
    from testbed.entries.model import Model, StandardNormalization
    from testbed.errors import TestbedError
    from testbed.metrics.accuracy import accuracy_topk
    from testbed.metrics.estimate import Estimate, MetricKind
    from testbed.studies.people.cue_conflict import CueConflictEvaluator

__version__ = "0.1.0"

__all__ = [
    "ArrayDataset",
    "CropBorder",
    "CueConflictEvaluator",
    "Estimate",
    "EvalSetting",
    "HubDataset",
    "ManifestDataset",
    "MetricKind",
    "Model",
    "ParquetDataset",
    "StandardDataset",
    "StandardNormalization",
    "StandardTransform",
    "TestbedError",
    "accuracy_topk",
    "evaluate",
    "logits",
    "outputs",
    "predict",
    "registry",
    "results",
]

# Addresses that registry files and notebooks are written with, and the modules they stand for. A registry file imports
# `testbed.weights`; in which room that module lives is our concern, not the file's.
_PUBLIC_MODULES = {
    "classify": "testbed.models.classify",
    "plotting": "testbed.commands.own_figures",
    "weights": "testbed.models.weights",
    "zero_shot": "testbed.models.zero_shot",
}
# Where each word lives. It is loaded when it is first asked for: a command is there before numpy is.
_WORDS = {
    "ArrayDataset": "testbed.data.arrays",
    "CropBorder": "testbed.data.transforms",
    "CueConflictEvaluator": "testbed.studies.people.cue_conflict",
    "Estimate": "testbed.metrics.estimate",
    "EvalSetting": "testbed.entries.eval_setting",
    "HubDataset": "testbed.data.hub",
    "ManifestDataset": "testbed.data.manifests",
    "MetricKind": "testbed.metrics.estimate",
    "Model": "testbed.entries.model",
    "ParquetDataset": "testbed.data.parquet",
    "StandardDataset": "testbed.data.folders",
    "StandardNormalization": "testbed.entries.model",
    "StandardTransform": "testbed.data.transforms",
    "TestbedError": "testbed.errors",
    "accuracy_topk": "testbed.metrics.accuracy",
    "evaluate": "testbed.commands.notebook",
    "logits": "testbed.commands.notebook",
    "outputs": "testbed.commands.notebook",
    "predict": "testbed.commands.notebook",
    "results": "testbed.commands.notebook",
}


class _PublicModule(ModuleType):
    """Stands at a public address and loads the module behind it when a name is taken from it."""

    def _behind(self) -> ModuleType:
        return import_module(_PUBLIC_MODULES[self.__name__.removeprefix("testbed.")])

    def __getattr__(self, name: str) -> Any:
        # `inspect`, which torch uses while it is imported, asks every module there is for its __file__.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._behind(), name)

    def __dir__(self) -> list[str]:
        return sorted(self._behind().__all__)


for _name in _PUBLIC_MODULES:
    sys.modules[f"testbed.{_name}"] = _PublicModule(f"testbed.{_name}")


def __getattr__(name: str) -> Any:
    if name in _WORDS:
        return getattr(import_module(_WORDS[name]), name)
    if name == "registry":
        return import_module("testbed.entries.registry")
    if name in _PUBLIC_MODULES:
        return sys.modules[f"testbed.{name}"]
    raise AttributeError(f"module 'testbed' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is public, and loaded or not: `dir(testbed)` and completion show the calls before their first use."""
    return sorted([*__all__, *_PUBLIC_MODULES, "__version__"])
