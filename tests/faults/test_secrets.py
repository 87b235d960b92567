"""The password of a database stands nowhere: not in the database, not in a message, not on the screen."""

from __future__ import annotations

import string
import sys

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

import tiny
from faults.fuzzing import fuzz_settings
from postgres_server import serving_or_skip
from stored_results import again
from testbed.data.fetch import Remote, fetch
from testbed.engine.progress import Lines
from testbed.errors import DataError, StoreError, in_words
from testbed.store import schema
from testbed.store.masking import masked, masked_command, masked_url
from testbed.store.opening import database_place, open_store

# No letters of the other parts, so that "is not in the text" can be asked.
SECRETS = st.text(st.sampled_from("QXZ013579@:/?#%'\"\\é"), min_size=3).filter(lambda s: any(c in "QXZ" for c in s))
RUN = ("--models", "tiny_a", "--eval-settings", "tiny", "--gpus", "cpu", "--workers", "0", "--threads", "1")
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=8)


@fuzz_settings(300)
@given(password=SECRETS, user=NAMES, host=NAMES, other=SECRETS)
def test_no_password_of_an_address_is_shown_or_stored(password, user, host, other):
    query = {"sslmode": "require", "sslpassword": other}
    url = sa.URL.create("postgresql+psycopg", user, password, host, 5432, "db", query)
    typed = url.render_as_string(hide_password=False)
    command = masked_command(["eval.py", "--db", typed, f"--db={typed}", "--models", "a@b"])
    for shown in (masked_url(url), masked(f"cannot connect to {typed}: refused"), command):
        for secret in (password, other):
            assert sa.engine.url.quote(secret) not in shown
        assert host in shown and user in shown and "require" in shown
    # What SQLAlchemy itself hides, in the same way.
    plain = url.set(query={})
    assert masked(plain.render_as_string(hide_password=False)) == plain.render_as_string(hide_password=True)


@pytest.mark.parametrize("word", ["a@b.pth", "timm:x@y", "rows:0-5@val", "folder:/data/x", "http://host:80/a.csv"])
def test_words_without_a_password_stay_as_they_are(word):
    assert masked_command([word]) == word


def test_the_command_of_a_run_is_stored_without_the_password(store, monkeypatch):
    typed = "postgresql://me:hunter two@host/db?password=xyzzy"
    monkeypatch.setattr(sys, "argv", ["eval.py", "--db", typed, "--models", "\udcff"])
    store.begin_run()
    with store.reading() as connection:
        (command,) = connection.execute(sa.select(schema.runs.c.command)).scalars()
    assert command == "eval.py --db postgresql://me:***@host/db?password=*** --models \\udcff"


def test_a_message_about_a_path_with_a_row_range_is_shown_whole():
    text = "'rows:0-9@folder:/nowhere': expected rows:A-B@SETTING such as rows:0-1000@val"
    assert masked(text) == text


def test_passwords_that_older_programs_stored_are_masked_at_the_next_opening(store):
    store.begin_run()
    typed = "eval.py --db postgresql://me:hunter2@host/db --models a@b"
    with store.writing() as connection:
        connection.execute(schema.runs.update().values(command=typed))
    with again(store).reading() as connection:
        (command,) = connection.execute(sa.select(schema.runs.c.command)).scalars()
    assert command == "eval.py --db postgresql://me:***@host/db --models a@b"


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://me:hunter2@127.0.0.1:1/db",
        "postgresql+psycopg://me@127.0.0.1:1/db?password=hunter2",
        "postgresql+psycopg://me:hunter2@127.0.0.1:hunter2/db",
        "postgresql+psycopg://me:hun@hunter2:hunter2@127.0.0.1/db",
        "nothing+known://me:hunter2@host/db",
        "://me:hunter2@host/db",
    ],
)
def test_an_address_that_cannot_be_opened_is_told_without_its_password(address):
    with pytest.raises(StoreError) as error:
        open_store(address)
    assert "hunter2" not in str(error.value) and "\n" not in str(error.value)


@fuzz_settings(200)
@given(st.text(st.sampled_from("ab:/@?=&%.+-0123 "), max_size=30))
def test_any_text_as_an_address_is_taken_or_refused_in_one_line(tail):
    told = ""
    try:
        database_place(f"postgresql://me:hunter2@{tail}")
    except StoreError as error:
        told = str(error)
    assert "hunter2" not in told and "\n" not in told


def test_the_command_line_tells_no_password():
    run = tiny.script("db.py", "--status", "--db", "postgresql+psycopg://me:hunter2@127.0.0.1:1/db")
    assert run.returncode == 1 and "hunter2" not in run.stdout + run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


# ---- every command that takes an address -----------------------------------------------------------------

SECRET = "hunter2"
GONE = "postgresql+psycopg://me:hunter2@127.0.0.1:1/db?sslpassword=hunter2"  # where nobody listens


@pytest.mark.parametrize(
    "words",
    [
        *(("db.py", "--copy", GONE), ("db.py", "--merge", GONE), ("db.py", "--db", GONE, "--watch", "--once")),
        *(("db.py", "--db", GONE, "--watch", "--once", "--format", "json"), ("db.py", "--db", GONE, "--environment")),
        *(
            ("db.py", "--db", GONE, "--export", "t.csv"),
            ("db.py", "--db", GONE, "--remove-model", "tiny_a", "--override"),
        ),
        *(
            ("db.py", "--copy", f"nothing://me:{SECRET}@x/y"),
            ("db.py", "--merge", f"http://me:{SECRET}@127.0.0.1:1/r.db"),
        ),
        ("autoeval.py", "--db", GONE, "--models", "tiny_a", "--source", "tiny", "--test", "tiny"),
        *(("eval.py", *RUN, "--db", GONE), ("eval.py", *RUN, "--db", GONE, "--submit", "2", "--submit-to", "local")),
        ("eval.py", *RUN, "--logits", f"s3://me:{SECRET}@bucket/prefix"),
        ("eval.py", *RUN, "--logits", f"s3://bucket/prefix?token={SECRET}"),
        ("eval.py", *RUN, "--logits", f"s4://me:{SECRET}@bucket"),
        ("eval.py", *RUN, "--ray", f"ray://me:{SECRET}@127.0.0.1:1", "--dry-run"),
        ("eval.py", "--models", f"hf:http://me:{SECRET}@x/y", "--eval-settings", "tiny", "--gpus", "cpu"),
        ("eval.py", *RUN, "--checkpoint", f"https://me:{SECRET}@x/y.pth"),
    ],
    ids=lambda words: " ".join(words).replace(SECRET, "S")[:80],
)
def test_no_command_repeats_the_password_of_an_address(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.run(tmp_path / "results", ["tiny_a"], ["tiny"])[1].engine.dispose()
    done = tiny.call(*words)
    assert SECRET not in done.stdout + done.stderr
    stored = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert stored == []


def test_nothing_that_a_run_on_a_server_leaves_has_the_password(tmp_path, monkeypatch):
    """The server takes any: its clients come by a socket of their own."""
    monkeypatch.chdir(tmp_path)
    with serving_or_skip() as server:
        url = sa.make_url(server.url).set(password=SECRET).render_as_string(hide_password=False)
        monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path / "results"))
        monkeypatch.setattr(sys, "argv", ["eval.py", *RUN, "--db", url])
        ran = tiny.call("eval.py", *RUN, "--db", url, "--logdir", tmp_path / "logs")
        assert ran.returncode == 0, ran.stderr
        copied = tiny.call("db.py", "--db", url, "--copy", tmp_path / "copy" / "results.db")
        merged = tiny.call("db.py", "--db", tmp_path / "other" / "results.db", "--merge", url)
        watched = tiny.call("db.py", "--db", url, "--watch", "--once")
        back = tiny.call("db.py", "--db", tmp_path / "other" / "results.db", "--copy", url)
        told = [ran, copied, merged, watched, back, tiny.call("db.py", "--db", url, "--print-eval", "tiny_a", "tiny")]
        store = open_store(url)
        with store.reading() as connection:
            rows = [str(connection.execute(sa.select(table)).all()) for table in schema.tables.sorted_tables]
        store.engine.dispose()
    assert copied.returncode == merged.returncode == 0, copied.stderr + merged.stderr
    assert (tmp_path / "logs" / "run.log").is_file() or list((tmp_path / "logs").rglob("run.log"))
    assert SECRET not in "".join([*(one.stdout + one.stderr for one in told), *rows])
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no file at https://me:hunter2@host/a.zip", "no file at https://me:***@host/a.zip"),
        (
            "https://host/a?X-Amz-Signature=hunter2&x=1 answers 403",
            "https://host/a?X-Amz-Signature=***&x=1 answers 403",
        ),
        ("https://host/a?sv=1&sig=hunter2: refused", "https://host/a?sv=1&sig=*** refused"),
        ("x?AWSAccessKeyId=hunter2&api_key=hunter2", "x?AWSAccessKeyId=***&api_key=***"),
        ("model 'timm:a@b' on 'rows:0-5@val': key=3", "model 'timm:a@b' on 'rows:0-5@val': key=3"),
    ],
)
def test_no_error_repeats_a_secret_whoever_raises_it(message, shown):
    assert str(DataError(message)) == shown
    assert in_words(ValueError(message)) == f"ValueError: {shown}"


def test_a_server_that_refuses_is_told_without_the_secret_of_its_address(tmp_path):
    remote = Remote(f"http://me:{SECRET}@127.0.0.1:1/a.zip?token={SECRET}")
    with pytest.raises(DataError) as error:
        fetch(remote, tmp_path / "a.zip", pause_s=0.0)
    assert SECRET not in str(error.value)


def test_the_log_of_a_run_has_no_secret_of_what_a_model_raised(tmp_path):
    lines = Lines(1, 1, tmp_path / "run.log")
    lines.note(f"cannot open https://me:{SECRET}@host/x\x1b[2J")
    lines.close()
    told = (tmp_path / "run.log").read_text()
    assert SECRET not in told and "\x1b" not in told and "https://me:***@host" in told
