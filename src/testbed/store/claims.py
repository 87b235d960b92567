"""What a run and its database say to each other about an evaluation that is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.store.runs import Busy

METRIC = "metrics_fn"  # among the functions whose digests a result keeps


@dataclass(frozen=True)
class Work:
    """What an evaluation will be: images in chunks, from which data, into which files. A claim compares it."""

    n_images: int
    chunk_size: int = 0  # 0 for a result that comes in one step
    fingerprint: str = ""  # of the data
    samples_path: str = ""
    dtype: str | None = None  # that it is computed in
    logits_path: str | None = None
    functions: Mapping[str, str] = field(default_factory=dict)  # digests of what computes it


@dataclass(frozen=True)
class Claim:
    """The evaluation this run may work on, and the chunks of it that an earlier run has finished."""

    evaluation_id: int
    chunk_size: int
    done: tuple[tuple[int, int], ...]
    logits_path: str | None = None  # where its logits go; for chunks of an earlier run, where these lie beside
    inherited: bool = False  # the chunks are of another run, which may wake up and write there once more
    abandoned: str | None = None  # the same of an evaluation that could not be gone on with; its parts may be removed


@dataclass(frozen=True)
class Chunk:
    """Some rows of an evaluation whose outputs lie in a file of their own."""

    evaluation_id: int
    start: int
    stop: int
    seconds: float
    device: str
    bad_rows: list[int]
    weights_sha256: str | None = None
    content: str | None = None  # digest of the images' bytes


class TakenOver(Busy):
    """Another run has taken the pair over while this one slept: nothing about it is this run's to write any more."""

    def __init__(self) -> None:
        super().__init__("taken over by another run while this one was silent")


def last_of_each(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Without those whose rows come again: a chunk that was thought to be lost may be computed twice."""
    kept: dict[int, list[Chunk]] = {}
    for chunk in chunks:
        others = kept.get(chunk.evaluation_id, [])
        others = [other for other in others if other.stop <= chunk.start or chunk.stop <= other.start]
        kept[chunk.evaluation_id] = [*others, chunk]
    return [chunk for of_one in kept.values() for chunk in of_one]


def same_functions(before: Mapping[str, str] | None, today: Mapping[str, str]) -> bool:
    """Whether chunks were computed by today's functions; the metric comes after them. Unknown ones are the same."""
    if not before or not today:
        return True
    return all(before.get(kind) == today.get(kind) for kind in {*before, *today} - {METRIC})
