"""Passwords of database addresses, kept out of everything that is stored or shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlalchemy as sa

MASK = "***"
# scheme://user:PASSWORD@host. Up to the last @, since a password that is not percent-encoded may hold one: rather too
# much is hidden than too little.
_IN_TEXT = re.compile(r"(\w[\w+.-]*://[^\s/:@]*:)(?:\S*|[^/@]*)(?=@)")
_IN_WORD = re.compile(r"(\w[\w+.-]*://[^/:@]*:).*(?=@)", re.DOTALL)  # of a command, which may hold spaces
# password=..., sslpassword=..., as a parameter of an address or a word of its own.
_AS_PARAMETER = re.compile(r"(\b\w*(?:password|passwd|passphrase|pwd|secret|token)=)[^\s&;'\"]+", re.IGNORECASE)


def masked(text: str, *secrets: str | None) -> str:
    """The text with `***` for the passwords of addresses in it, and for the given secrets wherever they stand."""
    text = _AS_PARAMETER.sub(rf"\1{MASK}", _IN_TEXT.sub(rf"\1{MASK}", text))
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return text


def masked_url(url: sa.URL) -> str:
    """A database address as it may be shown."""
    return masked(url.render_as_string(hide_password=True))


def masked_command(words: Sequence[str]) -> str:
    """A command line as it may be stored. Bytes of a word that are no UTF-8 are written as escapes."""
    shown = (masked(_IN_WORD.sub(rf"\1{MASK}", word)) for word in words)
    return " ".join(shown).encode("utf-8", "backslashreplace").decode("utf-8")
