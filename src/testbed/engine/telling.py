"""What a run tells the database of itself, for whoever watches it: its pairs and images, what each device is at."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from testbed.engine.pairs import Pair, Plan
from testbed.engine.pools import Member
from testbed.engine.progress import ProgressReport
from testbed.errors import printable

_WINDOW_S = 30.0  # images per second are those of so many seconds


class Told:
    """Hears what a progress report hears, passes it on, and sums it up when the heartbeat asks, in its own thread.

    `planned` are the pairs that were not done when the run began. A pair counts as done whoever has done it: another
    run on the same database may have been quicker. Images are told by whose work they were, so that those of several
    runs can be added up (testbed.store.run_states).
    """

    def __init__(
        self,
        report: ProgressReport,
        plan: Plan,
        members: Sequence[Member],
        variant: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._members, self._clock = report, members, clock
        self._lock = threading.Lock()
        self._work = _work(plan, variant)
        self._planned = sum(pair.action != "done" for pair in plan.pairs)
        self._images_planned = sum(pair.n_images for pair in plan.having("run"))
        self._done = self._failed = 0
        self._under_way: dict[int, int] = {}  # images of pairs that are begun and have not ended, by identity
        self._ended = 0  # images that were done of pairs that were begun here and have ended
        self._images = Counter[str]()  # finished, elsewhere or failed: of whole pairs
        self._found = 0  # images that an earlier run had done of pairs that were begun here
        self._by_device = Counter[str]()
        self._at: dict[str, str] = {}
        self._heard: dict[str, float] = {}  # when each device last said something
        self._samples = deque([(clock(), Counter[str]())])

    # ---- hearing -----------------------------------------------------------------------------------------

    def begun(self, pair: Pair, images_done: int) -> None:
        with self._lock:
            self._under_way[id(pair)] = pair.n_images
            self._found += images_done
        self._report.begun(pair, images_done)

    def advance(self, device: str, images: int) -> None:
        with self._lock:
            self._by_device[device] += images
            self._heard[device] = self._clock()
        self._report.advance(device, images)

    def at(self, device: str, what: str) -> None:
        with self._lock:
            self._at[device] = printable(what)
            self._heard[device] = self._clock()
        self._report.at(device, what)

    def finished(self, pair: Pair) -> None:
        with self._lock:
            self._done += 1
            self._end(pair, "finished" if id(pair) in self._under_way else "elsewhere")
        self._report.finished(pair)

    def failed(self, pair: Pair, error: str, details: str) -> None:
        with self._lock:
            self._failed += 1
            self._end(pair, "failed")
        self._report.failed(pair, error, details)

    def _end(self, pair: Pair, how: str) -> None:
        done, begun = self._seen(), sum(self._under_way.values())
        images = self._under_way.pop(id(pair), 0)
        # How far a pair was that failed is not known by itself: as far as all that were under way.
        self._ended += round(images * done / begun) if how == "failed" and images else images
        if pair.action == "run":
            self._images[how] += pair.n_images

    def _seen(self) -> int:
        """Images done of the pairs that are under way. A chunk that was done twice was heard of twice."""
        seen = self._by_device.total() + self._found - self._ended
        return min(max(seen, 0), sum(self._under_way.values()))

    def note(self, text: str) -> None:
        self._report.note(text)

    def close(self) -> None:
        self._report.close()

    # ---- telling -----------------------------------------------------------------------------------------

    def summed_up(self) -> dict[str, Any]:
        """Plain data for the row of the run. Called by another thread than the rest."""
        with self._lock:
            now = self._clock()
            self._samples.append((now, Counter(self._by_device)))
            while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
                self._samples.popleft()
            speeds = self._speeds()
            return {
                "work": self._work,
                "pairs": {"planned": self._planned, "done": self._done, "failed": self._failed},
                "images": {
                    "planned": self._images_planned,
                    **{how: self._images[how] for how in ("finished", "elsewhere", "failed")},
                    "under_way": self._seen(),
                },
                "images_per_second": round(sum(speeds.values()), 2),
                "devices": [self._device(member, speeds, now) for member in list(self._members)],
            }

    def _speeds(self) -> dict[str, float]:
        (began, before), (now, images) = self._samples[0], self._samples[-1]
        return {device: (n - before[device]) / max(now - began, 1e-3) for device, n in images.items()}

    def _device(self, member: Member, speeds: dict[str, float], now: float) -> dict[str, Any]:
        label = member.label
        silent_s = now - self._heard[label] if label in self._heard else None
        return {
            "device": label,
            "images": self._by_device[label],
            "images_per_second": round(speeds.get(label, 0.0), 2),
            "at": self._at.get(label, "starting") if member.tasks else None,
            "silent_s": None if silent_s is None else round(silent_s, 1),
        }


def _work(plan: Plan, variant: str) -> str:
    """Equal for runs that were asked for the same pairs, whatever of them was done when each began."""
    models = sorted({pair.stored_model for pair in plan.pairs})
    settings = sorted({f"{pair.setting.name} {pair.setting.version}" for pair in plan.pairs})
    words = (variant, str(len(plan.pairs)), *models, "", *settings)
    return hashlib.sha256("\n".join(words).encode("utf-8", "backslashreplace")).hexdigest()[:16]
