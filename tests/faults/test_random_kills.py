"""SIGKILL at random moments: finished chunks survive, the bits are those of an undisturbed run, nothing stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa

import tiny
from faults.fuzzing import rounds
from faults.killing import IN_THIS_PROCESS, MODELS, SETTINGS, Place, Round
from postgres_server import Server, serving_or_skip

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")

ON_THIS_MACHINE = ["preparing process", "worker", "broker", "fork server", "run"]
CASES = [
    *((ON_THIS_MACHINE, number) for number in range(rounds(short=1, long=5))),  # one after the other, in one round
    *(([victim], number) for victim in [*ON_THIS_MACHINE, "everything"] for number in range(rounds(short=0, long=6))),
    *((["database server"], number) for number in range(rounds(short=1, long=9))),
]
RAY_ROUNDS = rounds(short=0, long=6)  # of each kind; each costs a start of eval.py and of two actors


def kind_of(victims: list[str]) -> str:
    return "all in turn" if len(victims) > 1 else victims[0]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    report, store = tiny.run(tmp_path_factory.mktemp("undisturbed"), MODELS, SETTINGS, **IN_THIS_PROCESS)
    assert not report.failed
    return {(model, setting): tiny.logits(store, model, setting) for model in MODELS for setting in SETTINGS}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving_or_skip() as running:
        yield running


@pytest.fixture
def place(tmp_path, request, monkeypatch) -> Iterator[Callable[[bool], Place]]:
    """A function that makes a place for results, on the server or in a file."""
    made = []

    def make(on_server: bool) -> Place:
        folder = tmp_path / "results"
        if on_server:
            server = request.getfixturevalue("server")
            monkeypatch.setenv("TESTBED_RESULTS", str(folder))
            name = f"round_{tmp_path.name[-20:]}".lower().replace("-", "_")
            with server.administration() as connection:
                connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
            made.append(Place(folder, server.url_of(name), server))
        else:
            made.append(Place(folder, str(folder / "results.db")))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("victims", "number"), CASES, ids=lambda value: "+".join(value) if isinstance(value, list) else None
)
def test_a_run_survives_kills_at_random_moments(place, undisturbed, record_property, victims, number):
    seed = f"{kind_of(victims)} {number}"
    record_property("rounds of", f"SIGKILL: {kind_of(victims)}")
    tried = Round(place("database server" in victims), Random(seed))
    try:
        tried.survive(Random(f"order {seed}").sample(victims, len(victims)))
        tried.check(undisturbed)
    finally:
        print(f"seed {seed!r}; killed: {', '.join(tried.said) or 'nothing yet'}")  # shown where the test fails
    for seconds in tried.resumed_s:
        record_property("resumed after", seconds)


@pytest.mark.skipif(not RAY_ROUNDS, reason="make test has one kill of each kind, in test_ray.py")
def test_a_run_on_ray_survives_kills_at_random_moments(on_ray, record_property):
    """Of its actors, of nodes and of itself; other nodes take the place of those that are gone."""
    tried = on_ray("ray_kills.py", str(RAY_ROUNDS))
    for told in tried:
        record_property("rounds of", f"SIGKILL: {told['kind']}")
        for seconds in told["resumed"]:
            record_property("resumed after", seconds)
        assert not told["problem"], told["problem"]
    assert len(tried) == 3 * RAY_ROUNDS
