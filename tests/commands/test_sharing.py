"""--shard, --submit, --merge and --copy as a user types them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from faults.running import LIMIT_S, parts, wait_until
from stored_results import evaluations
from testbed.commands import database, evaluate
from testbed.store import schema
from testbed.store.opening import open_store
from testbed.store.transfer import Transfer

MODELS = ["--models", "tiny_a", "tiny_b", "--eval-settings", "tiny", "tiny.noise", "tiny-even"]


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run eval.py or db.py in this process, from an empty folder; what it printed, and whether it succeeded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))

    def run(script, *words):
        result = CliRunner().invoke(script.main, [str(word) for word in words], catch_exceptions=False)
        return result.output, result.exit_code

    return run


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--shard", "3/2"], "Error: --shard: expected 1/2 to 2/2, got 3/2"),
        (["--shard", "0/0"], "Error: --shard: expected at least one shard, as in 1/1, got 0/0"),
        (["--shard", "a/b"], "Error: --shard: expected I/N such as 1/8, or auto in a Slurm array, got 'a/b'"),
        (["--shard", "auto"], "Error: --shard auto: SLURM_ARRAY_TASK_ID is not set, so this is no Slurm array"),
        (["--submit-to", "local"], "--submit-to: expected --submit N with it"),
        (["--submit-option", "gpus_per_node=1"], "--submit-option: expected --submit N with it"),
        (["--submit", "0"], "expected a whole number from 1 on, got '0'"),
        (["--submit", "2", "--shard", "1/2"], "expected --submit or --shard, got both"),
        (["--submit", "2", "--no-db"], "expected --submit or --no-db, got both"),
        (["--submit", "2"], "expected to be called where sbatch is, or --submit-to local"),
        (["--submit", "2", "--submit-to", "local", "--submit-option", "gpus"], "expected NAME=VALUE such as"),
        (["--submit", "2", "--submit-to", "local", "--submit-option", "gpu=1"], "Error: --submit-option: "),
        (["--submit", "2", "--submit-to", "local", "--submit-option", "mem_gb=much"], 'Parameter "mem_gb" expected'),
        (
            ["--submit", "2", "--db", "postgresql+psycopg://me:secret@host/x"],
            "expected a database without a password in the command; give it by TESTBED_DB or ~/.pgpass",
        ),
    ],
)
def test_wrong_words_are_answered_in_a_line_and_nothing_is_begun(call, tmp_path, monkeypatch, words, answer):
    pytest.importorskip("submitit")
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    told, code = call(evaluate, *MODELS, *words)
    assert code != 0 and answer in told.splitlines()[-1] and "secret" not in told
    assert not list(tmp_path.rglob("*.db"))


def test_a_dry_run_shows_the_share_and_what_would_be_submitted(call, tmp_path):
    told, code = call(evaluate, *MODELS, "--shard", "2/3", "--dry-run")
    assert code == 0 and "shard 2 of 3: " in told and "of 6 pairs" in told
    told, code = call(evaluate, *MODELS, "--shard", "1/90", "--dry-run")
    assert code == 0 and "no pairs: there are more shards than pairs, and this one has none" in told
    words = ["--gpus", "cpu", "--submit", "3", "--submit-option", "mem_gb=4", "name=x", "--submit-to=local", "--limit"]
    told, code = call(evaluate, *MODELS, *words, "20", "--db", "my.db", "--dry-run")
    command = told.splitlines()[-1]
    assert code == 0 and command.endswith("--gpus cpu --limit 20 --dry-run --shard 1/3 --db shards/1-of-3/results.db")
    assert not list(tmp_path.iterdir())


def ended(jobs):
    """Wait for jobs, and end those that do not come to their end."""
    try:
        return [job.result() for job in jobs]
    finally:
        for job in jobs:
            if job._process.poll() is None:
                job._process.kill()
            job._process.wait(LIMIT_S)


@pytest.fixture
def submitted(call, monkeypatch):
    """What was submitted to processes of this machine."""
    pytest.importorskip("submitit")
    from testbed.commands import submitting

    jobs, submit = [], submitting.submit
    monkeypatch.setattr(submitting, "submit", lambda *words: jobs.extend(submit(*words)))

    def run(*words):
        told, code = call(evaluate, *words, "--gpus", "cpu", "--threads", "1", "--submit-to", "local")
        assert code == 0, told
        return told, jobs

    return run


def test_jobs_with_a_database_each_are_merged_into_one_run(submitted, call, tmp_path):
    told, jobs = submitted(*MODELS, "--submit", "2", "--db")
    assert "db.py --watch --db results/shards/1-of-2/results.db" in told
    assert "submitted 2 jobs to local" in told and "logs: results/submitted/JOB_0_log.err" in told
    assert ended(jobs) == [0, 0]
    (merge,) = [line.split("db.py ")[1].split() for line in told.splitlines() if "--merge" in line]
    assert merge == ["--merge", "results/shards/*-of-2/results.db"]
    files = sorted(map(str, Path().glob(merge[1])))
    told, code = call(database, "--merge", *files)
    assert code == 0 and all(name in told for name in files)
    store = open_store()
    _, expected = tiny.run(tmp_path / "one", ["tiny_a", "tiny_b"], ["tiny", "tiny.noise", "tiny-even"])
    assert len(evaluations(store)) == 6
    for e in evaluations(store):
        np.testing.assert_array_equal(
            tiny.logits(store, e.model, e.eval_setting), tiny.logits(expected, e.model, e.eval_setting)
        )
    told, code = call(evaluate, *MODELS)
    assert code == 0 and "Nothing to do: all 6 pairs are stored" in told
    for opened in (store, expected):
        opened.engine.dispose()


@pytest.mark.long
def test_a_job_that_is_preempted_is_queued_again_and_goes_on(submitted, tmp_path):
    words = ["--models", "tiny_slow", "--eval-settings", "tiny", "tiny.noise", "--chunk-size", "16"]
    _, (job,) = submitted(*words, "--submit", "1", "--submit-option", "timeout_min=60")
    folder = tmp_path / "results/shards/1-of-1"
    try:
        wait_until(lambda: len(parts(folder)) >= 3)
        (process,) = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()
        os.kill(int(process), signal.SIGUSR2)  # as Slurm does before it takes the node away
    finally:
        assert ended([job]) == [0]
    logs = (tmp_path / "results/submitted").glob(f"{job.job_id}_0_log.*")
    log = "".join(path.read_text() for path in logs)
    assert "Requeued job" in log and "going on after" in log and "Stopped. What is finished is kept" in log
    store = open_store(str(folder / "results.db"))
    assert [e.status for e in evaluations(store)] == ["completed"] * 2
    store.engine.dispose()


@pytest.mark.long
def test_a_command_that_fails_fails_its_job(submitted):
    from submitit.core.utils import FailedJobError

    _, jobs = submitted("--models", "tiny_raises", "--eval-settings", "tiny", "--submit", "1")
    with pytest.raises(FailedJobError, match="ended with exit code 1"):
        ended(jobs)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--merge", "nope.db"], "Error: --merge: there is no database nope.db"),
        (["--merge", "results/results.db"], "Error: expected two databases, got database results/results.db twice"),
        (["--merge", "newer.db"], "update the program, or use another database with --db"),
        (["--merge", "text.db"], "database text.db cannot be opened: file is not a database"),
        (["--copy", "results/results.db"], "Error: expected two databases, got database results/results.db twice"),
        (["--copy", "other.db"], "has a result of its own, tiny_b on tiny: expected an empty database"),
        (["--copy", "nosuch://x"], "database nosuch://x cannot be opened"),
        (["--copy", "."], "is a folder, expected a results database"),
    ],
)
def test_what_cannot_be_merged_or_copied_is_told_in_a_line(call, tmp_path, words, answer):
    for folder, model in ((tmp_path / "results", "tiny_a"), (tmp_path / "b", "tiny_b")):
        tiny.run(folder, [model], ["tiny"])[1].engine.dispose()
    os.replace("b/results.db", "other.db")
    newer = open_store("newer.db", create=True)
    with newer.writing() as connection:
        connection.execute(schema.schema_version.update().values(version=99))
    newer.engine.dispose()
    Path("text.db").write_text("no database, but text")
    told, code = call(database, *words)
    assert code != 0 and answer in told.splitlines()[-1]


def test_merging_tells_what_stays_and_copying_what_agrees(call, tmp_path):
    _, store = tiny.run(tmp_path / "results", ["tiny_a", "tiny_b"], ["tiny", "tiny-even"])
    with store.writing() as connection:  # times are told in seconds, and all of this may be done in one
        connection.execute(schema.evaluations.update().values(finished_at="2026-01-01T00:00:00+00:00"))
    store.engine.dispose()
    tiny.run(tmp_path / "b", ["tiny_a"], ["tiny", "tiny.noise"])[1].engine.dispose()
    tiny.run(tmp_path / "c", ["tiny_a"], ["tiny"], logits_dtype="float16")[1].engine.dispose()
    told, code = call(database, "--merge", "b/results.db", "c/results.db")
    assert code == 0
    assert told.splitlines()[0].startswith("b/results.db: took in 1 result; 1 was there already; files: 2 linked")
    assert "tiny_a on tiny: this one has another result here, which stays; --override takes the newer one" in told
    told, code = call(database, "--merge", "c/results.db", "--override")
    assert code == 0 and "c/results.db: took in 1 result" in told
    assert "tiny_a on tiny-even: removed with the result that it was derived from; eval.py makes it again" in told
    told, code = call(database, "--copy", "copy/results.db")
    assert code == 0, told
    assert "both sides agree: 4 evaluations, 7 metrics (digest" in told and "sha256 of 3 logits files" in told
    assert "To go on there: --db, or TESTBED_DB=copy/results.db" in told
    assert max(map(len, told.splitlines())) <= 120


@pytest.mark.parametrize(
    "words", [["--copy", "copy/results.db"], ["--merge", "results/results.db", "--db", "other.db"]]
)
def test_after_ctrl_c_a_line_says_that_the_same_command_goes_on(call, tmp_path, monkeypatch, words):
    tiny.run(tmp_path / "results", ["tiny_a"], ["tiny", "tiny.noise"])[1].engine.dispose()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Transfer, "_write", interrupted)
        told, code = call(database, *words)
    assert code == 130
    assert told.splitlines()[-1] == "interrupted: what has been taken stays; the same command goes on"
    told, code = call(database, *words)
    assert code == 0 and " 2 results" in told


def test_damaged_results_are_left_out_and_the_exit_code_tells(call, tmp_path):
    _, store = tiny.run(tmp_path / "b", ["tiny_a"], ["tiny", "tiny-even"])
    (path,) = (tmp_path / "b/logits/tiny").glob("tiny_a-*.npy")
    path.write_bytes(b"torn")
    store.engine.dispose()
    told, code = call(database, "--merge", "b/results.db")
    assert code == 1
    assert "tiny_a on tiny is damaged: " in told and "1 result derived from those: left out with them" in told
    assert told.splitlines()[-1] == "Error: 1 damaged result left out: eval.py makes them again"
