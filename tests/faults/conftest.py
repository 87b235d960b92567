"""At the end of `make faults`: how many rounds there were, of which faults, what was lost and how soon runs went on."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each kind of round that tests have told of by `record_property`, in whatever process."""
    rounds: dict[str, list[list[float]]] = defaultdict(list)
    losses: dict[str, int] = defaultdict(int)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            told = [value for name, value in report.user_properties if name == "rounds of"]
            if report.when == "call" and told:
                rounds[told[0]].append([s for name, s in report.user_properties if name == "resumed after"])
                losses[told[0]] += outcome == "failed"
    if not rounds:
        return
    terminalreporter.section("rounds of faults")
    row = "{:<32} {:>6} {:>6} {:>6}  {}".format
    terminalreporter.write_line(row("fault", "rounds", "faults", "losses", "next result after (median, longest)"))
    for name, tried in rounds.items():
        seconds = [s for one in tried for s in one]
        resumed = f"{median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else ""
        terminalreporter.write_line(row(name, len(tried), len(seconds), losses[name], resumed))
