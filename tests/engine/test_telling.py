"""What a run tells of itself to those who watch it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import pytest

from testbed.engine.pairs import Pair, Plan
from testbed.engine.pools import Member
from testbed.engine.progress import Silent
from testbed.engine.telling import Told


def pair(name="m", setting="s", n=100, action="run"):
    model, declared = SimpleNamespace(name=name), SimpleNamespace(name=setting, version=1)
    return Pair(model, declared, action, name, rows=range(n))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def members():
    return []


@pytest.fixture
def make(clock, members):
    def told(*pairs, devices=("gpu0",), variant=""):
        members[:] = [Member(device, device, deque(["a task"])) for device in devices]
        return Told(Silent(), Plan(list(pairs)), members, variant, clock)

    return told


def images(told):
    return told.summed_up()["images"]


def test_what_is_done_already_is_not_planned(make):
    told = make(pair("a"), pair("b", action="derive"), pair("c", action="done")).summed_up()
    assert told["pairs"] == {"planned": 2, "done": 0, "failed": 0}
    assert told["images"]["planned"] == 100


def test_images_are_told_by_whose_work_they_were(make):
    here, elsewhere, failing = pair("a"), pair("b"), pair("c")
    told = make(here, elsewhere, failing)
    told.begun(here, 40)  # an earlier run had done so many
    told.advance("gpu0", 30)
    assert images(told) == {"planned": 300, "finished": 0, "elsewhere": 0, "failed": 0, "under_way": 70}
    told.advance("gpu0", 30)
    told.finished(here)
    told.finished(elsewhere)  # this run never began it
    told.failed(failing, "no such weights", "")
    assert images(told) == {"planned": 300, "finished": 100, "elsewhere": 100, "failed": 100, "under_way": 0}
    assert told.summed_up()["pairs"] == {"planned": 3, "done": 2, "failed": 1}


def test_a_pair_that_fails_leaves_what_the_others_have_under_way(make):
    """Two models in one bundle: one fails in the middle."""
    good, bad = pair("good"), pair("bad")
    told = make(good, bad)
    told.begun(good, 0)
    told.begun(bad, 0)
    told.advance("gpu0", 100)
    told.failed(bad, "out of memory", "")
    assert images(told)["under_way"] == 50


def test_a_chunk_that_was_done_twice_is_not_more_than_the_pair_has(make):
    only = pair()
    told = make(only)
    told.begun(only, 0)
    told.advance("gpu0", 180)
    assert images(told)["under_way"] == 100


def test_images_per_second_are_those_of_the_last_half_minute(make, clock):
    told = make(pair(n=10_000), devices=["gpu0", "gpu1"])
    assert told.summed_up()["images_per_second"] == 0.0
    for device, n in (("gpu0", 100), ("gpu1", 300)):
        told.advance(device, n)
    clock.now += 10
    assert told.summed_up()["images_per_second"] == 40.0
    for _ in range(20):
        clock.now += 5
        told.advance("gpu0", 10)
        now = told.summed_up()
    assert [d["images_per_second"] for d in now["devices"]] == [2.0, 0.0]
    assert [d["images"] for d in now["devices"]] == [300, 300]


def test_each_device_tells_what_it_is_at(make, members, clock):
    told = make(pair(), devices=["gpu0", "gpu1", "gpu2"])
    told.at("gpu1", "loading model a\x1b[31m")
    members[2].tasks.clear()
    clock.now += 7
    told.advance("gpu0", 1)
    clock.now += 1
    assert [(d["device"], d["at"], d["silent_s"]) for d in told.summed_up()["devices"]] == [
        ("gpu0", "starting", 1.0),
        ("gpu1", "loading model a\\x1b[31m", 8.0),
        ("gpu2", None, None),
    ]


def test_a_device_that_joins_later_is_told_of(make, members):
    told = make(pair())
    members.append(Member("gpu9", "gpu9"))
    told.advance("gpu9", 5)
    assert [d["device"] for d in told.summed_up()["devices"]] == ["gpu0", "gpu9"]


def test_the_same_command_is_the_same_work_whatever_is_done_of_it(make):
    pairs = [pair("a"), pair("b"), pair("a", "t"), pair("b", "t")]
    work = make(*pairs).summed_up()["work"]
    assert make(*(replace(p, action="done") for p in pairs)).summed_up()["work"] == work
    others = (make(*pairs[:3]), make(*pairs, variant="limit=5"), make(*pairs[:3], pair("c", "t")))
    assert len({work, *(other.summed_up()["work"] for other in others)}) == 4
