"""Giving chunks to workers and taking results back, until nothing is left to do."""

from __future__ import annotations

import signal
import time
from collections import deque
from dataclasses import dataclass, field

from testbed.engine.messages import ChunkDone, ChunkFailed, Event, Note, Progress, Task
from testbed.engine.plan import Pair, Plan
from testbed.engine.pools import Died, Member, Pool
from testbed.engine.progress import ProgressReport
from testbed.engine.recording import Recorder
from testbed.errors import StoreError, in_words
from testbed.store.database import Busy

_TRIES = 3  # how often a chunk may take its worker down with it
_WAIT_S = 1.0


@dataclass
class _Underway:
    """A pair that has been begun and is not finished."""

    pair: Pair
    evaluation_id: int
    waiting: deque[Task]  # chunks that no worker has been given
    running: int = 0  # chunks that workers have in hand
    deaths: dict[int, int] = field(default_factory=dict)  # by first row of a chunk: how many workers it has killed

    @property
    def images_left(self) -> int:
        return sum(t.stop - t.start for t in self.waiting)


@dataclass
class Outcome:
    """What became of a plan."""

    completed: list[Pair] = field(default_factory=list)
    derived: list[Pair] = field(default_factory=list)
    failed: list[Pair] = field(default_factory=list)


class Dispatcher:
    """Runs a plan over a pool of workers and records every result as it is whole."""

    def __init__(
        self, plan: Plan, pool: Pool, recorder: Recorder, report: ProgressReport, overwrite: bool = False
    ) -> None:
        self._plan = plan
        self._pool = pool
        self._recorder = recorder
        self._report = report
        self._overwrite = overwrite
        # By model, because loading a network costs more than changing the setting.
        self._to_begin: dict[str, deque[Pair]] = {}
        for pair in plan.having("run"):
            self._to_begin.setdefault(pair.model.name, deque()).append(pair)
        self._busy: list[Pair] = []  # another run on the same database is at them
        self._underway: dict[int, _Underway] = {}
        self._broken_models: dict[str, str] = {}  # could not be loaded: their further pairs fail without a try
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """What needs no worker first, then give and take until nothing is left."""
        for pair in self._plan.having("fail"):
            self._fail(pair, pair.error)
        for pair in self._plan.having("derive"):
            parent = self._plan.parent_of(pair)
            if parent is None or parent.action == "done":
                self._derive(pair)
        while self._to_begin or self._underway or self._busy:
            self._recorder.store.heartbeat()
            self._hand_out()
            for member, event in self._pool.events(_WAIT_S):
                self._handle(member, event)
            if not self._to_begin and not self._underway:
                self._look_after_busy()
        return self.outcome

    # ---- giving ------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Give work to every worker with room.

        Idle workers come first: a second chunk for one that is busy must not be what another is waiting for.
        """
        for room in (0, 1):
            for member in self._pool.members:
                if member.has_room and len(member.tasks) <= room:
                    task = self._next_task(member)
                    if task is not None:
                        self._pool.give(member, task)

    def _next_task(self, member: Member) -> Task | None:
        """Prefer the pair and the model the worker has at hand, then a new pair, then helping another."""
        last = member.tasks[-1] if member.tasks else None
        loaded = last.model if last is not None else member.last_model
        waiting = [u for u in self._underway.values() if u.waiting]
        same = [u for u in waiting if u.pair.model.name == loaded]
        if not same:
            begun = self._begin(loaded)
            if begun is not None:
                same = [begun]
        chosen = same or sorted(waiting, key=lambda u: -u.images_left)
        if not chosen:
            return None
        underway = chosen[0]
        underway.running += 1
        member.last_model = underway.pair.model.name
        return underway.waiting.popleft()

    def _begin(self, loaded: str | None) -> _Underway | None:
        """Begin a pair: of the loaded model if there is one, else of a model that nobody is working on."""
        while self._to_begin:
            pair = self._choose(loaded)
            if pair.model.name in self._broken_models:
                self._fail(pair, self._broken_models[pair.model.name])
                continue
            try:
                underway = self._take(pair)
            except Busy as busy:
                self._report.note(f"{pair.label}: {busy}; waiting for it")
                self._busy.append(pair)
                continue
            if underway is not None:
                return underway
        return None

    def _take(self, pair: Pair) -> _Underway | None:
        """Claim a pair. None where nothing but the result was missing, which then is made at once."""
        evaluation_id, tasks = self._recorder.begin(pair, resumable=not self._overwrite)
        self._report.begun(pair, pair.n_images - sum(t.stop - t.start for t in tasks))
        if not tasks:  # the earlier run was killed between the last chunk and the result
            self._finish(pair, evaluation_id)
            return None
        underway = _Underway(pair, evaluation_id, deque(tasks))
        self._underway[evaluation_id] = underway
        return underway

    def _choose(self, loaded: str | None) -> Pair:
        """The next pair to begin: of the loaded model, of one nobody is working on, or of the first there is."""
        taken = {u.pair.model.name for u in self._underway.values()}
        model = loaded if loaded in self._to_begin else next((m for m in self._to_begin if m not in taken), None)
        model = model or next(iter(self._to_begin))
        pair = self._to_begin[model].popleft()
        if not self._to_begin[model]:
            del self._to_begin[model]
        return pair

    # ---- taking ------------------------------------------------------------------------------------------

    def _handle(self, member: Member, event: Event | Died) -> None:
        if isinstance(event, Progress):
            self._report.advance(member.label, event.images)
        elif isinstance(event, Note):
            self._report.note(event.text)
        elif isinstance(event, ChunkDone):
            member.tasks.popleft()
            self._chunk_done(member, event)
        elif isinstance(event, ChunkFailed):
            member.tasks.popleft()
            self._chunk_failed(event)
        elif isinstance(event, Died):
            self._worker_died(member, event)

    def _chunk_done(self, member: Member, event: ChunkDone) -> None:
        task = event.task
        underway = self._underway.get(task.evaluation_id)
        if underway is None:  # the pair has failed in the meantime
            return
        underway.running -= 1
        self._recorder.chunk(event, member.label)
        if not underway.waiting and not underway.running:
            del self._underway[task.evaluation_id]
            self._finish(underway.pair, task.evaluation_id)

    def _chunk_failed(self, event: ChunkFailed) -> None:
        if event.scope == "run":
            raise StoreError(f"{event.error}; what is finished is kept: make room and run the same command again")
        if event.scope == "model":
            self._broken_models[event.task.model] = event.error
        underway = self._underway.pop(event.task.evaluation_id, None)
        if underway is not None:
            self._fail(underway.pair, event.error, event.details)

    def _worker_died(self, member: Member, event: Died) -> None:
        """Its chunks go back to the front; one that has cost several workers fails its pair."""
        how = _end_of_process(event.exit_code)
        self._report.note(f"worker {member.label} died ({how}), starting another")
        for place, task in enumerate(reversed(event.tasks)):
            underway = self._underway.get(task.evaluation_id)
            if underway is None:
                continue
            underway.running -= 1
            underway.waiting.appendleft(task)
            if place == len(event.tasks) - 1:  # the one it was at
                deaths = underway.deaths[task.start] = underway.deaths.get(task.start, 0) + 1
                if deaths >= _TRIES:
                    del self._underway[task.evaluation_id]
                    self._fail(
                        underway.pair,
                        f"its worker died {deaths} times at images {task.start} to {task.stop} ({how})",
                    )

    # ---- results -----------------------------------------------------------------------------------------

    def _finish(self, pair: Pair, evaluation_id: int) -> None:
        try:
            self._recorder.finish(pair, evaluation_id)
        except Exception as error:  # metrics functions are the users' own code
            self._fail(pair, in_words(error))
            return
        self.outcome.completed.append(pair)
        self._report.finished(pair)
        self._derive_children(pair)

    def _derive(self, pair: Pair) -> None:
        try:
            self._recorder.derive(pair)
        except Exception as error:
            self._fail(pair, in_words(error))
            return
        self.outcome.derived.append(pair)
        self._report.finished(pair)
        self._derive_children(pair)

    def _derive_children(self, parent: Pair) -> None:
        for pair in self._plan.children_of(parent):
            self._derive(pair)

    def _fail(self, pair: Pair, error: str, details: str = "") -> None:
        pair.error = error
        try:
            self._recorder.fail(pair, error)
        except Busy:
            pass  # another run has taken it over
        self.outcome.failed.append(pair)
        self._report.failed(pair, error, details)
        for child in self._plan.children_of(pair):
            self._fail(child, f"'{pair.setting.name}', from which it is derived, failed")

    def _look_after_busy(self) -> None:
        """Pairs another run is at: take its result when it has one, take them over when it is gone."""
        for pair in list(self._busy):
            if self._recorder.is_complete(pair):
                self._busy.remove(pair)
                self.outcome.completed.append(pair)
                self._report.finished(pair)
                self._derive_children(pair)
                continue
            try:
                self._take(pair)
            except Busy:
                continue
            self._busy.remove(pair)
        if self._busy:
            time.sleep(_WAIT_S)


def _end_of_process(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:  # a real-time signal has only a number
        name = f"signal {-exit_code}"
    return f"killed by {name}" + (", often because memory ran out" if name == "SIGKILL" else "")
