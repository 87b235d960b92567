"""Programs on a Ray cluster of their own; at the end of `make faults` a table of its rounds.

The table has how many rounds there were, of which faults, what was lost and how soon runs went on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import tiny
from closed_network import NoClosedNetwork, closed_off

_LIMIT_S = 900


@pytest.fixture(scope="session")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[dict[str, Any]]]:
    """A function that runs a program of this folder in a closed network, and gives the lines of JSON that it prints."""
    pytest.importorskip("ray")
    try:
        closed = closed_off()
    except NoClosedNetwork as error:
        pytest.skip(str(error))

    def told(program: str, *words: str) -> list[dict[str, Any]]:
        for left in (1, 0):  # a start of Ray on a busy machine may fail
            folder = tmp_path_factory.mktemp("ray")
            with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
                environment = {
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([*map(str, (tiny.ROOT / "src", tiny.ROOT / "tests"))]),
                    "TESTBED_REGISTRY": str(tiny.REGISTRY),
                    "TINY_MARKER": str(folder / "marker"),
                    "RAY_TMPDIR": short,  # names of sockets are short
                    "RAY_USAGE_STATS_ENABLED": "0",
                }
                script = [sys.executable, str(Path(__file__).with_name(program)), str(folder), *words]
                ran = subprocess.run(
                    [*closed, *script], capture_output=True, text=True, timeout=_LIMIT_S, env=environment
                )
            lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
            if lines or not left:
                break
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return lines

    return told


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each kind of round that tests have told of by `record_property`, in whatever process."""
    rounds: dict[str, list[list[float]]] = defaultdict(list)
    losses: dict[str, int] = defaultdict(int)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if report.when != "call":
                continue
            kind = ""
            for name, value in report.user_properties:
                if name == "rounds of":
                    kind = value
                    rounds[kind].append([])
                elif name == "resumed after":
                    rounds[kind][-1].append(value)
            if kind:
                losses[kind] += outcome == "failed"  # a test ends with its first round that fails
    if not rounds:
        return
    terminalreporter.section("rounds of faults")
    row = "{:<32} {:>6} {:>6} {:>6}  {}".format
    terminalreporter.write_line(row("fault", "rounds", "faults", "losses", "next result after (median, longest)"))
    for name, tried in rounds.items():
        seconds = [s for one in tried for s in one]
        resumed = f"{median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else ""
        terminalreporter.write_line(row(name, len(tried), len(seconds), losses[name], resumed))
