"""How observers are told apart in figures: people in one colour, models by colour and marker in their order."""

from __future__ import annotations

from _options import many

PEOPLE_COLOR, PEOPLE_MARKER = "#a51e37", "D"
_COLORS = (
    "tab:blue",
    "tab:orange",
    "tab:green",
    "tab:purple",
    "tab:brown",
    "tab:pink",
    "tab:olive",
    "tab:cyan",
    "0.35",
)
_MARKERS = ("o", "s", "^", "v", "P", "X", "h", "<", ">", "p")

observers_option = many("--models", metavar="GLOB...", text="Only these models; people are always there.")


def model_style(i: int) -> tuple[str, str]:
    """Colour and marker of the i-th model."""
    return _COLORS[i % len(_COLORS)], _MARKERS[i % len(_MARKERS)]
