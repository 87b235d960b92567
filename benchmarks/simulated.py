"""A thousand devices that need no hardware: a pool whose workers compute in simulated time, and what they work on.

Everything else is the program's own: entries, plan, bundles, dispatcher, recorder and database. The one thing that is
left out is what a chunk's files hold: none is written, so none is joined and measured (`SimulatedRecorder`).

How long a device takes is made of these numbers. [published]: timm's own tables, AMP, 224 pixels
(huggingface/pytorch-image-models@aa4b585, results/benchmark-infer-amp-nchw-*.csv); [assumed]: a round number.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from testbed import EvalSetting, Model, StandardTransform
from testbed.data.samples import Dataset, Samples
from testbed.engine.messages import ChunkDone, Task, TaskDone
from testbed.engine.pairs import Pair
from testbed.engine.pools import Member, Told
from testbed.engine.recording import Joined, Recorder
from testbed.entries.registry import Registry
from testbed.metrics.estimate import Estimate

# Images per second on an RTX 4090 over timm's 1,282 models [published]. A log-normal distribution with this median and
# this harmonic mean gives the slowest tenth of the models 68 % of the hours, as they have in the table.
MEDIAN, HARMONIC_MEAN = 2201.0, 485.0
# ViT-B/16 on an RTX 3090, 4090, 5090 and PRO 6000 Max-Q against the 4090: 1571, 2993, 3916 and 4190/s [published].
KINDS = (0.52, 1.0, 1.31, 1.40)
LOADING_S = 3.0  # a model that is on the machine's disk [assumed]
STARTING_S = 20.0  # a worker process with torch and a CUDA context [assumed]
MODELS_HELD = 16  # of which a device keeps the weights [assumed]
INPUTS = 40  # different transforms among the models, a few of which are common [assumed]
METRICS = ("top1", "top5")


# ---- what is evaluated -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbered(Dataset):
    """Images that have names and labels and nothing else."""

    size: int

    def open(self, data_roots: Sequence[Path]) -> Samples:
        ids = [f"{number:08d}.jpg" for number in range(self.size)]
        return Samples(ids, np.arange(self.size) % 1000, _no_image, f"numbered-{self.size}", "imagenet")

    def describe(self) -> str:
        return f"{self.size} numbers"


def _no_image(index: int) -> Any:
    raise AssertionError("a simulated device looks at no image")


def simulated_registry(models: int, settings: int, images: int) -> Registry:
    registry, chance = Registry(), random.Random(0)
    common = [1 / (rank + 1) for rank in range(INPUTS)]
    for number in range(models):
        side = 160 + 8 * chance.choices(range(INPUTS), common)[0]
        transform = StandardTransform(side + 32, side, interpolation="bicubic")
        entry = Model(f"model-{number:04d}", transform, _no_network, eval_batch_size=64)
        registry.models.add(entry, "simulated")
    for number in range(settings):
        registry.eval_settings.add(EvalSetting(name=f"set-{number:03d}", dataset=Numbered(images)), "simulated")
    return registry


def _no_network() -> Any:
    raise AssertionError("a simulated device loads no network")


def seconds_per_image(names: Sequence[str]) -> dict[str, float]:
    """What each model costs on a 4090, in no order."""
    spread = (2 * np.log(MEDIAN / HARMONIC_MEAN)) ** 0.5
    normal, places = NormalDist(), list(range(len(names)))
    random.Random(1).shuffle(places)
    paces = (np.exp(spread * normal.inv_cdf((place + 0.5) / len(names))) / MEDIAN for place in places)
    return dict(zip(names, map(float, paces), strict=True))


class SimulatedRecorder(Recorder):
    """The recorder of a run, but for the files of chunks, which nobody has written.

    To join and measure those of a pair takes `joining_s`, which goes by on the simulated clock alone.
    """

    def __init__(self, *of_a_recorder: Any, joining_s: float = 0.0) -> None:
        super().__init__(*of_a_recorder)
        self._joining_s = joining_s
        self.joined_s = 0.0

    def really_joined(self, *of_a_pair: Any) -> Joined:
        return super()._join(*of_a_pair)

    def _join(self, pair: Pair, target: Path, samples: Path, starts: Sequence[int], bad_rows: Sequence[int]) -> Joined:
        self.joined_s += self._joining_s
        return Joined({name: Estimate(50.0) for name in METRICS}, {"logits": "0" * 64}, 0, "")


# ---- who evaluates it --------------------------------------------------------------------------------------------


@dataclass
class Device:
    member: Member
    speed: float  # against a 4090
    loaded: deque[str] = field(default_factory=deque)
    free_s: float = STARTING_S  # when it has done all that it was given
    spans: list[tuple[float, float, float]] = field(default_factory=list)  # of tasks: begin, end, loading in between


class SimulatedPool:
    """Workers whose clock is `now`: it stands at what they told last, and goes on while the parent is at work."""

    def __init__(self, devices: int, paces: dict[str, float], parent_s: Callable[[], float] = lambda: 0.0) -> None:
        """`parent_s`: a clock of the parent's own work, for which devices must wait too."""
        self._paces, self._parent_s, self._parent_was = paces, parent_s, 0.0
        self._due: list[tuple[float, int, Device, ChunkDone | TaskDone]] = []
        self._numbers = count()
        self.devices = {
            id(member): Device(member, KINDS[number % len(KINDS)])
            for number, member in enumerate(Member("cuda", f"cuda#{number}") for number in range(devices))
        }
        self.members = [device.member for device in self.devices.values()]
        self.now = self.last_given = 0.0
        self.chunks = 0

    def give(self, member: Member, task: Task) -> None:
        device = self.devices[id(member)]
        member.tasks.append(task)
        self.last_given = self.now
        self.chunks += len(task.shares)
        begin = time = max(self.now, device.free_s)
        loading = 0.0
        for share in task.shares:
            if share.model in device.loaded:
                device.loaded.remove(share.model)
            else:
                loading += LOADING_S
                time += LOADING_S
            device.loaded.append(share.model)
            seconds = (task.stop - task.start) * self._paces[share.model] / device.speed
            time += seconds
            facts = {"weights_sha256": "0" * 64, "device": member.label, "dtype": "float16"}
            self._tell(time, device, ChunkDone(task, share, seconds, [], facts))
        while len(device.loaded) > max(MODELS_HELD, len(task.shares)):
            device.loaded.popleft()
        self._tell(time, device, TaskDone(task))
        device.spans.append((begin, time, loading))
        device.free_s = time

    def _tell(self, time: float, device: Device, event: ChunkDone | TaskDone) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), device, event))

    def events(self, timeout_s: float) -> Iterator[Told]:
        """What is due by now; where that is nothing, the clock goes on to the next word."""
        parent_s = self._parent_s()
        self.now, self._parent_was = self.now + parent_s - self._parent_was, parent_s
        if timeout_s and self._due:
            self.now = max(self.now, self._due[0][0])
        told = []
        while self._due and self._due[0][0] <= self.now:
            _, _, device, event = heapq.heappop(self._due)
            told.append((device.member, event))
        return iter(told)

    def told(self) -> Iterator[Told]:
        return iter(())

    def end(self, member: Member, why: str, scope: str) -> None:
        raise AssertionError("a simulated device does not hang")

    def close(self) -> None:
        pass

    # ---- what came of it ---------------------------------------------------------------------------------

    def busy(self, from_s: float, to_s: float) -> tuple[float, float]:
        """Which share of the time all devices were computing or loading, and which share they were loading."""
        whole = (to_s - from_s) * len(self.devices)
        spans = [span for device in self.devices.values() for span in device.spans]
        inside = [(min(end, to_s) - max(begin, from_s), load / (end - begin)) for begin, end, load in spans]
        return (
            sum(seconds for seconds, _ in inside if seconds > 0) / whole,
            sum(seconds * loading for seconds, loading in inside if seconds > 0) / whole,
        )
