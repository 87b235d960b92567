"""Passwords of database addresses, kept out of everything that is stored or shown: `masked` does it in any text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlalchemy as sa

from testbed.errors import MASK, masked

_IN_WORD = re.compile(r"(\w[\w+.-]*://[^/:@]*:).*(?=@)", re.DOTALL)  # of a command, which may hold spaces


def masked_url(url: sa.URL) -> str:
    """A database address as it may be shown."""
    return masked(url.render_as_string(hide_password=True))


def masked_command(words: Sequence[str]) -> str:
    """A command line as it may be stored. Bytes of a word that are no UTF-8 are written as escapes."""
    shown = (masked(_IN_WORD.sub(rf"\1{MASK}", word)) for word in words)
    return " ".join(shown).encode("utf-8", "backslashreplace").decode("utf-8")
