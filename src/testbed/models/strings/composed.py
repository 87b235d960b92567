"""Names inside a model string: `A+B` and `BACKBONE@SETTING`, with parentheses around a name that holds such a sign."""

from __future__ import annotations

import re

from testbed.errors import UnknownName


def split_outside(text: str, sign: str, owner: str, most: int = -1) -> list[str]:
    """The parts between the signs that stand in no parentheses, without parentheses around a whole part."""
    parts: list[str] = []
    depth = start = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == sign and not depth and len(parts) != most:
            parts.append(text[start:place])
            start = place + 1
    if depth:
        raise UnknownName(f"'{owner}': expected as many ( as ), each pair around one name")
    return [_bare(part) for part in (*parts, text[start:])]


def _bare(part: str) -> str:
    """Without parentheses around all of it: `(a)-(b)` keeps its own."""
    depth = 0
    for place, letter in enumerate(part):
        depth += (letter == "(") - (letter == ")")
        if not depth and place < len(part) - 1:
            return part
    return part[1:-1] if part.startswith("(") and part.endswith(")") else part


def in_parentheses(name: str, signs: str) -> str:
    """The name as it is written inside another, where it may hold one of the signs."""
    return f"({name})" if any(sign in name for sign in signs) else name


def options_at_end(text: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The text without the options at its end, such as `,knn=20`; others are a part of the name before them."""
    options: dict[str, str] = {}
    pattern = re.compile(rf"(?P<rest>.*),(?P<key>{'|'.join(known)})=(?P<value>[^,()]*)")
    while (match := pattern.fullmatch(text)) is not None:
        options[match["key"]], text = match["value"], match["rest"]
    return text, options
