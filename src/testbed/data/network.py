"""Whether the Hugging Face Hub can be reached: its client by itself tries for minutes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE_S = 5  # for the Hugging Face Hub to answer


@contextmanager
def hub_without_network() -> Iterator[None]:
    """Where the Hugging Face Hub cannot be reached, its client takes stored files or fails at once inside the block.

    By itself it tries every address five times, for minutes.
    """
    hub = sys.modules.get("huggingface_hub")  # timm and open_clip have imported it
    if hub is None or hub.constants.HF_HUB_OFFLINE or _reachable(str(hub.constants.ENDPOINT)):
        yield
        return
    hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.constants.HF_HUB_OFFLINE = False


def _reachable(address: str) -> bool:
    """Whether a connection can be made; taken for granted behind a proxy, which alone may know the name."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    parts = urlsplit(address)
    if parts.scheme in getproxies() or "all" in getproxies():
        return True
    try:
        socket.create_connection((str(parts.hostname), parts.port or 443), timeout=_PATIENCE_S).close()
        return True
    except OSError:
        return False
