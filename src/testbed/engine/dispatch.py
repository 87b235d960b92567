"""Giving chunks to workers and taking results back, until nothing is left to do."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from testbed.engine.bundles import Bundle, bundles_of
from testbed.engine.interrupts import held_back
from testbed.engine.messages import ChunkDone, ChunkFailed, Event, Note, Progress, Share, Task, TaskDone
from testbed.engine.pairs import Pair, Plan
from testbed.engine.pools import Died, Member, Pool
from testbed.engine.progress import ProgressReport
from testbed.engine.recording import Begun, Recorder
from testbed.engine.watching import Watch
from testbed.errors import StoreError, disk_is_full, in_words
from testbed.store.database import Busy

_TRIES = 3  # how often a chunk may take its worker down with it
_WAIT_S = 1.0
_ALL = 2**63  # images, for a chunk that is bounded only by its rows
_CHUNKS_LEFT = 2  # what is left is shared out so that every device gets so many chunks of it: the last are small


@dataclass
class _Underway:
    """A pair that has been begun and is not finished."""

    pair: Pair
    evaluation_id: int
    images_left: int  # that are not recorded
    before: int | None = None  # the completed evaluation that stood when the pair was begun
    deaths: dict[int, int] = field(default_factory=dict)  # by first row of a chunk: how many workers it has killed


@dataclass
class _Work:
    """Pairs that are prepared together and have been begun: the rows that no worker has been given."""

    models: frozenset[str]
    batch: int  # chunks are whole numbers of it
    waiting: deque[Task]  # each as long as all its shares need it; chunks are cut from the front

    @property
    def images_left(self) -> int:
        """Counted once for each model."""
        return sum((task.stop - task.start) * len(task.shares) for task in self.waiting)

    def cut(self, images: int, most: int) -> Task:
        """The next chunk: about so many images, each counted for all its models, in at most so many rows."""
        task = self.waiting.popleft()
        batches = max(1, min(most, images // len(task.shares)) // self.batch)
        stop = task.start + batches * self.batch
        if stop < task.stop:
            self.waiting.appendleft(replace(task, start=stop))
            task = replace(task, stop=stop)
        return task

    def drop(self, evaluation_id: int) -> None:
        """Forget what one pair still had to do."""
        kept = (t.of(*(s for s in t.shares if s.evaluation_id != evaluation_id)) for t in self.waiting)
        self.waiting = deque(task for task in kept if task.shares)


@dataclass(frozen=True)
class _Busy:
    """A pair that another run is at."""

    pair: Pair
    before: int | None  # the completed evaluation that stood before, which is not the one waited for


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
        self._to_begin = bundles_of(plan, recorder.registry, recorder.options)
        self._images_to_begin = sum(pair.n_images for bundle in self._to_begin for pair in bundle.pairs)
        self._work: dict[int, _Work] = {}  # by number of its bundle
        self._bundles = count()
        self._busy: list[_Busy] = []  # another run on the same database is at them
        self._newest = recorder.store.newest_evaluation()  # what is newer than this was not known to the plan
        self._watch = Watch(recorder.options.timeout)
        self._underway: dict[int, _Underway] = {}
        self._whole: deque[_Underway] = deque()  # all their chunks are recorded: to be joined and measured
        self._broken_models: dict[str, str] = {}  # could not be loaded: their further pairs fail without a try
        self._made: set[int] = set()  # pairs that this run has brought to their end, by identity
        self.outcome = Outcome()

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
        for pair in self._plan.having("fail"):
            self._fail(pair, pair.error)
        for pair in self._plan.having("derive"):
            if all(parent.action == "done" for parent in self._plan.parents_of(pair)):
                self._derive(pair)
        while self._to_begin or self._underway or self._whole or self._busy:
            self._hand_out()
            if self._whole:  # one at a time: the workers are heard in between
                self._finish(self._whole.popleft())
            waits = not self._whole and (self._to_begin or self._underway or self._busy)
            for member, event in self._pool.events(_WAIT_S if waits else 0.0):
                self._watch.heard(member, event)
                self._handle(member, event)
            self._look_after_workers()
            # Chunks that are still in hand are of pairs that this run has lost: to be begun again only after them.
            at_work = self._to_begin or self._underway or self._whole or any(m.tasks for m in self._pool.members)
            if not at_work:
                self._look_after_busy()

    def _keep_finished(self) -> None:
        """After Ctrl-C: chunks that workers have told of are recorded. Nothing is joined or measured any more."""
        for member, event in self._pool.told():
            if isinstance(event, ChunkDone) and event.share.evaluation_id in self._underway:
                try:
                    self._recorder.chunk(event, member.label)
                except Busy:
                    continue

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
        for room in (0, 1):
            for member in self._pool.members:
                if member.has_room and len(member.tasks) <= room:
                    task = self._next_task(member)
                    if task is not None:
                        self._pool.give(member, task)

    def _next_task(self, member: Member) -> Task | None:
        """Prefer work for models that the worker has at hand, then new work, then helping another."""
        waiting = [work for work in self._work.values() if work.waiting]
        chosen = [work for work in waiting if work.models & member.models]
        if not chosen and (begun := self._begin(member.models)) is not None:
            chosen = [begun]
        chosen = chosen or sorted(waiting, key=lambda work: -work.images_left)
        if not chosen:
            return None
        task = chosen[0].cut(self._share_of_a_chunk(), self._recorder.options.chunk_size)
        member.models = chosen[0].models
        return task

    def _share_of_a_chunk(self) -> int:
        """How many images a chunk should have: less towards the end, so that all devices end at the same time."""
        devices = len(self._pool.members)
        if devices == 1:
            return _ALL
        left = self._images_to_begin + sum(work.images_left for work in self._work.values())
        return left // (devices * _CHUNKS_LEFT)

    def _begin(self, at_hand: frozenset[str]) -> _Work | None:
        """Begin a bundle of pairs: of models at hand, else of models that nobody is working on, else the first."""
        while self._to_begin:
            bundle = self._to_begin.pop(self._choose(at_hand))
            self._images_to_begin -= sum(pair.n_images for pair in bundle.pairs)
            taken = []
            for pair in bundle.pairs:
                if pair.model.name in self._broken_models:
                    self._fail(pair, self._broken_models[pair.model.name])
                    continue
                before = self._recorder.completed_id(pair)
                if before is not None and before > self._newest:
                    self._completed_elsewhere(pair)
                    continue
                try:
                    taken += self._take(pair, before)
                except Busy as busy:
                    self._wait_for(pair, before, busy)
            if taken:
                return self._as_work(bundle, taken)
        return None

    def _choose(self, at_hand: frozenset[str]) -> int:
        """The place of the next bundle to begin."""
        taken = {u.pair.model.name for u in self._underway.values()}
        places = range(len(self._to_begin))
        near = (place for place in places if self._to_begin[place].models & at_hand)
        free = (place for place in places if not self._to_begin[place].models & taken)
        return next(near, next(free, 0))

    def _wait_for(self, pair: Pair, before: int | None, busy: Busy) -> None:
        self._report.note(f"{pair.label}: {busy}; waiting for it")
        self._busy.append(_Busy(pair, before))

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

    def _as_work(self, bundle: Bundle, taken: Sequence[Begun]) -> _Work:
        number = next(self._bundles)
        setting, fingerprint = bundle.pairs[0].setting.name, bundle.pairs[0].fingerprint
        tasks = (Task(number, setting, start, stop, fingerprint, shares) for start, stop, shares in _segments(taken))
        work = _Work(frozenset(begun.share.model for begun in taken), bundle.batch, deque(tasks))
        self._work[number] = work
        return work

    # ---- taking ------------------------------------------------------------------------------------------

    def _handle(self, member: Member, event: Event | Died) -> None:
        if isinstance(event, Progress):
            self._report.advance(member.label, event.images)
        elif isinstance(event, Note):
            self._report.note(event.text)
        elif isinstance(event, ChunkDone):
            self._chunk_done(member, event)
        elif isinstance(event, ChunkFailed):
            self._chunk_failed(event)
        elif isinstance(event, TaskDone):
            member.tasks.popleft()
        elif isinstance(event, Died):
            self._worker_died(member, event)

    def _chunk_done(self, member: Member, event: ChunkDone) -> None:
        task, share = event.task, event.share
        underway = self._underway.get(share.evaluation_id)
        if underway is None:  # the pair has failed, or was lost to another run, in the meantime
            self._recorder.drop(task, share)
            return
        try:
            with held_back():
                self._recorder.chunk(event, member.label)
        except Busy as busy:
            self._lose(underway, busy)
            return
        underway.images_left -= task.stop - task.start
        if not underway.images_left:
            del self._underway[share.evaluation_id]
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
        self._report.note(f"worker {member.label} died ({how}), starting another")
        for place, task in reversed(list(enumerate(event.tasks))):
            left = [share for share in task.shares if self._not_recorded(task, share)]
            alone = place == 0  # the one it was at
            if alone and len(left) == 1 and len(task.shares) == 1:
                self._count_death(task, how, event.scope)
                left = [share for share in left if share.evaluation_id in self._underway]
            work = self._work[task.bundle]
            if alone:
                work.waiting.extendleft(task.of(share) for share in reversed(left))
            elif left:
                work.waiting.appendleft(task.of(*left))

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
        self.outcome.completed.append(pair)
        self._report.finished(pair)
        self._derive_children(pair)

    def _lose(self, underway: _Underway, busy: Busy) -> None:
        """Another run took the pair over while this one slept: write nothing about it, and wait for its result."""
        self._forget(underway)
        self._recorder.let_go(underway.evaluation_id)
        self._wait_for(underway.pair, underway.before, busy)

    def _forget(self, underway: _Underway) -> None:
        self._underway.pop(underway.evaluation_id, None)
        for work in self._work.values():
            work.drop(underway.evaluation_id)

    def _derive(self, pair: Pair) -> None:
        try:
            self._make_derived(pair)
        except Busy as busy:
            self._wait_for(pair, self._recorder.completed_id(pair), busy)

    def _make_derived(self, pair: Pair) -> None:
        """Raises Busy where another run is deriving it at this moment."""
        try:
            self._recorder.derive(pair)
        except Busy:
            raise
        except Exception as error:
            self._fail(pair, in_words(error))
            return
        self.outcome.derived.append(pair)
        self._report.finished(pair)
        self._derive_children(pair)

    def _derive_children(self, parent: Pair) -> None:
        """Those that wait for nothing else: an ensemble has several members."""
        self._made.add(id(parent))
        for pair in self._plan.children_of(parent):
            if all(p.action == "done" or id(p) in self._made for p in self._plan.parents_of(pair)):
                self._derive(pair)

    def _fail_begun(self, underway: _Underway, error: str, details: str = "") -> None:
        """Fail a pair that this run holds, unless another has it by now: then it is not for this one to judge."""
        self._forget(underway)
        try:
            self._recorder.fail_begun(underway.evaluation_id, error)
        except Busy as busy:
            self._lose(underway, busy)
            return
        self._report_failure(underway.pair, error, details)

    def _fail(self, pair: Pair, error: str) -> None:
        """Fail a pair that was not begun."""
        try:
            self._recorder.fail(pair, error)
        except Busy:
            pass  # another run is at it, with a result of its own
        self._report_failure(pair, error)

    def _report_failure(self, pair: Pair, error: str, details: str = "") -> None:
        pair.error = error
        self.outcome.failed.append(pair)
        self._report.failed(pair, error, details)
        for child in self._plan.children_of(pair):
            if child.error:  # another member has failed before
                continue
            of_member = child.setting.name == pair.setting.name
            from_what = f"its member {pair.stored_model}" if of_member else f"'{pair.setting.name}'"
            self._fail(child, f"{from_what}, from which it is derived, failed")

    def _completed_elsewhere(self, pair: Pair) -> None:
        """Another run has brought the pair to its end since this one began."""
        self.outcome.completed.append(pair)
        self._report.finished(pair)
        self._derive_children(pair)

    def _look_after_busy(self) -> None:
        """Pairs another run is at: take its result when it has one, take them over when it is gone."""
        waiting, self._busy = self._busy, []
        for busy in waiting:
            pair = busy.pair
            if self._recorder.completed_id(pair) not in (None, busy.before):
                self._completed_elsewhere(pair)
                continue
            try:
                if pair.action == "derive":
                    self._make_derived(pair)
                elif taken := self._take(pair, busy.before):
                    self._as_work(Bundle((pair,), self._recorder.batch_size(pair)), taken)
            except Busy:
                self._busy.append(busy)
        if self._busy:
            time.sleep(_WAIT_S)


def _segments(taken: Sequence[Begun]) -> Iterator[tuple[int, int, tuple[Share, ...]]]:
    """Stretches of rows that the same pairs still need, in order: (start, stop, their shares)."""
    edges = sorted({edge for begun in taken for gap in begun.gaps for edge in gap})
    for start, stop in pairwise(edges):
        inside = (begun for begun in taken if any(first <= start and stop <= end for first, end in begun.gaps))
        if shares := tuple(begun.share for begun in inside):
            yield start, stop, shares


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
