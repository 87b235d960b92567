"""The options of a run, as plain data that can be sent to worker processes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import EntryError

DEFAULT_CHUNK = 1024
DEFAULT_CACHE_GB = 10.0
RECORDINGS = ("features", "rotation")
AUTO = "auto"  # a batch size that is found on the device
LOCAL_RAY = "local"  # a Ray of the run's own, on this machine
RUNNING_RAY = "auto"  # the cluster that this machine is in
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")
_MOST_AUTO = 512  # images of a batch that is found: beyond that GPUs gain little, and pictures wait in memory
# Checked here and not only by click, since `testbed.evaluate` takes the same options.
# (lowest, highest). Counts of images go into integer columns of a database; threads are made, so they are bounded too.
_HIGHEST = 2**31 - 1
_RANGES = {
    "limit": (1, _HIGHEST),
    "batch_size": (1, _HIGHEST),
    "chunk_size": (1, _HIGHEST),
    "threads": (1, 1024),
    "workers": (0, 1024),
    "seed": (0, _HIGHEST),
}
_MOST_GB = 1e9
_CHOICES = {"amp": (None, "bf16", "fp16"), "logits_dtype": ("float32", "float16"), "check_data": ("listing", "content")}


@dataclass(frozen=True)
class RunOptions:
    """The options of eval.py that do not name models or settings; see `eval.py --help`."""

    data_roots: tuple[str, ...] = ()
    registry: tuple[str, ...] = ()
    cache_folder: str = "results/cache"
    cache_gb: float = DEFAULT_CACHE_GB
    workers: int | None = None  # processes that prepare images for all devices; None: the cores that are left
    threads: int | None = None  # torch threads of a CPU worker; None: the cores are shared out
    batch_size: int | str | None = None  # None: each model's own; "auto": doubled while the device's memory lasts
    chunk_size: int = DEFAULT_CHUNK
    timeout: float | None = None  # seconds that a worker may be at one chunk; None: as long as it takes
    limit: int | None = None
    seed: int = 0
    amp: str | None = None  # "bf16" or "fp16"
    channels_last: bool | None = None  # None: on the CPU, where convolutions are faster so
    compile: bool = False
    logits_dtype: str = "float32"
    skip_bad_images: bool = False
    checkpoint: str | None = None
    record: tuple[str, ...] = ()  # names of RECORDINGS that are stored beside the logits of every setting
    check_data: str = "listing"  # how stored results are compared with today's data; "content": byte by byte
    results_folder: str = "results"  # where trained rotation heads are stored
    logits: str | None = None  # URL under which logits are kept: testbed.store.places; None: in the results folder

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if name == "batch_size" and value == AUTO:
                continue
            if value is not None and (type(value) is not int or value < least):
                raise EntryError(f"{_flag(name)}: expected a whole number from {least} on, got {value!r}")
            if value is not None and value > most:
                raise EntryError(f"{_flag(name)}: expected a whole number up to {most}, got {value!r}")
        if type(self.cache_gb) not in (int, float) or not 0 <= self.cache_gb <= _MOST_GB:
            raise EntryError(f"--cache-gb: expected a number of GB from 0 to {_MOST_GB:.0f}, got {self.cache_gb!r}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                words = " or ".join(choice for choice in known if choice)
                raise EntryError(f"{_flag(name)}: expected {words}, got {getattr(self, name)!r}")
        if self.timeout is not None and not self.timeout > 0:  # also refuses NaN
            raise EntryError(f"--timeout: expected a number of seconds above 0, got {self.timeout!r}")
        unknown = [name for name in self.record if name not in RECORDINGS]
        if unknown:
            raise EntryError(f"--record: expected {' or '.join(RECORDINGS)}, got '{unknown[0]}'")
        if self.record and self.compile:
            raise EntryError("--record looks into the network, which --compile hides: give one of the two")

    def batch_of(self, own: int) -> int:
        """How many images are prepared as one batch for a model whose own batch size is given.

        With `auto` as many as may go through it at once, once that has been found to fit.
        """
        if self.batch_size == AUTO:
            return own << max(0, (_MOST_AUTO // own).bit_length() - 1)
        return int(self.batch_size or own)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays to store beside the logits. Rotation logits are computed from features, so both are stored."""
        return tuple(name for name in RECORDINGS if name in self.record or (self.record and name == "features"))

    @property
    def variant(self) -> str:
        """The variant under which results are stored: empty for the whole setting with seed 0, else limit and seed."""
        parts = [f"limit={self.limit}"] if self.limit is not None else []
        parts += [f"seed={self.seed}"] if self.seed else []
        return ",".join(parts)


@dataclass(frozen=True)
class RayUse:
    """Where the workers of a run come from, if it is a cluster of Ray."""

    address: str = LOCAL_RAY
    gpu_share: float = 1.0  # of a GPU for each worker

    def __post_init__(self) -> None:
        if self.address not in (LOCAL_RAY, RUNNING_RAY) and not _ADDRESS.fullmatch(self.address):
            raise EntryError(f"--ray: expected nothing, auto or HOST:PORT of a running cluster, got '{self.address}'")
        if not 0 < self.gpu_share <= 1:
            raise EntryError(f"--ray-gpu-share: expected a number above 0 and up to 1, got {self.gpu_share!r}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def stored_model_name(model: str, checkpoint: str | None) -> str:
    """The model name of stored results: with a checkpoint NAME@FILE, without file endings such as .pth.tar."""
    if not checkpoint:
        return model
    return f"{model}@{Path(Path(checkpoint).name.removesuffix('.tar')).stem}"
