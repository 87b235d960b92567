"""What no worker has been given yet: bundles that are not begun, and the rows that are left of those that are.

Whatever is asked of it for every chunk takes as long for a thousand devices and a million pairs as for one of each.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from testbed.engine.bundles import Bundle
from testbed.engine.messages import Share, Task
from testbed.engine.pools import Member
from testbed.engine.recording import Begun

_CHUNKS_LEFT = 2  # what is left is shared out so that every device gets so many chunks of it: the last are small
_LEAST_PACE_S = 1e-9


@dataclass(eq=False)
class Line:
    """What is left for one set of models, on one setting after another."""

    models: frozenset[str]
    place: int  # in the order of the plan
    bundles: deque[Bundle] = field(default_factory=deque)  # not begun
    works: dict[int, Work] = field(default_factory=dict)  # begun, with rows left
    images: int = 0  # of both, each counted for every model
    seconds: float = 0.0  # that one device needs for them, as far as is known


@dataclass(eq=False)
class Work:
    """The rows of a begun bundle that no worker has."""

    line: Line
    number: int
    batch: int  # chunks are whole numbers of it
    tasks: deque[Task] = field(default_factory=deque)  # each as long as all its shares need it

    def cut(self, images: float, most: int) -> Task:
        """The next chunk: about so many images, each counted for all its models, in at most so many rows."""
        task = self.tasks.popleft()
        batches = max(1, int(min(most, images / len(task.shares))) // self.batch)
        stop = task.start + batches * self.batch
        if stop < task.stop:
            self.tasks.appendleft(replace(task, start=stop))
            task = replace(task, stop=stop)
        return task


class Waiting:
    """Bundles and rows that wait for a worker, by the models that they need."""

    def __init__(self, bundles: Sequence[Bundle], paces: Mapping[str, float]) -> None:
        """`paces`: seconds per image of models whose speed is known from earlier runs."""
        self._paces = dict(paces)
        self._timed_images, self._timed_s = len(paces), sum(paces.values())
        self._numbers = count()
        self._lines: dict[frozenset[str], Line] = {}
        self._left: dict[frozenset[str], Line] = {}  # those of the lines that have something left
        self._near: dict[str, dict[frozenset[str], Line]] = {}  # the same, by each of their models
        self._work_of: dict[int, Work] = {}  # by evaluation
        self._seconds = 0.0  # of all lines
        self._later = [bundle for bundle in bundles if bundle.later]  # in no line while there is anything of the own
        self._line_up(bundle for bundle in bundles if not bundle.later)

    def _line_up(self, bundles: Iterable[Bundle]) -> None:
        for bundle in bundles:
            line = self._line(bundle.models)
            line.bundles.append(bundle)
            self._changed(line, bundle.images)

    def __bool__(self) -> bool:
        return bool(self._left or self._later)

    # ---- choosing ----------------------------------------------------------------------------------------

    def line_for(self, at_hand: frozenset[str], members: Sequence[Member]) -> Line | None:
        """Where a worker goes on: with models it has at hand, else where most time is left for each worker there."""
        if not self._left:
            self._line_up(self._later)
            self._later = []
        if at_hand in self._left:
            return self._left[at_hand]
        near = [line for model in at_hand for line in self._near.get(model, {}).values()]
        if near:
            return min(near, key=lambda line: (not line.works, line.place))
        for line in self._left.values():
            self._changed(line)  # how fast its models are may be known by now
        there = Counter(member.models for member in members if member.tasks)
        return max(self._left.values(), key=lambda line: line.seconds / (1 + there[line.models]), default=None)

    def learn(self, model: str, images: int, seconds: float) -> None:
        """How long a chunk took."""
        self._paces[model] = seconds / images
        self._timed_images, self._timed_s = self._timed_images + images, self._timed_s + seconds

    def _pace(self, line: Line) -> float:
        """Seconds per image of its models; those that are not known are taken to be like the others."""
        known = [self._paces[model] for model in line.models if model in self._paces]
        pace = sum(known) / len(known) if known else self._timed_s / self._timed_images if self._timed_images else 1.0
        return max(pace, _LEAST_PACE_S)

    # ---- taking and putting back -------------------------------------------------------------------------

    def begin(self, line: Line) -> Bundle:
        """Take the next bundle of a line: what is to be done of it comes back with `add`."""
        bundle = line.bundles.popleft()
        self._changed(line, -bundle.images)
        return bundle

    def add(self, bundle: Bundle, taken: Sequence[Begun]) -> None:
        """The rows of a bundle that its begun pairs still need."""
        work = Work(self._line(bundle.models), next(self._numbers), bundle.batch)
        first = bundle.pairs[0]
        for start, stop, shares in reversed(list(_segments(taken))):
            self._put(work, Task(work.number, first.setting.name, start, stop, first.fingerprint, shares))
        self._work_of |= {begun.share.evaluation_id: work for begun in taken}

    def cut(self, line: Line, devices: int, most: int) -> Task:
        """The next chunk of a line, smaller towards the end of the run, so that all devices end at the same time."""
        images = float("inf")
        if devices > 1:
            self._changed(line)
            images = self._seconds / (devices * _CHUNKS_LEFT) / self._pace(line)
        work = next(iter(line.works.values()))
        task = work.cut(images, most)
        if not work.tasks:
            del line.works[work.number]
        self._changed(line, -_images(task))
        return task

    def put_back(self, task: Task) -> None:
        """A chunk that was given and not done is the next one."""
        self._put(self._work_of[task.shares[0].evaluation_id], task)

    def drop(self, evaluation_id: int) -> None:
        """Forget a pair, and what it still had to do."""
        work = self._work_of.pop(evaluation_id, None)
        if work is None or not work.tasks:
            return
        before = sum(map(_images, work.tasks))
        kept = (task.of(*(s for s in task.shares if s.evaluation_id != evaluation_id)) for task in work.tasks)
        work.tasks = deque(task for task in kept if task.shares)
        if not work.tasks:
            del work.line.works[work.number]
        self._changed(work.line, sum(map(_images, work.tasks)) - before)

    def _put(self, work: Work, task: Task) -> None:
        if not work.tasks:
            work.line.works = {work.number: work, **work.line.works}
        work.tasks.appendleft(task)
        self._changed(work.line, _images(task))

    # ---- keeping count -----------------------------------------------------------------------------------

    def _line(self, models: frozenset[str]) -> Line:
        return self._lines.get(models) or self._lines.setdefault(models, Line(models, len(self._lines)))

    def _changed(self, line: Line, images: int = 0) -> None:
        """So many images more; and the line is found where it has something left, and nowhere else."""
        line.images += images
        seconds = line.images * self._pace(line)
        self._seconds += seconds - line.seconds
        line.seconds = seconds
        has_left = bool(line.bundles or line.works)
        if has_left == (line.models in self._left):
            return
        for place in (self._left, *(self._near.setdefault(model, {}) for model in line.models)):
            if has_left:
                place[line.models] = line
            else:
                del place[line.models]


def _images(task: Task) -> int:
    """Each counted for every model."""
    return (task.stop - task.start) * len(task.shares)


def _segments(taken: Sequence[Begun]) -> Iterator[tuple[int, int, tuple[Share, ...]]]:
    """Stretches of rows that the same pairs still need, in order: (start, stop, their shares)."""
    edges = sorted({edge for begun in taken for gap in begun.gaps for edge in gap})
    for start, stop in pairwise(edges):
        inside = (begun for begun in taken if any(first <= start and stop <= end for first, end in begun.gaps))
        if shares := tuple(begun.share for begun in inside):
            yield start, stop, shares
