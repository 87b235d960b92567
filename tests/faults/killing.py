"""Runs that are killed at random moments, brought to their end, and held against one that nobody disturbed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

import tiny
from faults.running import LIMIT_S, descendants, started, state, told_at_end, wait_until
from postgres_server import Server
from stored_results import evaluations
from testbed.store.database import Store
from testbed.store.manage import verify
from testbed.store.opening import open_store

MODELS, SETTINGS = ("tiny_slow", "tiny_b"), ("tiny", "tiny.noise")
IN_THIS_PROCESS = dict(inline=False, chunk_size=16, threads=1)
_CHUNKS = 52  # of a run: 13 of each pair
_LAST = 0.8  # of them; a kill may come so late that something is left to do
_SHARED = re.compile(r"psm_|sem\.|torch_|testbed")  # what this program could leave in /dev/shm, and no other

Chunk = tuple[int, int, int, float, str]  # evaluation, rows, seconds and device: two that were computed never agree


@dataclass
class Place:
    """Where the runs of a round keep their results."""

    folder: Path
    db: str
    server: Server | None = None
    workers: Sequence[str] = ("--gpus", "cpu", "cpu", "--workers", "2")
    _store: Store | None = None

    @property
    def command(self) -> list[str]:
        words = ["--models", *MODELS, "--eval-settings", *SETTINGS, *self.workers]
        words += ["--threads", "1", "--chunk-size", "16", "--db", self.db]
        noted = [sys.executable, str(Path(__file__).with_name("noted_eval.py"))]
        return ["env", f"NOTES={self._notes}", *noted, *words]

    @property
    def _notes(self) -> Path:
        """Beside the results, in which nothing else may stay."""
        return self.folder.with_suffix(".notes")

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = open_store(self.db)
            self._store.folder = self.folder
        return self._store

    def chunks(self) -> set[Chunk]:
        """What has been recorded as finished."""
        if not self._notes.exists():
            return set()
        return {tuple(json.loads(line)) for line in self._notes.read_text(encoding="utf-8").splitlines()}

    def close(self) -> None:
        if self._store is not None:
            self._store.engine.dispose()


@dataclass
class Round:
    """One run of two models on two settings, with kills of the given victims, one after the other."""

    place: Place
    random: Random
    before: set[str] = field(default_factory=lambda: shared_memory())
    kept: set[Chunk] = field(default_factory=set)  # finished before a kill
    resumed_s: list[float] = field(default_factory=list)  # from each kill to the next chunk
    said: list[str] = field(default_factory=list)  # what was killed when, for whoever looks into a failure

    def survive(self, victims: list[str]) -> None:
        first = 0 if self.place.server is None else 1  # a run that cannot reach its database does not begin
        moments = sorted(self.random.randrange(first, int(_LAST * _CHUNKS)) for _ in victims)
        ahead = list(zip(victims, moments, strict=True))
        while True:
            with started(self.place.command) as run:
                again = self._disturb(run, ahead)
                if not again:
                    told = told_at_end(run)
                    assert run.returncode == 0, told
                    assert "FAILED" not in told and "Traceback" not in told, told
                wait_until(lambda run=run: not living(run.pid))
            if not again:
                return

    def _disturb(self, run: subprocess.Popen[str], ahead: list[tuple[str, int]]) -> bool:
        """Kill what is to be killed; whether the run itself was, which then is to be started again."""
        self.recover(run, time.monotonic())
        while ahead:
            victim, moment = ahead.pop(0)
            wait_until(lambda moment=moment: len(self.place.chunks()) >= moment or run.poll() is not None)
            time.sleep(self.random.uniform(0, 0.1 if moment else 3.0))
            self._kill(victim, run)
            if victim in ("run", "everything"):
                run.wait(LIMIT_S)
                wait_until(lambda: not living(run.pid))  # no orphan goes on
                self.kept |= self.place.chunks()
                return True
            self.recover(run, time.monotonic())
        return False

    def _kill(self, victim: str, run: subprocess.Popen[str]) -> None:
        strike = self.aimed(victim, run)
        self.kept |= self.place.chunks()
        self.said.append(f"{victim} after {len(self.kept)} chunks")
        strike()

    def aimed(self, victim: str, run: subprocess.Popen[str]) -> Callable[[], None]:
        """What kills, once there is somebody to be killed."""
        if self.place.server is not None:
            return self._restart_server
        found: list[int] = []
        wait_until(lambda: found.extend(candidates(victim, run.pid)) or found, run)
        return lambda: kill(self.random.choice(found), os.killpg if victim == "everything" else os.kill)

    def _restart_server(self) -> None:
        assert self.place.server is not None
        self.place.server.kill()
        time.sleep(self.random.uniform(0, 1))
        self.place.server.start()

    def recover(self, run: subprocess.Popen[str], began: float) -> None:
        """Wait for the next chunk; after a kill the time counts."""
        have = len(self.place.chunks() | self.kept)
        wait_until(lambda: len(self.place.chunks()) > have or run.poll() is not None or not self.said)
        if self.said:
            self.resumed_s.append(time.monotonic() - began)

    def check(self, undisturbed: dict[tuple[str, str], np.ndarray]) -> None:
        """Nothing is lost, nothing was done twice, nothing is left behind."""
        store = self.place.store
        rows = {(evaluation, start) for evaluation, start, *_ in self.kept}
        again = {chunk for chunk in self.place.chunks() - self.kept if chunk[:2] in rows}
        assert not again, f"finished before a kill, and computed again: {sorted(again)}"
        assert {evaluation for evaluation, _ in rows} <= {e.id for e in evaluations(store)}  # none was begun anew
        found = [(e.model, e.eval_setting, e.status) for e in evaluations(store)]
        assert found == [(m, s, "completed") for m in sorted(MODELS) for s in SETTINGS]
        for pair, logits in undisturbed.items():
            np.testing.assert_array_equal(tiny.logits(store, *pair), logits)
        assert {problem for _, problem in verify(store)} == {""}
        assert store.living_runs() == set()
        results = {self.place.folder / path for e in evaluations(store) for path in (e.logits_path, e.samples_path)}
        assert set(self.place.folder.glob("logits/*/*")) == results
        assert not list(self.place.folder.rglob(".*"))
        assert shared_memory() <= self.before
        if store.engine.dialect.name == "sqlite":
            with store.reading() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalars().all() == ["ok"]
                assert not connection.exec_driver_sql("PRAGMA foreign_key_check").all()


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if _SHARED.match(name)}


def kill(pid: int, how=os.kill) -> None:
    try:
        how(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has just ended
        pass


def candidates(victim: str, run: int) -> list[int]:
    """The processes of a run that go by that name: a server forks the workers and the broker of the preparing ones."""
    if victim in ("run", "everything"):
        return [run]
    forking = [pid for pid in children(run) if "forkserver" in command_of(pid)]
    if victim == "fork server":
        return forking
    forked = [pid for server in forking for pid in children(server)]
    brokers = [pid for pid in forked if children(pid)]
    return {
        "worker": [pid for pid in forked if pid not in brokers],
        "broker": brokers,
        "preparing process": [pid for broker in brokers for pid in children(broker)],
        "database server": [],  # not a process of the run
    }[victim]


def children(pid: int) -> list[int]:
    below = descendants(pid)
    return [child for child in below if not any(child in descendants(other) for other in below if other != child)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def living(session: int) -> list[int]:
    """The processes of a session, whoever they were given to when their parent died."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if state(pid) not in ("", "Z") and _session_of(pid) == session]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
