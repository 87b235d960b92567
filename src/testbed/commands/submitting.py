"""eval.py --submit N: the shards of a run as one array job, through submitit.

submitit hands a job to its process as a pickle file in the folder of its logs; so it is a small object of plain words:
the command of one shard, which anybody can also type.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from testbed.commands.options import CONSOLE, WORDS, say
from testbed.data.locate import clone
from testbed.engine.processes import die_with_parent
from testbed.engine.shards import Shard
from testbed.errors import TestbedError, counted
from testbed.store.masking import masked, masked_command
from testbed.store.opening import database_place

CLUSTERS = ("slurm", "local")
_DAY_MIN = 24 * 60  # submitit's own limit is five minutes
_PATIENCE_S = 45.0  # for a shard to record its finished chunks; Slurm's warning comes 90 s before the end
_TAKEN = {"--submit": 1, "--submit-to": 1, "--submit-option": None}  # words behind an option; None: up to the next


@dataclass
class ShardJob:
    """The command of one shard, in a process of its own.

    submitit ignores SIGTERM in its process and in those that it forks, which is not to be inherited by workers.
    """

    command: tuple[str, ...]
    folder: str  # in which it is run
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def __call__(self) -> int:
        self._process = subprocess.Popen(self.command, cwd=self.folder, preexec_fn=die_with_parent)
        try:
            code = self._process.wait()
        finally:  # also where a signal ends the job
            self._interrupt()
            self._process.kill()
            self._process.wait()
        if code:  # so that the cluster tells of it
            raise RuntimeError(f"{shlex.join(self.command)} ended with exit code {code}")
        return code

    def checkpoint(self) -> Any:
        """Called before a time limit or a preemption ends the job: it is queued again, and goes on by its chunks."""
        from submitit.helpers import DelayedSubmission

        self._interrupt()
        return DelayedSubmission(replace(self))

    def _interrupt(self) -> None:
        """Let the shard record what is finished.

        The main thread may be called here, by a signal, from within the `wait` of the process, which holds a lock: so
        the system is asked itself.
        """
        assert self._process is not None
        began = time.monotonic()
        if not _has_ended(self._process.pid):
            os.kill(self._process.pid, signal.SIGINT)
        while not _has_ended(self._process.pid) and time.monotonic() - began < _PATIENCE_S:
            time.sleep(0.1)


def _has_ended(pid: int) -> bool:
    """Whether a child has ended, which is not taken note of."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has been taken note of
        return True


def submit(count: int, cluster: str, options: Sequence[str], db: str | None, dry_run: bool) -> list[Any]:
    """Submit the command that is being run as `count` shards; the jobs, as submitit has them."""
    context = click.get_current_context()
    words = _without(context.meta[WORDS], _TAKEN)
    place, folder = database_place(db)
    in_file = place.get_backend_name() == "sqlite"
    if in_file:
        words = _without(words, {"--db": 1 if db else 0})
    if masked_command(words) != " ".join(words):
        raise TestbedError(
            "--submit: submitit writes the command to files: expected a database without a password in the command; "
            "give it by TESTBED_DB or ~/.pgpass"
        )
    shards = [Shard(number, count) for number in range(1, count + 1)]
    own = {shard: folder / "shards" / f"{shard.number}-of-{count}" / "results.db" for shard in shards}
    program = _program(bool(context.meta.get(CONSOLE)))
    commands = [
        (*program, *words, "--shard", f"{s.number}/{count}", *(("--db", str(own[s])) if in_file else ()))
        for s in shards
    ]
    if dry_run:
        click.echo(f"would submit {counted(count, 'job')} to {cluster}, the first of them:\n{shlex.join(commands[0])}")
        return []
    jobs = _submitted([ShardJob(c, str(Path.cwd())) for c in commands], folder / "submitted", cluster, _read(options))
    ids = [str(job.job_id) for job in jobs]
    click.echo(f"submitted {counted(count, 'job')} to {cluster}: {ids[0]}{f' to {ids[-1]}' if count > 1 else ''}")
    click.echo(f"logs: {folder / 'submitted'}/JOB_0_log.err and .out")
    if in_file:
        files = f"{shlex.quote(str(folder / 'shards'))}/*-of-{count}/results.db"
        into = f" --db {shlex.quote(db)}" if db else ""
        click.echo("Every shard has a database of its own. At any time, for what is finished:")
        say(f"  python db.py --merge {files}{into}")
        click.echo("How far one of them is:")
        say(f"  python db.py --watch --db {shlex.quote(str(own[shards[0]]))}")
    else:
        click.echo("How far they are:")
        say(f"  python db.py --watch{f' --db {shlex.quote(masked(db))}' if db else ''}")
    return jobs


def _without(words: Sequence[str], options: dict[str, int | None]) -> list[str]:
    """The words of a command without some options and their values."""
    kept, skipped = list[str](), 0
    many = False
    for word in words:
        name = word.partition("=")[0]
        if name in options:
            number = options[name]
            many, skipped = number is None, 0 if "=" in word else number or 0
        elif skipped:
            skipped -= 1
        elif not many or word.startswith("--"):
            many = False
            kept.append(word)
    return kept


def _program(by_console: bool) -> tuple[str, ...]:
    """The same program as was called: a script finds the folders of its clone, `testbed` those of the user."""
    project = clone()
    if by_console or project is None:
        return (sys.executable, "-m", "testbed.commands.console", "eval")
    return (sys.executable, str(project / "eval.py"))


def _read(options: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE, as numbers where they are."""
    read: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not (name and equals):
            raise TestbedError(f"--submit-option: expected NAME=VALUE such as gpus_per_node=1, got '{option}'")
        read[name] = _value(value)
    return read


def _value(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _submitted(jobs: Sequence[ShardJob], folder: Path, cluster: str, options: dict[str, Any]) -> list[Any]:
    try:
        import submitit
    except ImportError as error:
        raise TestbedError("--submit needs the package submitit: pip install 'robustness-testbed[slurm]'") from error
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(**{"name": "testbed", "timeout_min": _DAY_MIN, **options})
    except RuntimeError as error:  # no srun
        raise TestbedError(
            f"--submit: {error}; expected to be called where sbatch is, or --submit-to local for this machine"
        ) from error
    except (NameError, AssertionError, TypeError, ValueError) as error:
        raise TestbedError(f"--submit-option: {' '.join(str(error).split())}") from error
    try:
        with executor.batch():
            submitted = [executor.submit(job) for job in jobs]
    except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
        raise TestbedError(f"--submit: {cluster} took no job: {' '.join(str(error).split())}") from error
    return submitted
