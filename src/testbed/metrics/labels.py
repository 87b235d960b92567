"""The meaning of the targets that a metrics function takes: columns of the logits, or its own numbering."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

# Targets are columns of the logits. The number of columns is checked; a class_sublist keeps only images of its classes
# and renumbers their targets.
COLUMNS = "columns"
# Targets are numbered in a way that only the metric knows, such as categories or groups. A class_sublist selects only
# columns; every image is kept, with its label unchanged.
OWN = "own"
MEANINGS = (COLUMNS, OWN)

F = TypeVar("F", bound=Callable[..., object])


def targets_are(meaning: str) -> Callable[[F], F]:
    """Decorator that declares what the targets of a metrics function are: COLUMNS or OWN.

    A class declares it by a class attribute instead: `targets_are = COLUMNS`. Without a declaration a class_sublist
    selects images as for COLUMNS, but the number of columns is not checked.
    """
    _check(meaning, "targets_are")

    def declare(metrics_fn: F) -> F:
        metrics_fn.targets_are = meaning  # type: ignore[attr-defined]
        return metrics_fn

    return declare


def meaning_of_targets(metrics_fn: object) -> str | None:
    """The declared meaning of a metrics function's targets; None without a declaration."""
    meaning = getattr(metrics_fn, "targets_are", None)
    if meaning is not None:
        _check(meaning, f"metrics function {getattr(metrics_fn, '__name__', type(metrics_fn).__name__)}")
    return meaning


def _check(meaning: object, owner: str) -> None:
    if meaning not in MEANINGS:
        raise ValueError(f"{owner}: expected targets to be {' or '.join(map(repr, MEANINGS))}, got {meaning!r}")
