"""A network with loopback alone, for programs that listen on every interface there is."""

from __future__ import annotations

import subprocess

# A process namespace too, so that nothing of what was started is left.
_CLOSED = ["--net", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
_ALONE = ["sh", "-c", 'ip link set lo up && "$@"', "sh"]


class NoClosedNetwork(Exception):
    """None can be made here, and why."""


def closed_off() -> list[str]:
    """What a command begins with that shall have loopback alone."""
    problem = ""
    for more in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *more, *_CLOSED, *_ALONE]
        try:
            tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=60)
        except OSError as error:
            raise NoClosedNetwork(f"no network namespace can be made: {error}") from error
        if tried.returncode == 0:
            return command
        problem = tried.stderr.strip()
    raise NoClosedNetwork(f"no network namespace can be made: {problem}")
