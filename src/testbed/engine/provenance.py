"""What is known of how a result comes about: versions, the commit of the program, what an entry declares."""

from __future__ import annotations

import math
import platform
import subprocess
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from testbed import __version__
from testbed.data.locate import clone
from testbed.entries.eval_setting import EvalSetting
from testbed.store.runs import now

_PACKAGES = ("torch", "torchvision", "timm", "transformers", "numpy", "pillow", "scipy")


def declared_facts(setting: EvalSetting, runnable: EvalSetting) -> dict[str, Any]:
    """A probe that is declared as plain data, and an attack, are recorded with all their parameters."""
    facts: dict[str, Any] = {"probe": repr(setting.probe)} if is_dataclass(setting.probe) else {}
    if runnable.adversarial_attack:
        # JSON has no infinity, which is how some write the norm.
        facts["adversarial_attack"] = {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in runnable.adversarial_attack.items()
        }
    return facts


@cache
def environment() -> dict[str, Any]:
    """Versions of what computed a result."""
    versions = {"testbed": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"versions": versions, "python": platform.python_version(), "git": git_commit(), "recorded_at": now()}


def git_commit() -> str | None:
    """The commit of the clone that computes; None for an installed package, which may lie in a clone of anything."""
    here = clone()
    if here is None:
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"], cwd=here, capture_output=True, text=True
        )
    except OSError:
        return None
    return described.stdout.strip() or None
