"""Telling the user how far a run is: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from testbed.engine.pairs import Pair
from testbed.errors import cause_of, masked, printable_lines

_LINE_EVERY_S = 10.0


class ProgressReport(Protocol):
    def begun(self, pair: Pair, images_done: int) -> None: ...

    def advance(self, device: str, images: int) -> None: ...

    def at(self, device: str, what: str) -> None: ...

    def finished(self, pair: Pair) -> None: ...

    def failed(self, pair: Pair, error: str, details: str) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class Silent:
    """For library use."""

    def begun(self, pair: Pair, images_done: int) -> None:
        pass

    def advance(self, device: str, images: int) -> None:
        pass

    def at(self, device: str, what: str) -> None:
        pass

    def finished(self, pair: Pair) -> None:
        pass

    def failed(self, pair: Pair, error: str, details: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(Silent):
    """A line now and then, and one for everything the user should know; optionally also into a log file."""

    def __init__(self, n_pairs: int, n_images: int, log: Path | None = None) -> None:
        self._pairs, self._images = n_pairs, n_images
        self._pairs_done = self._images_done = self._images_found = 0
        self._started = self._last = time.monotonic()
        self._log = log.open("a", encoding="utf-8", errors="backslashreplace") if log else None
        self._told: set[str] = set()  # failures that the user has been told of

    def begun(self, pair: Pair, images_done: int) -> None:
        self._images_done += images_done
        self._images_found += images_done
        if images_done:
            self.note(f"{pair.label}: going on after {images_done} of {pair.n_images} images")

    def advance(self, device: str, images: int) -> None:
        self._images_done += images
        if time.monotonic() - self._last >= _LINE_EVERY_S:
            self._last = time.monotonic()
            self._write(self.state())

    def state(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-6)
        done_here = self._images_done - self._images_found
        speed = done_here / seconds
        text = f"{self._pairs_done}/{self._pairs} pairs, {self._images_done:,}/{self._images:,} images"
        text += f", {speed:,.0f} images/s"
        if done_here < self._images / 100:  # still starting up: a guess would frighten
            return text
        return f"{text}, {duration((self._images - self._images_done) / speed)} left"

    def finished(self, pair: Pair) -> None:
        self._pairs_done += 1
        self._record(f"done    {pair.label}")

    def failed(self, pair: Pair, error: str, details: str) -> None:
        self._pairs_done += 1
        # The reasons stand together at the end, each once: thousands of pairs may fail for the same one.
        if (cause := cause_of(error)) not in self._told:
            self._told.add(cause)
            at_once = f", and is in {self._log.name} now" if self._log is not None else ""
            self._show(f"FAILED  {pair.label} (the reason comes at the end{at_once})")
        self._record(f"FAILED  {pair.label}: {error}")
        if details:
            self._record(details)

    def note(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            with suppress(OSError):  # what could not be written is tried once more
                log.close()

    def _write(self, text: str) -> None:
        self._show(text)
        self._record(text)

    def _show(self, text: str) -> None:
        print(masked(printable_lines(text)), file=sys.stderr, flush=True)

    def _record(self, text: str) -> None:
        if self._log is None:
            return
        try:
            self._log.write(f"{time.strftime('%H:%M:%S')} {masked(printable_lines(text))}\n")
            self._log.flush()
        except OSError as error:
            name = self._log.name
            Lines.close(self)
            self._show(f"{name} cannot be written: {error.strerror or error}; going on without it")


class Bars(Lines):
    """One bar per device with images per second, and one over all pairs with the time left."""

    def __init__(self, n_pairs: int, n_images: int, devices: Sequence[str], log: Path | None = None) -> None:
        from tqdm import tqdm

        super().__init__(n_pairs, n_images, log)
        self._tqdm = tqdm
        self._devices: dict[str, Any] = {
            d: tqdm(desc=d, unit="img", position=i, leave=False, bar_format="{desc:<8} {n_fmt} images {rate_fmt}")
            for i, d in enumerate(devices)
        }
        self._all = tqdm(
            total=n_images,
            desc=f"0/{n_pairs} pairs",
            unit="img",
            position=len(devices),
            bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} images, {remaining} left",
        )

    def begun(self, pair: Pair, images_done: int) -> None:
        super().begun(pair, images_done)
        self._all.update(images_done)

    def advance(self, device: str, images: int) -> None:
        self._images_done += images
        if device in self._devices:  # workers of other machines come and go, and have no bars of their own
            self._devices[device].update(images)
        self._all.update(images)

    def finished(self, pair: Pair) -> None:
        super().finished(pair)
        self._all.set_description(f"{self._pairs_done}/{self._pairs} pairs")

    def close(self) -> None:
        for bar in (*self._devices.values(), self._all):
            bar.close()
        super().close()

    def _show(self, text: str) -> None:
        self._tqdm.write(masked(printable_lines(text)), file=sys.stderr)


def duration(seconds: float) -> str:
    """1:02:03 or 2:03."""
    whole = int(seconds + 0.5)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
