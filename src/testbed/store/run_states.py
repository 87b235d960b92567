"""How far the runs on a database are, put together for whoever watches them.

What is counted: everything since the last time that no run was at work for a minute. What `planned` means: a run plans
those of the pairs it was asked for that were not done when it began. Runs that were asked for the same pairs (the same
command on several machines, or again after a kill) are one work, of which the plan of the first counts: the others
plan no more than what it has left. An evaluation tells which run has made it, so that no pair is done twice. Works are
added up: a pair that two different commands ask for is planned in both, and done in both once each has come to it.
Shards that are asked for different pairs are works of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from testbed.store import leases, schema
from testbed.store.masking import masked
from testbed.store.runs import Runs

LIVING, SILENT, ENDED = "living", "silent", "ended"
RECENT_S = 15 * 60.0  # how long a run that is silent or has ended is still told of
_MOST_FAILURES = 1000  # whose reasons are read

e, r = schema.evaluations.c, schema.runs.c


class FailedPair(NamedTuple):
    model: str
    eval_setting: str
    error: str


@dataclass(frozen=True)
class RunState:
    """One run. Its pairs and images are those that it did itself."""

    id: str
    host: str
    process: int
    command: str
    state: str  # living, silent (not heard of for long, or killed) or ended
    begun_at: float  # by the clock of the database, as every time here
    for_s: float  # from its beginning to its last word
    silent_s: float  # since then
    pairs_done: int
    pairs_failed: int
    pairs_under_way: int
    progress: Mapping[str, Any]  # as testbed.engine.telling told it; nothing of an older program's run

    @property
    def images(self) -> Counter[str]:
        """planned, finished, elsewhere, failed, under_way."""
        return Counter(self.progress.get("images", {}))

    @property
    def images_done(self) -> int:
        # What a run that is gone had under way is found by the one that goes on with it.
        return self.images["finished"] + (self.images["under_way"] if self.state == LIVING else 0)

    @property
    def images_failed(self) -> float:
        """Of those of its failures that still stand: another run may have tried them again."""
        told = self.progress["pairs"]["failed"] if self.progress else 0
        return self.images["failed"] * min(self.pairs_failed / told, 1.0) if told else 0.0

    @property
    def images_per_second(self) -> float:
        return self.progress.get("images_per_second", 0.0) if self.state == LIVING else 0.0

    @property
    def devices(self) -> list[dict[str, Any]]:
        return self.progress.get("devices", []) if self.state == LIVING else []

    def as_data(self) -> dict[str, Any]:
        told = {k: v for k, v in asdict(self).items() if k != "progress"}
        done = {"images_done": self.images_done, "images_per_second": self.images_per_second}
        return {**told, **done, "devices": self.devices}


@dataclass(frozen=True)
class Sums:
    """Of one work, or of several."""

    pairs_planned: int = 0
    pairs_done: int = 0
    pairs_failed: int = 0
    pairs_under_way: int = 0
    images_planned: int = 0  # of pairs that have not failed
    images_done: int = 0
    images_per_second: float = 0.0
    seconds_left: float | None = 0.0  # of works that somebody is at; None where nothing moves

    def __add__(self, other: Sums) -> Sums:
        mine, theirs = asdict(self), asdict(other)
        left = (mine.pop("seconds_left"), theirs.pop("seconds_left"))
        seconds_left = None if None in left else max(left)  # works go on beside each other
        return Sums(**{name: mine[name] + theirs[name] for name in mine}, seconds_left=seconds_left)


@dataclass(frozen=True)
class Watched:
    """A database at one moment."""

    at: float
    database: str
    sums: Sums
    pairs_stopped: int  # under way of runs that are gone: the same command goes on with them
    runs: Sequence[RunState]  # living, silent, ended; each kind with the oldest or last heard of first
    failures: Sequence[FailedPair] = field(default=())  # newest first

    @property
    def devices(self) -> list[dict[str, Any]]:
        return [device for run in self.runs for device in run.devices]


def watched(store: Runs) -> Watched:
    """What there is to see now, read in one transaction."""
    with store.reading() as connection:
        now = connection.execute(sa.select(leases.clock(connection))).scalar_one()
        since = _always_at_work_since(connection, now)
        runs = _runs(connection, min(since, now - RECENT_S), now)
        living = {run.id for run in runs if run.state == LIVING}
        shown = [run for run in runs if run.state == LIVING or run.silent_s < RECENT_S]
        running = sa.select(e.run_id, sa.func.count()).where(e.status == "running").group_by(e.run_id)
        stopped = sum(n for run_id, n in connection.execute(running) if run_id not in living)
        failures = _failures(connection, [run.id for run in shown])
    sums = sum((_sum(work) for work in _works(runs, since)), Sums())
    if not living and sums.images_done < sums.images_planned:
        sums = replace(sums, seconds_left=None)
    return Watched(now, store.where, sums, stopped, sorted(shown, key=_importance), failures)


def _importance(run: RunState) -> tuple[int, float]:
    kind = (LIVING, SILENT, ENDED).index(run.state)
    return kind, run.begun_at if run.state == LIVING else run.silent_s


def _always_at_work_since(connection: sa.Connection, now: float) -> float:
    """When the first of the runs began that were at work without a pause until now, or until lately."""
    last = connection.execute(sa.select(sa.func.max(r.heartbeat_at)).where(r.heartbeat_at > now - RECENT_S)).scalar()
    since = now if last is None else last
    begun = sa.func.min(sa.func.coalesce(r.begun_at, r.heartbeat_at))
    while True:
        beside = r.heartbeat_at >= since - leases.STALE_AFTER_S
        first = connection.execute(sa.select(begun).where(beside)).scalar()
        if first is None or first >= since:
            return since
        since = first


def _runs(connection: sa.Connection, since: float, now: float) -> list[RunState]:
    """All that were heard of since then."""
    rows = connection.execute(sa.select(schema.runs).where(r.heartbeat_at >= since)).mappings().all()
    counts = _counts(connection, [row["id"] for row in rows])
    return [_state(row, counts[row["id"]], now) for row in rows]


def _counts(connection: sa.Connection, ids: Collection[str]) -> Mapping[str, Counter[str]]:
    """Of each run: how many of its evaluations are in which status."""
    kinds = ("completed", "failed", "running")
    query = sa.select(e.run_id, e.status, sa.func.count()).where(e.status.in_(kinds), e.run_id.in_(ids))
    counts = {id_: Counter[str]() for id_ in ids}
    for run_id, status, n in connection.execute(query.group_by(e.run_id, e.status)):
        counts[run_id][status] = n
    return counts


def _state(row: Mapping[Any, Any], counts: Counter[str], now: float) -> RunState:
    silent_s = max(now - row["heartbeat_at"], 0.0)
    lives = leases.lives({**row, "silent_s": silent_s})
    begun_at = row["heartbeat_at"] if row["begun_at"] is None else row["begun_at"]
    return RunState(
        id=row["id"],
        host=row["host"],
        process=row["pid"],
        command=masked(row["command"]),
        state=ENDED if row["ended_at"] is not None else LIVING if lives else SILENT,
        begun_at=begun_at,
        for_s=max(row["heartbeat_at"] - begun_at, 0.0),
        silent_s=silent_s,
        pairs_done=counts["completed"],
        pairs_failed=counts["failed"],
        pairs_under_way=counts["running"],
        progress=row["progress"] or {},
    )


def _works(runs: Sequence[RunState], since: float) -> list[list[RunState]]:
    """The runs of each work that began since then, in their order; of an older program's the work is not known."""
    works: dict[str, list[RunState]] = {}
    for run in sorted(runs, key=lambda run: run.begun_at):
        if run.begun_at >= since and run.progress:
            works.setdefault(run.progress["work"], []).append(run)
    return list(works.values())


def _sum(work: Sequence[RunState]) -> Sums:
    plan, seen = work[0].progress["pairs"], work[0].images
    # What the first has found done by runs of another work is in its own count alone.
    pairs_done = max(sum(run.pairs_done for run in work), plan["done"])
    pairs_failed = sum(run.pairs_failed for run in work)
    images_done = max(sum(run.images_done for run in work), work[0].images_done + seen["elsewhere"])
    speed = sum(run.images_per_second for run in work)
    planned = max(round(seen["planned"] - sum(run.images_failed for run in work)), 0)
    left = max(planned - images_done, 0) if any(run.state == LIVING for run in work) else 0
    return Sums(
        pairs_planned=max(plan["planned"], pairs_done + pairs_failed),
        pairs_done=pairs_done,
        pairs_failed=pairs_failed,
        pairs_under_way=sum(run.pairs_under_way for run in work if run.state == LIVING),
        images_planned=planned,
        images_done=min(images_done, planned),
        images_per_second=speed,
        seconds_left=0.0 if not left else left / speed if speed else None,
    )


def _failures(connection: sa.Connection, ids: Collection[str]) -> list[FailedPair]:
    m, s = schema.models, schema.eval_settings
    query = (
        sa.select(m.c.name, s.c.name, e.error)
        .join_from(schema.evaluations, m, m.c.id == e.model_id)
        .join(s, s.c.id == e.eval_setting_id)
        .where(e.status == "failed", e.run_id.in_(ids))
        .order_by(e.finished_at.desc(), e.id.desc())
        .limit(_MOST_FAILURES)
    )
    return [FailedPair(model, setting, error or "") for model, setting, error in connection.execute(query)]
