"""What workers, the broker and the preparing processes say to each other, and where in shared memory pictures lie.

Jobs and their answers pass the broker as bytes: it reads a job only where something has happened to it.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.engine.pictures import Filled, Form


@dataclass(frozen=True)
class Job:
    """Pictures to prepare: by their places in the dataset of a setting, as one model wants them."""

    number: int
    device: int
    setting: str
    model: str
    perturb: bool
    indices: list[int]
    form: Form | None = None  # None asks for it
    offset: int = 0  # in the arena of the device

    def __str__(self) -> str:
        return f"{len(self.indices)} images of {self.setting} from number {self.indices[0]} on"


@dataclass(frozen=True)
class Prepared:
    number: int
    form: Form | None
    filled: Filled | None


@dataclass(frozen=True)
class Refused:
    """Why a job cannot be done: an error of testbed.errors by its name, or any other with its traceback."""

    number: int
    kind: str
    error: str
    details: str = ""


@dataclass(frozen=True)
class Dropped:
    """Jobs that nobody has begun, after Cancel."""

    numbers: list[int]


@dataclass(frozen=True)
class Told:
    """A line for the user."""

    text: str


# From a worker that wants no more of its jobs. Those that are being done are still answered.
CANCEL = b"cancel"


@dataclass(frozen=True)
class Welcome:
    """The first word to a worker; the descriptor of its shared memory follows."""

    device: int
    processes: int
    nbytes: int


def as_message(jobs: Sequence[Job]) -> bytes:
    """Jobs as a worker sends them."""
    return pickle.dumps([pickle.dumps(job) for job in jobs])


def jobs_in(message: bytes) -> list[bytes]:
    """The jobs of a worker as they are passed on."""
    jobs: list[bytes] = pickle.loads(message)
    return jobs


def read_job(message: bytes) -> Job:
    job: Job = pickle.loads(message)
    return job


def array_in(arena: mmap.mmap, offset: int, count: int, form: Form) -> Any:
    """The pictures at a place in shared memory, as an array."""
    import numpy as np

    flat = np.frombuffer(arena, dtype=form.dtype, count=count * int(np.prod(form.shape)), offset=offset)
    return flat.reshape(count, *form.shape)
