"""How pairs end: completed, derived, failed or left to another run, and what follows from it for other pairs."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.engine.pairs import Pair, Plan
from testbed.engine.progress import ProgressReport
from testbed.engine.recording import Recorder
from testbed.errors import in_words
from testbed.store.runs import Busy

_WAITING = "nothing is left to begin"


@dataclass(frozen=True)
class BusyPair:
    """A pair that another run is at."""

    pair: Pair
    before: int | None  # the completed evaluation that stood before, which is not the one waited for


@dataclass
class Outcome:
    """What became of a plan."""

    completed: list[Pair] = field(default_factory=list)
    derived: list[Pair] = field(default_factory=list)
    failed: list[Pair] = field(default_factory=list)


class Endings:
    """Notes what became of each pair, tells the user, and makes what is derived from it."""

    def __init__(self, plan: Plan, recorder: Recorder, report: ProgressReport, overwrite: bool = False) -> None:
        self._plan = plan
        self._recorder = recorder
        self._report = report
        self._overwrite = overwrite
        self._newest = recorder.store.newest_evaluation()  # what is newer than this was not known to the plan
        self._told: set[str] = set()  # what the user knows of other runs
        self._made: set[int] = set()  # pairs that this run has brought to their end, by identity
        self.busy: list[BusyPair] = []  # another run on the same database is at them
        self.outcome = Outcome()

    def of_pairs_without_work(self) -> None:
        """What cannot be run fails; what stored logits hold already is derived."""
        for pair in self._plan.having("fail"):
            self.fail(pair, pair.error)
        for pair in self._plan.having("derive"):
            if all(parent.action == "done" for parent in self._plan.parents_of(pair)):
                self._derive(pair)

    def completed(self, pair: Pair) -> None:
        """By this run, or by another since this one began."""
        self.outcome.completed.append(pair)
        self._report.finished(pair)
        self._derive_children(pair)

    # ---- pairs of other runs -----------------------------------------------------------------------------

    def wait_for(self, pair: Pair, before: int | None, busy: Busy) -> None:
        if not pair.later and str(busy) not in self._told:  # one line for each other run, whatever it is at
            self._told.add(str(busy))
            self._report.note(f"{pair.label}: {busy}; waiting for it")
        self.busy.append(BusyPair(pair, before))

    def ended_elsewhere(self, pair: Pair, before: int | None) -> bool:
        """Whether another run has brought a pair to its end that this one is about to begin.

        `before` is the completed evaluation that stands now.
        """
        # The plan knew of none: it was begun before this run, or after, and has been completed since.
        if before is not None and (before > self._newest or not self._overwrite):
            self.completed(pair)
            return True
        return self.failed_elsewhere(pair)

    def failed_elsewhere(self, pair: Pair) -> bool:
        """Whether another shard has failed at a pair of its own since this run began: once is enough."""
        error = self._recorder.failure(pair, since=self._newest) if pair.later else ""
        if error:
            self.failed(pair, error)
        return bool(error)

    def tell_of_waiting(self) -> None:
        if len(self.busy) > 1 and _WAITING not in self._told:
            self._told.add(_WAITING)
            self._report.note(f"{_WAITING}: waiting for {len(self.busy):,} pairs that other runs are at")

    # ---- derived pairs -----------------------------------------------------------------------------------

    def _derive(self, pair: Pair) -> None:
        if pair.later:  # for the run whose share it is, unless that has not made it by the end of this one
            self.busy.append(BusyPair(pair, None))
            return
        if not self._overwrite and self._recorder.completed_id(pair) is not None:
            self.completed(pair)
            return
        try:
            self.make_derived(pair)
        except Busy as busy:
            self.wait_for(pair, self._recorder.completed_id(pair), busy)

    def make_derived(self, pair: Pair) -> None:
        """Raises Busy where another run is deriving it at this moment."""
        try:
            self._recorder.derive(pair)
        except Busy:
            raise
        except Exception as error:
            self.fail(pair, in_words(error))
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

    # ---- failures ----------------------------------------------------------------------------------------

    def fail(self, pair: Pair, error: str) -> None:
        """Fail a pair that was not begun."""
        try:
            self._recorder.fail(pair, error)
        except Busy:
            pass  # another run is at it, with a result of its own
        self.failed(pair, error)

    def failed(self, pair: Pair, error: str, details: str = "") -> None:
        """The failure is recorded; what would have been derived from the pair fails with it."""
        pair.error = error
        self.outcome.failed.append(pair)
        self._report.failed(pair, error, details)
        for child in self._plan.children_of(pair):
            if child.error:  # another member has failed before
                continue
            of_member = child.setting.name == pair.setting.name
            from_what = f"its member {pair.stored_model}" if of_member else f"'{pair.setting.name}'"
            self.fail(child, f"{from_what}, from which it is derived, failed")
