"""Databases of somebody else: what they name stays where it is, what they hold is taken in or refused in one line."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tiny
from faults.bounds import no_longer_than, no_more_than
from faults.fuzzing import fuzz_settings, rounds
from stored_results import add, copy_results, evaluations, every_number, results
from testbed.commands import autoeval, database
from testbed.commands.figures import figure
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.opening import open_store
from testbed.store.places import Place, checked_path

MINE = ("v.npy", "v-000000000000.npy", "v~x.npy", "s.npz", "v.parts/000000000.npz")  # what an attacker would reach
LIVING = "ended_at = NULL, heartbeat_at = strftime('%s', 'now')"
OWN_PATHS = "logits_path IS NOT NULL"
ROWS = {  # what is done to a database, in SQL
    "escape codes as names": (
        "UPDATE models SET name = 'a\x1b[31mX\nY'",
        "UPDATE eval_settings SET name = '<img onerror=1>\x1b]0;t\x07' WHERE name = 'tiny'",
    ),
    "bytes as a name": ("UPDATE models SET name = x'ff00'",),
    "a number as a name": ("UPDATE eval_settings SET name = 5.5 WHERE name = 'tiny'",),
    "no name": ("UPDATE models SET name = ''",),
    "a path upwards": (f"UPDATE evaluations SET logits_path = '../mine/v-000000000000.npy' WHERE {OWN_PATHS}",),
    "a path upwards from logits": (
        f"UPDATE evaluations SET logits_path = 'logits/../../mine/v.npy' WHERE {OWN_PATHS}",
    ),
    "an absolute path": (f"UPDATE evaluations SET logits_path = 'MINE/v.npy' WHERE {OWN_PATHS}",),
    "a path of no logits": (f"UPDATE evaluations SET logits_path = 'results.db' WHERE {OWN_PATHS}",),
    "an address of a file": (f"UPDATE evaluations SET logits_path = 'file://MINE/v.npy' WHERE {OWN_PATHS}",),
    "an address in other words": (f"UPDATE evaluations SET logits_path = 'local://MINE/v.npy' WHERE {OWN_PATHS}",),
    "an address upwards": (f"UPDATE evaluations SET logits_path = 'file:///x/../MINE/v.npy' WHERE {OWN_PATHS}",),
    "samples elsewhere": ("UPDATE evaluations SET samples_path = '../mine/s.npz'",),
    "a number as a path": (f"UPDATE evaluations SET logits_path = 7 WHERE {OWN_PATHS}",),
    "torn provenance": ("UPDATE evaluations SET provenance = '{'",),
    "a list as provenance": ("UPDATE evaluations SET provenance = '[1, 2]'",),
    "odd provenance": ("""UPDATE evaluations SET provenance = '{"arrays_sha256": 5, "bad_rows": "x"}'""",),
    "odd members": ("""UPDATE evaluations SET provenance = '{"ensemble": {"members": {"a": 5}}}'""",),
    "arrays elsewhere": ("""UPDATE evaluations SET provenance = '{"arrays_sha256": {"../../../mine/v": "x"}}'""",),
    "text as a count": ("UPDATE evaluations SET n_images = 'many'",),
    "a huge count": ("UPDATE evaluations SET n_images = 9223372036854775807",),
    "a circle": ("UPDATE evaluations SET derived_from_id = id, logits_path = NULL",),
    "a parent that is not there": ("UPDATE evaluations SET derived_from_id = 12345",),
    "text as a number": ("UPDATE metrics SET value = 'high'",),
    "an infinite number": ("UPDATE metrics SET value = 9e999",),
    "bytes as a unit": ("UPDATE metrics SET unit = x'ff'",),
    "an escape code as a metric": ("UPDATE metrics SET name = 'top\x1b[1m' WHERE name = 'top1'",),
    "no table": ("DROP TABLE metrics",),
    "no column": ("ALTER TABLE models DROP COLUMN arch",),
    "another view": ("DROP VIEW all_results", "CREATE VIEW all_results AS SELECT 1 AS a"),
    "no version": ("DELETE FROM schema_version",),
    "a word as version": ("UPDATE schema_version SET version = 'x'",),
    "a negative version": ("UPDATE schema_version SET version = -3",),
    "a word as heartbeat": ("UPDATE runs SET heartbeat_at = 'now', ended_at = NULL",),
    "an infinite heartbeat": ("UPDATE runs SET heartbeat_at = 9e999, ended_at = NULL",),
    "odd progress": (f"""UPDATE runs SET progress = '{{"devices": 5}}', {LIVING}""",),
    "a list as progress": (f"UPDATE runs SET progress = '[]', {LIVING}",),
    "escape codes of a run": (f"UPDATE runs SET command = 'x\x1b[2Jy', host = 'h\n\x1b[1m', {LIVING}",),
    "an odd state": ("UPDATE evaluations SET status = 'odd\x1b[1m'",),
    "escape codes as a reason": ("UPDATE evaluations SET complete = 0, status = 'failed', error = 'e\x1b[31m\nr'",),
    "escape codes as a warning": ("UPDATE evaluations SET warning = 'w\x1b[1m\nz', device = 'cuda\x1b[1m'",),
    "bytes as tags": ("UPDATE models SET tags = x'00'",),
    "a text as tags": ("UPDATE models SET tags = '\"x\"'",),
    "numbers as times": ("UPDATE evaluations SET created_at = 5, finished_at = x'ff'",),
    "an escape code as a variant": ("UPDATE evaluations SET variant = 'x\x1b[1m'",),
    "an escape code as a source": ("UPDATE evaluations SET source = 's\x1b[1m'",),
}
REMOVING = (("--remove-model", "tiny_a", "--override"), ("--remove-eval-setting", "tiny", "--override"))
COMMANDS = (
    *(("--status",), ("--status", "--format", "csv"), ("--list-models-db",), ("--list-eval-settings-db",)),
    *(("--print-eval", "tiny_a", "tiny"), ("--verify",), ("--export", "out.csv"), ("--save-logits", "tiny", "dump")),
    *(("--per-class", "tiny_a", "tiny"), ("--calibration", "tiny_a", "tiny"), ("--recompute-metrics",)),
    *(("--watch", "--once"), ("--watch", "--once", "--format", "json")),
)
ALL = rounds(0, 1)  # whether every command meets every database


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with the results of tiny_a on `tiny`, and with what is derived from them."""
    folder = tmp_path_factory.mktemp("base")
    _, store = tiny.run(folder, ["tiny_a"], ["tiny", "tiny-even"])
    store.engine.dispose()
    return folder


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Files that are nobody else's to touch, beside the working folder."""
    folder = tmp_path / "mine"
    for name in MINE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"precious")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
    yield folder
    assert all((folder / name).read_bytes() == b"precious" for name in MINE)
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} == set(MINE)


def hostile(base: Path, folder: Path, statements, mine="/nowhere") -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    copy_results(base, folder)
    with closing(sqlite3.connect(folder / "results.db")) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            connection.execute(statement.replace("MINE", str(mine)))
        connection.commit()
    return folder / "results.db"


def called(main, *words) -> str:
    """What a command tells, in which nothing but a success or one line is well."""
    with no_longer_than(60):
        done = CliRunner().invoke(main, [str(w) for w in words], color=True)
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, repr(done.exception))
    assert "".join(done.output.split("\n")).replace("\t", "").isprintable(), (words, done.output)
    errors = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    assert done.exit_code in (0, 1) and len(errors) == done.exit_code, (words, done.output)
    return done.output


@pytest.mark.parametrize("what", ROWS)
def test_a_database_of_somebody_else_is_read_or_refused_in_one_line(base, mine, tmp_path, what):
    place = list(ROWS).index(what)
    chosen = COMMANDS if ALL else [COMMANDS[(place + step) % len(COMMANDS)] for step in (0, 6)]
    for words in (
        *chosen,
        *(REMOVING if ALL else [REMOVING[place % 2]] if "path" in what or "address" in what else []),
    ):
        path = hostile(base, tmp_path / "theirs", ROWS[what], mine)
        called(database.main, "--db", path, *words)


@pytest.mark.parametrize("what", ROWS)
def test_a_merge_or_a_copy_of_it_takes_whole_results_or_nothing(base, mine, tmp_path, what):
    path = hostile(base, tmp_path / "theirs", ROWS[what], mine)
    ours = open_store(str(tmp_path / "ours" / "results.db"), create=True)
    add(ours, "m", "s", logits=np.eye(4, dtype=np.float32))
    before = every_number(ours)
    told = called(database.main, "--db", tmp_path / "ours" / "results.db", "--merge", path)
    after = every_number(ours)
    assert [n for n in after if n.model == "m"] == before
    for e in evaluations(ours):
        if e.completed and e.logits_path and "://" not in e.logits_path:  # what is at an address is not read
            assert Place(ours.folder, checked_path(e.logits_path)).problem(e.logits_sha256) == ""
    if "Error: " in told:
        assert after == before
    if ALL or list(ROWS).index(what) % 3 == 0:
        called(database.main, "--db", path, "--copy", tmp_path / "copy" / "results.db")
    written = {p.resolve() for name in ("ours", "copy") for p in (tmp_path / name).rglob("*")}
    assert all(p.is_relative_to(tmp_path / "ours") or p.is_relative_to(tmp_path / "copy") for p in written)


@pytest.mark.parametrize("what", ["escape codes as names", "bytes as a name", "text as a number", "a circle"])
def test_figures_and_estimates_from_it_are_made_or_refused_in_one_line(base, mine, tmp_path, what):
    path = hostile(base, tmp_path / "theirs", ROWS[what], mine)
    for name in ("table", "explorer"):
        called(figure(name), "--db", path, *(("--out", tmp_path / "e.html") if name == "explorer" else ()))
    called(autoeval.main, "--db", path, "--models", "*", "--source", "tiny", "--test", "tiny-even")


def test_files_of_other_names_are_not_removed_from_a_folder_elsewhere(base, mine, tmp_path):
    address = f"UPDATE evaluations SET logits_path = 'file://{mine}/v.npy' WHERE {OWN_PATHS}"
    path = hostile(base, tmp_path / "theirs", [address])
    told = called(database.main, "--db", path, "--remove-model", "tiny_a", "--override")
    assert f"{mine}/v.npy was left: expected a name that the testbed gives" in told
    assert "nothing has been run" in called(database.main, "--db", path, "--status")  # its row is gone all the same


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../logits/x.npy",
            "logits/../x.npy",
            "logits/./x.npy",
            "/logits/x.npy",
            "x.npy",
            "logits/x",
            "",
            "logits/x.pth",
        ),
        *("file://x/y.npy", "file:///a/../b.npy", "s3://b/../c.npy", "zip://x.npy::s3://b/c.npy", "logits/x\0.npy"),
        *(None, 5, b"logits/x.npy"),
    ],
)
def test_a_row_names_files_below_logits_or_an_address(tmp_path, path):
    with pytest.raises(StoreError, match="expected") as error:
        Place(tmp_path, path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "path", ["logits/s/m-0.npy", "logits/s/samples-1.npz", "file:///a b/s/m.npy", "s3://b/p/m.npy"]
)
def test_what_the_testbed_writes_is_a_path(tmp_path, path):
    assert Place(tmp_path, path).stored == path


def test_local_files_by_another_scheme_are_no_object_storage(tmp_path):
    from testbed.store.objects import file_system

    pytest.importorskip("fsspec")
    for url in (f"local://{tmp_path}/x.npy", f"simplecache::file://{tmp_path}/x.npy"):
        with pytest.raises(StoreError, match="expected object storage, or file:///FOLDER"):
            file_system(url)


def test_links_in_a_folder_of_somebody_else_are_not_what_was_written(base, mine, tmp_path):
    """A link to a file of this machine, under the name of a result: its checksum is not that of the row."""
    path = hostile(base, tmp_path / "theirs", ())
    (logits,) = (p for p in (tmp_path / "theirs" / "logits" / "tiny").glob("*.npy"))
    logits.unlink()
    logits.symlink_to(mine / "v.npy")
    told = called(database.main, "--db", tmp_path / "ours" / "results.db", "--merge", path)
    assert "has changed since it was written" in told
    assert not list((tmp_path / "ours").rglob("*.npy"))
    called(database.main, "--db", path, "--remove-model", "tiny_a", "--override")
    assert not logits.is_symlink()  # the link goes, what it leads to stays


# ---- by chance ---------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=12),
    st.binary(max_size=8),
    st.sampled_from(
        ["{}", "[]", "null", '{"a": 1}', "[null]", "1e999", "own", "completed", "logits/tiny/x.npy", "\x1b[2J"]
    ),
)
COLUMNS = [(table.name, column.name) for table in schema.tables.sorted_tables for column in table.c]
_names = count()


@fuzz_settings(15)
@given(
    changes=st.lists(st.tuples(st.sampled_from(COLUMNS), VALUES), min_size=1, max_size=3),
    words=st.sampled_from(COMMANDS),
)
def test_any_value_in_any_column_is_taken_or_refused_in_one_line(base, tmp_path_factory, changes, words):
    folder = tmp_path_factory.mktemp("odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
        path = hostile(base, folder / "theirs", ())
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            for (table, column), value in changes:
                try:
                    connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
                except (sqlite3.IntegrityError, UnicodeEncodeError):
                    continue
            connection.commit()
        _merged_or_refused(folder, path)
        with no_more_than(2):
            called(database.main, "--db", path, *words)
    shutil.rmtree(folder)


@fuzz_settings(15)
@given(data=st.data())
def test_a_database_with_changed_bytes_is_taken_or_refused_in_one_line(base, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("torn")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
        path = hostile(base, folder / "theirs", ())
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 8))):
            # The first page holds the schema: most changes elsewhere are of free pages.
            last = data.draw(st.sampled_from([99, 4095, len(content) - 1]))
            content[data.draw(st.integers(0, last))] = data.draw(st.integers(0, 255))
        path.write_bytes(bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, 150])) or None]))
        _merged_or_refused(folder, path)
        with no_more_than(2):
            called(database.main, "--db", path, *data.draw(st.sampled_from(COMMANDS)))
    shutil.rmtree(folder)


def _merged_or_refused(folder: Path, path: Path) -> None:
    ours = open_store(str(folder / "ours" / "results.db"), create=True)
    add(ours, "m", "s", logits=np.eye(4, dtype=np.float32))
    before = results(ours)
    with no_more_than(2):
        called(database.main, "--db", folder / "ours" / "results.db", "--merge", path)
    assert [n for n in results(ours) if n.model == "m"] == before
    ours.engine.dispose()
