"""Running the tiny registry: in this process, or by eval.py as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REGISTRY = Path(__file__).with_name("tiny_registry")
ROOT = Path(__file__).parents[1]


def run(folder, models, settings, *, overwrite=False, devices=("cpu",), inline=True, shard=None, **options):
    """The report and the store of a run inside this process."""
    from testbed.engine.run import run_evaluations
    from testbed.entries.registry import Registry
    from testbed.options import RunOptions
    from testbed.store.opening import open_store

    registry = Registry()
    registry.load_folder(REGISTRY)
    assert not registry.broken
    store = open_store(str(Path(folder) / "results.db"), create=True)
    options = RunOptions(**{"cache_folder": str(Path(folder) / "cache"), "registry": (str(REGISTRY),), **options})
    report = run_evaluations(
        registry,
        store,
        models,
        settings,
        options,
        devices=list(devices),
        overwrite=overwrite,
        inline=inline,
        quiet=True,
        shard=shard,
    )
    return report, store


def logits(store, model, setting, variant=""):
    import numpy as np

    from testbed.entries.registry import Registry
    from testbed.store.evaluation import OWN
    from testbed.store.find import find_one
    from testbed.store.measuring import outputs_of

    registry = Registry()
    registry.load_folder(REGISTRY)
    return np.array(outputs_of(store, registry, find_one(store, model, setting, variant, source=OWN)).logits)


def failure(report):
    """The error of a run's only failed pair."""
    (pair,) = report.failed
    return pair.error


def script(name, *arguments, environment=None, **more):
    """Run eval.py or db.py in a process of its own; returns what it printed and its exit code."""
    if "cwd" in more:  # results go there, and not to the project, whose script it is
        (Path(more["cwd"]) / "results").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, str(ROOT / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TESTBED_REGISTRY": str(REGISTRY), **(environment or {})},
        **more,
    )
