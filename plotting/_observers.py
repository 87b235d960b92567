"""How observers are told apart in figures: people in one colour, models by colour and marker in their order."""

from __future__ import annotations

from _drawing import color_of
from _options import many

# The colour and marker of people in the published figures of model-vs-human.
PEOPLE_COLOR, PEOPLE_MARKER = "#a51e37", "D"
_MARKERS = ("o", "s", "^", "v", "P", "X", "h", "<", ">", "p")

observers_option = many("--models", metavar="GLOB...", text="Only these models; people are always there.")


def model_style(i: int) -> tuple[str, str]:
    """Colour and marker of the i-th model."""
    return color_of(i), _MARKERS[i % len(_MARKERS)]
