"""Running the tiny registry: in this process, or by eval.py as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

REGISTRY = Path(__file__).with_name("tiny_registry")
ROOT = Path(__file__).parents[1]
MAINS = {"eval.py": "evaluate", "db.py": "database", "autoeval.py": "autoeval", "testbed": "console"}


def run(folder, models, settings, *, overwrite=False, devices=("cpu",), inline=True, ray=None, shard=None, **options):
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
        ray=ray,
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


def call(name, *arguments):
    """As `script`, in this process, where everything is imported: for tests of what is computed and said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_REGISTRY", str(REGISTRY))
        result = invoke(patch, name, *map(str, arguments))
    return subprocess.CompletedProcess([name, *arguments], result.exit_code, result.stdout, result.stderr)


def invoke(patch, name, *words):
    """A command line called in this process, with its worker: that one can be a process is tested elsewhere."""
    from click.testing import CliRunner

    from testbed.engine import run
    from testbed.engine.pools import InlinePool
    from testbed.entries.registry import load_registry

    def inline(devices, options, threads):
        return InlinePool("cpu", options, load_registry(options.registry))

    patch.setattr(run, "ProcessPool", inline)
    main = import_module(f"testbed.commands.{MAINS[name]}").main
    result = CliRunner().invoke(main, words, prog_name=name)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
