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
from stored_results import again
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.masking import masked, masked_command, masked_url
from testbed.store.opening import database_place, open_store

# No letters of the other parts, so that "is not in the text" can be asked.
SECRETS = st.text(st.sampled_from("QXZ013579@:/?#%'\"\\é"), min_size=3).filter(lambda s: any(c in "QXZ" for c in s))
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
