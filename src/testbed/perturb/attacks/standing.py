"""The images of a batch that still stand: those that are fooled leave it, and cost no further passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

STEPS_BETWEEN_LOOKS = 5  # on a device that would be waited for; at most four passes of an image are wasted


@dataclass
class Attacked:
    """The state of the images under attack; entry i of every tensor belongs to the same image.

    Those that have fallen stay in it until the next look, without being changed: a step has a fixed shape, and nothing
    waits for the device.
    """

    row: Tensor  # the image's place in the batch
    standing: Tensor  # whether the model still sees the target


State = TypeVar("State", bound=Attacked)


def looks(step: int, images: Tensor) -> bool:
    """Whether fallen images leave before this step (counted from 0): on a CPU always, elsewhere now and then."""
    return images.device.type == "cpu" or step % STEPS_BETWEEN_LOOKS == 0


def let_go(state: State, put_back: Callable[[State], None]) -> None:
    """Drop the images that have fallen; before any goes, `put_back` writes down where all of them are."""
    stay = places_of(state.standing)
    if len(stay) == len(state.row):
        return
    put_back(state)
    for entry in fields(state):
        setattr(state, entry.name, getattr(state, entry.name)[stay])


def places_of(mask: Tensor) -> Tensor:
    """The places where a mask is true. The host must learn how many there are, so it waits for the device.

    PGD and APGD wait nowhere else.
    """
    return mask.nonzero().flatten()
