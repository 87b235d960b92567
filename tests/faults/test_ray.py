"""A Ray cluster whose workers and nodes are killed, join and leave: every chunk is done, to the last bit.

Ray listens on every interface, so its cluster runs in a network namespace with loopback alone; a process namespace
makes sure that nothing of it is left. Kills at random moments are in test_random_kills.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faults.ray_story import STORIES

_FIRST, *_OTHERS = [story.__name__ for story in STORIES]


@pytest.fixture(scope="session")
def told(on_ray) -> Callable[..., dict[str, str]]:
    """A function that lives some stories on one cluster: what went wrong in each of them."""

    def live(*stories: str) -> dict[str, str]:
        problems = {end["story"]: end["problem"] for end in on_ray("ray_story.py", *stories)}
        assert list(problems) == list(stories)
        return problems

    return live


def test_a_worker_and_a_node_that_are_killed_lose_no_chunk_and_a_new_node_is_used(told):
    (problem,) = told(_FIRST).values()
    assert not problem, problem


@pytest.fixture(scope="session")
def other_stories(told) -> dict[str, str]:
    return told(*_OTHERS)


@pytest.mark.long
@pytest.mark.parametrize("story", _OTHERS)
def test_story(other_stories, story):
    assert not other_stories[story], other_stories[story]
