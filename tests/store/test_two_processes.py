"""Several runs on one database at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from faults.running import LIMIT_S, wait_until
from stored_results import again, evaluations, every_number
from testbed.store import schema
from testbed.store.names import model_names
from testbed.store.opening import open_store

TESTS = Path(__file__).parents[1]
TURNS = 10
WORKER = """
import json, sys, time
from pathlib import Path
from stored_results import chunk, claim
from testbed.metrics.estimate import Estimate
from testbed.store.runs import Busy
from testbed.store.opening import open_store

place, name, go, turns = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
Path(f"{go}-{name}").touch()
while not go.exists():
    time.sleep(0.002)
store = open_store(place, create=True)
store.begin_run()
won = []
for turn in range(turns):
    held = claim(store, name, f"s{turn}")
    for start in (0, 2, 4):
        store.record_chunk(held.evaluation_id, **chunk(start))
    assert [c["start"] for c in store.chunk_facts(held.evaluation_id)] == [0, 2, 4]
    store.complete(held.evaluation_id, {"top1": Estimate(turn), "top5": Estimate(turn)})
    try:
        held = claim(store, "shared", f"s{turn}", resumable=False)
        won.append([turn, held.evaluation_id])
    except Busy:
        pass
print(json.dumps(won))
while not Path(f"{go}-end").exists():
    time.sleep(0.002)
"""


def run_two(place, folder):
    """Start both, let them go at the same moment, and wait until both are done; what each of them claimed."""
    go = folder / "go"
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "TESTBED_RESULTS": str(folder)}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", WORKER, place, name, str(go), str(TURNS)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    }
    try:
        wait_until(lambda: all(Path(f"{go}-{name}").exists() for name in processes))
        go.touch()
        lines = [process.stdout.readline() for process in processes.values()]
        Path(f"{go}-end").touch()  # neither ends before: a run that has ended holds nothing
        assert [process.wait(LIMIT_S) for process in processes.values()] == [0, 0]
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return [json.loads(line) for line in lines]


def test_two_processes_writing_at_once_lose_nothing(empty_place, tmp_path):
    """They begin with making the database, both at the same moment."""
    won = run_two(empty_place, tmp_path)
    store = open_store(empty_place)
    found = {(r.model, r.eval_setting, r.metric): r.value for r in every_number(store)}
    assert found == {(m, f"s{t}", k): float(t) for m in "ab" for t in range(TURNS) for k in ("top1", "top5")}
    holders = Counter(turn for claims in won for turn, _ in claims)
    assert holders == dict.fromkeys(range(TURNS), 1)  # each shared pair was given to one of them
    assert [e.status for e in evaluations(store, model="shared")] == ["running"] * TURNS
    store.engine.dispose()


def test_reader_sees_whole_results_while_a_writer_is_in_its_transaction(store):
    reader = again(store)
    with store.writing() as connection:
        connection.execute(schema.models.insert().values(name="new", tags=[], created_at=""))
        assert model_names(reader) == []
    assert model_names(reader) == ["new"]
