"""What the targets that a metrics function takes are: columns of the logits, or a numbering of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

# Targets are column numbers of the logits. The number of columns is checked; a class_sublist keeps only images of its
# classes and numbers the targets anew.
COLUMNS = "columns"
# Targets are numbered in a way that only the metric knows, such as categories or groups. A class_sublist chooses
# columns only; every image stays, with its label as it is.
OWN = "own"
MEANINGS = (COLUMNS, OWN)

F = TypeVar("F", bound=Callable[..., object])


def targets_are(meaning: str) -> Callable[[F], F]:
    """Decorator of a metrics function: what its targets are, COLUMNS or OWN.

    A class says it with a class attribute instead: `targets_are = COLUMNS`. Where nothing is declared, a class_sublist
    selects images as with COLUMNS, but nothing is checked.
    """
    _check(meaning, "targets_are")

    def declare(metrics_fn: F) -> F:
        metrics_fn.targets_are = meaning  # type: ignore[attr-defined]
        return metrics_fn

    return declare


def meaning_of_targets(metrics_fn: object) -> str | None:
    """What a metrics function declares its targets to be; None where it declares nothing."""
    meaning = getattr(metrics_fn, "targets_are", None)
    if meaning is not None:
        _check(meaning, f"metrics function {getattr(metrics_fn, '__name__', type(metrics_fn).__name__)}")
    return meaning


def _check(meaning: object, owner: str) -> None:
    if meaning not in MEANINGS:
        raise ValueError(f"{owner}: expected targets to be {' or '.join(map(repr, MEANINGS))}, got {meaning!r}")
