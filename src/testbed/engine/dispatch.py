"""Giving chunks to workers and taking results back, until nothing is left to do."""

from __future__ import annotations

import signal
import time
from collections import deque
from dataclasses import dataclass, field

from testbed.engine.bundles import Bundle, bundles_of
from testbed.engine.endings import Endings, Outcome
from testbed.engine.interrupts import held_back
from testbed.engine.messages import At, ChunkDone, ChunkFailed, Event, Note, Progress, Share, Task, TaskDone
from testbed.engine.pairs import Pair, Plan
from testbed.engine.pools import Died, Member, Pool, Told
from testbed.engine.progress import ProgressReport
from testbed.engine.recording import Begun, Recorder
from testbed.engine.watching import Watch
from testbed.engine.work import Waiting
from testbed.errors import StoreError, disk_is_full, in_words
from testbed.store.claims import TakenOver
from testbed.store.names import throughputs
from testbed.store.runs import Busy

_TRIES = 3  # how often a chunk may take its worker down with it
_WAIT_S = 1.0
_WAIT_EACH_S, _LONGEST_WAIT_S = 0.1, 30.0  # for each pair of another run: hundreds of runs ask one database


@dataclass
class _Underway:
    """A pair that has been begun and is not finished."""

    pair: Pair
    evaluation_id: int
    images_left: int  # that are not recorded
    before: int | None = None  # the completed evaluation that stood when the pair was begun
    deaths: dict[int, int] = field(default_factory=dict)  # by first row of a chunk: how many workers it has killed


class Dispatcher:
    """Runs a plan over a pool of workers and records every result as it is whole."""

    def __init__(
        self, plan: Plan, pool: Pool, recorder: Recorder, report: ProgressReport, overwrite: bool = False
    ) -> None:
        self._pool = pool
        self._recorder = recorder
        self._report = report
        self._overwrite = overwrite
        bundles = bundles_of(plan, recorder.registry, recorder.options, len(pool.members))
        speeds = throughputs(recorder.store)  # images per second
        self._waiting = Waiting(bundles, {model: 1 / speed for model, speed in speeds.items() if speed})
        self._heard: deque[Told] = deque()  # what the workers have told and was not handled yet
        self._watch = Watch(recorder.options.timeout)
        self._underway: dict[int, _Underway] = {}
        self._whole: deque[_Underway] = deque()  # all their chunks are recorded: to be joined and measured
        self._broken_models: dict[str, str] = {}  # could not be loaded: their further pairs fail without a try
        self._endings = Endings(plan, recorder, report, overwrite)
        self.outcome = self._endings.outcome

    def run(self) -> Outcome:
        """What needs no worker first, then give and take until nothing is left."""
        try:
            self._run()
        except KeyboardInterrupt:
            self._keep_finished()
            raise
        except OSError as error:
            if disk_is_full(error):
                raise _no_room(in_words(error)) from error
            raise
        return self.outcome

    def _run(self) -> None:
        self._endings.of_pairs_without_work()
        while self._waiting or self._underway or self._whole or self._endings.busy:
            self._hand_out()
            if self._whole:  # one at a time: the workers are heard in between
                self._finish(self._whole.popleft())
            waits = not self._whole and (self._waiting or self._underway or self._endings.busy)
            self._hear(_WAIT_S if waits else 0.0)
            self._look_after_workers()
            # Chunks that are still in hand are of pairs that this run has lost: to be begun again only after them.
            at_work = self._waiting or self._underway or self._whole or any(m.tasks for m in self._pool.members)
            if not at_work:
                self._look_after_busy()

    def _keep_finished(self) -> None:
        """After Ctrl-C: chunks that workers have told of are recorded. Nothing is joined or measured any more."""
        self._heard.extend(self._pool.told())
        self._record()

    def _look_after_workers(self) -> None:
        """Tell of workers that hang, and end those that are over their time."""
        for worry in self._watch.worries(self._pool.members):
            if worry.overdue:
                self._pool.end(worry.member, worry.text, worry.scope)
            else:
                self._report.note(worry.text)

    # ---- giving ------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Give work to every worker with room.

        Idle workers come first: a second chunk for one that is busy must not be what another is waiting for.
        """
        if not self._waiting:
            return
        with_room = [member for member in self._pool.members if member.has_room]
        for room in (0, 1):
            for member in with_room:
                if len(member.tasks) <= room and (task := self._next_task(member)) is not None:
                    self._pool.give(member, task)

    def _next_task(self, member: Member) -> Task | None:
        """Rows that are begun, or else those of the next bundle."""
        while (line := self._waiting.line_for(member.models, self._pool.members)) is not None:
            if line.works:
                member.models = line.models
                return self._waiting.cut(line, len(self._pool.members), self._recorder.options.chunk_size)
            self._begin(self._waiting.begin(line))
        return None

    def _begin(self, bundle: Bundle) -> None:
        """Take what can be taken of it."""
        taken = []
        for pair in bundle.pairs:
            if pair.model.name in self._broken_models:
                self._endings.fail(pair, self._broken_models[pair.model.name])
                continue
            before = self._recorder.completed_id(pair)
            if self._endings.ended_elsewhere(pair, before):
                continue
            try:
                taken += self._take(pair, before)
            except Busy as busy:
                self._endings.wait_for(pair, before, busy)
        self._waiting.add(bundle, taken)

    def _take(self, pair: Pair, before: int | None) -> list[Begun]:
        """Claim a pair. Nothing where only the result was missing, which then is made."""
        begun = self._recorder.begin(pair, resumable=not self._overwrite)
        while self._recorder.notes:
            self._report.note(self._recorder.notes.pop(0))
        images_left = sum(stop - start for start, stop in begun.gaps)
        self._report.begun(pair, pair.n_images - images_left)
        underway = _Underway(pair, begun.share.evaluation_id, images_left, before)
        if not images_left:  # the earlier run was killed between the last chunk and the result
            self._whole.append(underway)
            return []
        self._underway[underway.evaluation_id] = underway
        return [begun]

    # ---- taking ------------------------------------------------------------------------------------------

    def _hear(self, wait_s: float) -> None:
        """Whatever the workers have to tell. All chunks of a turn are recorded in one transaction."""
        self._heard.extend(self._pool.events(wait_s))
        self._record()
        while self._heard:
            member, event = self._heard.popleft()
            self._watch.heard(member, event)
            self._handle(member, event)

    def _record(self) -> None:
        done = [(e, m.label) for m, e in self._heard if isinstance(e, ChunkDone) and self._is_awaited(e)]
        if not done:
            return
        with held_back():
            lost = self._recorder.chunks(done)
        for evaluation_id in lost:
            self._lose(self._underway[evaluation_id], TakenOver())

    def _is_awaited(self, event: ChunkDone) -> bool:
        """Not where the pair has failed, or was lost to another run, in the meantime."""
        return event.share.evaluation_id in self._underway

    def _handle(self, member: Member, event: Event | Died) -> None:
        if isinstance(event, Progress):
            self._report.advance(member.label, event.images)
        elif isinstance(event, At):
            self._report.at(member.label, event.what)
        elif isinstance(event, Note):
            self._report.note(event.text)
        elif isinstance(event, ChunkDone):
            self._chunk_done(event)
        elif isinstance(event, ChunkFailed):
            self._chunk_failed(event)
        elif isinstance(event, TaskDone):
            member.tasks.popleft()
        elif isinstance(event, Died):
            self._worker_died(member, event)

    def _chunk_done(self, event: ChunkDone) -> None:
        task, share = event.task, event.share
        if not self._is_awaited(event):
            self._recorder.drop(task, share)
            return
        underway = self._underway[share.evaluation_id]
        self._waiting.learn(share.model, task.stop - task.start, event.seconds)
        underway.images_left -= task.stop - task.start
        if not underway.images_left:
            self._forget(underway)
            self._whole.append(underway)

    def _chunk_failed(self, event: ChunkFailed) -> None:
        if event.scope == "run":
            raise _no_room(event.error)
        underway = self._underway.get(event.share.evaluation_id)
        if underway is not None:
            self._fail_begun(underway, event.error, event.details)
        if event.scope == "model":
            self._break(event.share.model, event.error)

    def _break(self, model: str, error: str) -> None:
        """A model that cannot be loaded fails all its pairs, those that are begun and those to come."""
        self._broken_models[model] = error
        for underway in [u for u in self._underway.values() if u.pair.model.name == model]:
            self._fail_begun(underway, error)

    def _worker_died(self, member: Member, event: Died) -> None:
        """Its chunks go back to the front. One that has cost several workers fails its pair.

        Which of several models was to blame is not known: they are tried one by one.
        """
        how = event.why or _end_of_process(event.exit_code)
        self._report.note(f"worker {member.label} died ({how}), {event.then}")
        for place, task in reversed(list(enumerate(event.tasks))):
            left = [share for share in task.shares if self._not_recorded(task, share)]
            alone = place == 0 and event.blamed  # the one it was at
            if alone and len(left) == 1 and len(task.shares) == 1:
                self._count_death(task, how, event.scope)
                left = [share for share in left if share.evaluation_id in self._underway]
            if alone:
                for share in reversed(left):
                    self._waiting.put_back(task.of(share))
            elif left:
                self._waiting.put_back(task.of(*left))

    def _not_recorded(self, task: Task, share: Share) -> bool:
        """Whether the rows of a share are still to be computed; its worker may have told of it before it died."""
        return share.evaluation_id in self._underway and not self._recorder.has_chunk(share.evaluation_id, task.start)

    def _count_death(self, task: Task, how: str, scope: str) -> None:
        (share,) = task.shares
        underway = self._underway[share.evaluation_id]
        deaths = underway.deaths[task.start] = underway.deaths.get(task.start, 0) + 1
        if deaths >= _TRIES:
            self._fail_begun(underway, f"its worker died {deaths} times at images {task.start} to {task.stop} ({how})")
            if scope == "model":
                self._break(share.model, f"model '{share.model}' cannot be loaded: {how}")

    # ---- results -----------------------------------------------------------------------------------------

    def _finish(self, underway: _Underway) -> None:
        pair = underway.pair
        try:
            self._recorder.finish(pair, underway.evaluation_id)
        except Busy as busy:
            self._lose(underway, busy)
            return
        except Exception as error:  # metrics functions are the users' own code
            if disk_is_full(error):  # no fault of this pair
                raise
            self._fail_begun(underway, in_words(error))
            return
        self._endings.completed(pair)

    def _lose(self, underway: _Underway, busy: Busy) -> None:
        """Another run took the pair over while this one slept: write nothing about it, and wait for its result."""
        self._forget(underway)
        self._recorder.let_go(underway.evaluation_id)
        self._endings.wait_for(underway.pair, underway.before, busy)

    def _forget(self, underway: _Underway) -> None:
        self._underway.pop(underway.evaluation_id, None)
        self._waiting.drop(underway.evaluation_id)

    def _fail_begun(self, underway: _Underway, error: str, details: str = "") -> None:
        """Fail a pair that this run holds, unless another has it by now: then it is not for this one to judge."""
        self._forget(underway)
        try:
            self._recorder.fail_begun(underway.evaluation_id, error)
        except Busy as busy:
            self._lose(underway, busy)
            return
        self._endings.failed(underway.pair, error, details)

    def _look_after_busy(self) -> None:
        """Pairs another run is at: take its result when it has one, take them over when it is gone."""
        waiting = self._endings.busy
        self._endings.busy = []
        for busy in waiting:
            pair = busy.pair
            if self._recorder.completed_id(pair) not in (None, busy.before):
                self._endings.completed(pair)
                continue
            if self._endings.failed_elsewhere(pair):
                continue
            try:
                if pair.action == "derive":
                    self._endings.make_derived(pair)
                elif taken := self._take(pair, busy.before):
                    self._waiting.add(Bundle((pair,), self._recorder.batch_size(pair)), taken)
            except Busy:
                self._endings.busy.append(busy)
        self._endings.tell_of_waiting()
        if n := len(self._endings.busy):
            time.sleep(min(max(_WAIT_S, _WAIT_EACH_S * n), _LONGEST_WAIT_S))


def _no_room(error: str) -> StoreError:
    return StoreError(f"{error}; what is finished is kept: make room and run the same command again")


def _end_of_process(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:  # a real-time signal has only a number
        name = f"signal {-exit_code}"
    return f"killed by {name}" + (", often because memory ran out" if name == "SIGKILL" else "")
