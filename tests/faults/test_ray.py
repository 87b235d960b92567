"""A Ray cluster whose workers and nodes are killed, join and leave: every chunk is done, to the last bit.

Ray listens on every interface, so its cluster runs in a network namespace with loopback alone; a process namespace
makes sure that nothing of it is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tiny
from closed_network import NoClosedNetwork, closed_off
from faults.ray_story import STORIES

_LIMIT_S = 600


@pytest.fixture(scope="session")
def closed() -> list[str]:
    """What a command begins with that shall have loopback alone."""
    pytest.importorskip("ray")
    try:
        return closed_off()
    except NoClosedNetwork as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def told(closed: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """A function that lives some stories on one cluster: what went wrong in each of them."""

    def live(*stories: str) -> dict[str, str]:
        for left in (1, 0):  # a start of Ray on a busy machine may fail
            folder = tmp_path_factory.mktemp("ray")
            with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
                environment = {
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([*map(str, (tiny.ROOT / "src", tiny.ROOT / "tests"))]),
                    "TESTBED_REGISTRY": str(tiny.REGISTRY),
                    "TINY_MARKER": str(folder / "marker"),
                    "RAY_TMPDIR": short,  # names of sockets are short
                    "RAY_USAGE_STATS_ENABLED": "0",
                }
                script = [sys.executable, str(Path(__file__).with_name("ray_story.py")), str(folder), *stories]
                ran = subprocess.run(
                    [*closed, *script], capture_output=True, text=True, timeout=_LIMIT_S, env=environment
                )
            ends = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"story"')]
            if ends or not left:
                break
        assert len(ends) == len(stories), ran.stdout + ran.stderr
        return {end["story"]: end["problem"] for end in ends}

    return live


def test_a_worker_and_a_node_that_are_killed_lose_no_chunk_and_a_new_node_is_used(told):
    (problem,) = told("a_worker_and_a_node_are_killed_and_another_joins").values()
    assert not problem, problem


@pytest.fixture(scope="session")
def other_stories(told) -> Iterator[dict[str, str]]:
    return told(*(story.__name__ for story in STORIES[1:]))


@pytest.mark.long
@pytest.mark.parametrize("story", [story.__name__ for story in STORIES[1:]])
def test_story(other_stories, story):
    assert not other_stories[story], other_stories[story]
