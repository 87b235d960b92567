"""What db.py --watch shows: how far the runs of a database are, in lines that fit, or as data for other programs."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from testbed.commands.causes import abridged
from testbed.engine.progress import duration
from testbed.errors import cause_of, counted, printable
from testbed.store.run_states import ENDED, LIVING, FailedPair, RunState, Sums, Watched

_CAUSES, _CAUSE_LINES = 4, 3  # of failures
_MOST_CAUSES = 20  # of them in data
_SILENT_S = 30.0  # after which it is told that a device or a run says nothing


class Cause(NamedTuple):
    """How many pairs have failed for one reason, and the last of them."""

    pairs: int
    model: str
    eval_setting: str
    error: str


class Line(NamedTuple):
    text: str
    style: str = ""  # bold, red or faint, where there are colours


def page(watched: Watched, width: int, height: int | None = None) -> list[Line]:
    """At most `height` lines of at most `width` characters.

    Where there is no room the devices of a run are folded into one line, then commands and reasons of failures are
    left out, and at last the runs that matter least.
    """
    top, bottom = _top(watched, width), _bottom(watched, width)
    room = None
    if height is not None:
        bottom = bottom[: max(height - len(top) - len(watched.runs) - 2, 0)]
        room = max(height - len(top) - len(bottom), 1)
    lines = [*top, *_of_runs(watched.runs, room), *bottom]
    return [Line(_fitted(line.text, width), line.style) for line in lines[:height]]


def as_data(watched: Watched) -> dict[str, Any]:
    """For JSON: the names are those of docs/clusters.md, and stay."""
    return {
        "at": watched.at,
        "database": watched.database,
        **asdict(watched.sums),
        "pairs_stopped": watched.pairs_stopped,
        "devices": len(watched.devices),
        "runs": [run.as_data() for run in watched.runs],
        "failures": [cause._asdict() for cause in causes(watched)[:_MOST_CAUSES]],
    }


def causes(watched: Watched) -> list[Cause]:
    """The reasons of failures, the newest first, each once."""
    by_cause: dict[str, list[FailedPair]] = {}
    for failed in watched.failures:
        by_cause.setdefault(cause_of(failed.error), []).append(failed)
    return [Cause(len(alike), *alike[0]._replace(error=abridged(alike[0].error))) for alike in by_cause.values()]


def _fitted(text: str, width: int) -> str:
    """In one line, which no name can break out of, cut to the width."""
    text = printable(text)
    return text if len(text) <= width else f"{text[: max(width - 3, 0)]}..."[:width]


def _top(watched: Watched, width: int) -> list[Line]:
    clock = time.strftime("%H:%M:%S", time.localtime(watched.at))
    where = _fitted(watched.database, width - len(clock) - 2)
    lines = [Line(f"{where:<{width - len(clock)}}{clock}", "faint")]
    sums = watched.sums
    if sums.pairs_planned:
        lines.append(Line(_bar(sums, width), "bold"))
    return [*lines, Line(_pace(watched)), Line("")]


def _bar(sums: Sums, width: int) -> str:
    """By images, which take the time, where there are any."""
    done, planned = (sums.images_done, sums.images_planned) if sums.images_planned else (sums.pairs_done, 0)
    share = done / (planned or sums.pairs_planned)
    before = f"{sums.pairs_done:,} of {counted(sums.pairs_planned, 'pair')} "
    after = f" {math.floor(100 * share):3d} %"
    room = max(width - len(before) - len(after) - 2, 0)
    full = math.floor(share * room)
    return f"{before}[{'#' * full}{'.' * (room - full)}]{after}"


def _pace(watched: Watched) -> str:
    sums = watched.sums
    parts = [f"{sums.pairs_failed:,} failed"] if sums.pairs_failed else []
    if not any(run.state == LIVING for run in watched.runs):
        return ", ".join([*parts, "no run is at work"])
    if watched.devices:
        parts.append(_speed(watched.devices, sums.images_per_second))
    if sums.pairs_done + sums.pairs_failed < sums.pairs_planned:
        parts.append("time left unknown" if sums.seconds_left is None else f"{duration(sums.seconds_left)} left")
    return ", ".join(parts)


def _speed(devices: Sequence[dict[str, Any]], speed: float) -> str:
    """`64 devices, 2 idle, 12,300 images/s`."""
    idle = sum(device["at"] is None for device in devices)
    return f"{counted(len(devices), 'device')}{f', {idle:,} idle' if idle else ''}, {speed:,.0f} images/s"


# ---- runs ----------------------------------------------------------------------------------------------------


def _of_runs(runs: Sequence[RunState], room: int | None) -> list[Line]:
    """A line for each run; then, as far as there is room, its devices in one line, its command, all its devices."""
    free = math.inf if room is None else room
    if len(runs) > free:
        kept = max(int(free) - 1, 0)
        return [*map(_head, runs[:kept]), Line(f"and {counted(len(runs) - kept, 'run')} more", "faint")]
    free -= len(runs)
    below: dict[str, list[Line]] = {run.id: [] for run in runs}
    with_devices = [run for run in runs if run.devices]
    for run in with_devices[: int(min(free, len(with_devices)))]:
        below[run.id] = [Line(f"  {_speed(run.devices, run.images_per_second)}")]
        free -= 1
    for run in with_devices:
        if below[run.id] and len(run.devices) - 1 <= free:
            below[run.id] = [_device(device) for device in run.devices]
            free -= len(run.devices) - 1
    for run in runs:
        if run.state != ENDED and free >= 1:
            below[run.id].insert(0, Line(f"  {_shortened(run.command)}", "faint"))
            free -= 1
    return [line for run in runs for line in (_head(run), *below[run.id])]


def _head(run: RunState) -> Line:
    who = f"{run.host}, process {run.process}"
    counts = [f"{run.pairs_done:,} done", *([f"{run.pairs_failed:,} failed"] if run.pairs_failed else [])]
    counts += [f"{run.pairs_under_way:,} under way"] if run.pairs_under_way and run.state == LIVING else []
    told = ", ".join(counts)
    if run.state == LIVING:
        heard = f", heard of {duration(run.silent_s)} ago" if run.silent_s > _SILENT_S else ""
        return Line(f"{who}, for {duration(run.for_s)}{heard}: {told}", "bold")
    if run.state == ENDED:
        return Line(f"{who}, ended {duration(run.silent_s)} ago: {told}", "faint")
    return Line(f"{who}, silent for {duration(run.silent_s)}: {told}", "red")


def _shortened(command: str) -> str:
    """Without the folder of the script."""
    script, *words = command.split(" ")
    return " ".join([script.rpartition("/")[2], *words])


def _device(device: dict[str, Any]) -> Line:
    at, silent_s = device["at"], device["silent_s"]
    doing = "idle" if at is None else at
    if at is not None and silent_s is not None and silent_s > _SILENT_S:
        doing = f"silent for {duration(silent_s)}: {doing}"
    return Line(f"  {device['device']:<8} {device['images_per_second']:>8,.0f} images/s  {doing}")


def _bottom(watched: Watched, width: int) -> list[Line]:
    failed = causes(watched)
    lines = [Line(line, "red") for cause in failed[:_CAUSES] for line in _told(cause, width)]
    if len(failed) > _CAUSES:
        lines.append(Line(f"and for {counted(len(failed) - _CAUSES, 'other reason')}: db.py --status", "faint"))
    if watched.pairs_stopped:
        stopped = counted(watched.pairs_stopped, "pair")
        lines.append(Line(f"stopped: {stopped}, of runs that are gone; the same command goes on with them"))
    return [Line(""), *lines] if lines else []


def _told(cause: Cause, width: int) -> list[str]:
    """The reason comes before the rest, which may be cut."""
    last = f"{cause.model} on {cause.eval_setting}"
    text = f"failed: {last}: {cause.error}"
    if cause.pairs > 1:
        text = f"failed: {counted(cause.pairs, 'pair')}: {cause.error} (the last is {last})"
    return textwrap.wrap(
        printable(text),
        max(width, 20),
        subsequent_indent="  ",
        max_lines=_CAUSE_LINES,
        placeholder=" ...",
        break_on_hyphens=False,
    )
