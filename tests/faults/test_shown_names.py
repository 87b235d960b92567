"""Names and texts of others, in every output that there is: no page runs them, no terminal or table obeys them."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tiny
from faults.fuzzing import fuzz_settings
from testbed.commands import options, tables, watch_page
from testbed.commands.causes import Failure, cause_lines
from testbed.commands.figures import _findable, figure
from testbed.commands.latex import escaped, latex_table
from testbed.data.writing import from_csv_text
from testbed.engine.progress import Lines
from testbed.errors import printable, printable_lines
from testbed.store.run_states import Sums, Watched

EVIL = "a\x1b[2J\x1b]0;t\x07\nb\r\u202e\x9b31m|c"
TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.text(
    st.sampled_from("\x1b[]0;mHJ\x07\r\n\t|\\$<&=+-@'a1\u202e\x9b"), max_size=12
)


def obeyed(text: str) -> str:
    """What a terminal would do something for, beside beginning a line."""
    return "".join(c for c in text if not c.isprintable() and c != "\n")


@fuzz_settings(150)
@given(cells=st.lists(TEXT, min_size=2, max_size=2))
def test_any_name_in_a_table_is_one_line_that_a_terminal_shows(cells):
    for table in (
        tables.text_table([cells], ["model", "setting"]),
        tables.text_table([["m", "s"]], cells),
        tables.labelled_lines(80, [("label", " ".join(cells))]),
        printable_lines("\n".join(cause_lines([Failure(*cells, "x")]))),  # as `say` prints them
    ):
        assert obeyed(table.replace("\t", "")) == ""
    assert len(tables.text_table([cells], ["model", "setting"]).split("\n")) == 3


@fuzz_settings(150)
@given(cells=st.lists(TEXT, min_size=2, max_size=2))
def test_any_name_as_csv_or_json_on_the_screen(cells):
    rows = [dict(zip(("model", "setting"), cells, strict=True))]
    shown = tables.formatted(rows, ["model", "setting"], "csv")
    assert obeyed(shown.replace("\t", "")) == ""
    for text in (
        next(r for i, r in enumerate(csv.reader(io.StringIO(shown))) if i == 1) if "\n" not in "".join(cells) else ()
    ):
        assert not text.startswith(("=", "@", "\t", "\r"))
        assert from_csv_text(text).isprintable() or "\t" in text
    told = tables.formatted(rows, ["model", "setting"], "json")
    assert told.isascii() and obeyed(told) == "" and json.loads(told) == rows


@fuzz_settings(150)
@given(cells=st.lists(TEXT, min_size=2, max_size=2))
def test_any_name_in_a_table_for_latex_or_markdown_is_one_line_of_it(cells):
    _findable()
    from _tables import markdown

    written = latex_table(["model", "setting"], [cells])
    assert len(written.split("\n")) == 7 and obeyed(written) == ""
    body = written.split("\n")[4].removesuffix(r" \\")
    assert body == " & ".join(map(escaped, cells))
    table = markdown(["model", "setting"], [cells])
    assert len(table.split("\n")) == 3 and obeyed(table) == ""
    assert "](" not in table.replace("\\](", "") and "<" not in table.replace("\\<", "")


@fuzz_settings(100)
@given(name=TEXT)
def test_any_name_on_the_page_of_who_watches_is_one_line(name):
    watched = Watched(0.0, name, Sums(pairs_planned=3), 1, ())
    for line in watch_page.page(watched, 60, 20):
        assert line.text.isprintable() or line.text == ""
    assert json.dumps(watch_page.as_data(watched)).isascii()


def test_what_is_said_moves_no_cursor_and_tells_no_password(capsys):
    options.say(f"{EVIL} postgresql://me:hunter2@host/db")
    told = capsys.readouterr().out
    assert obeyed(told) == "" and "hunter2" not in told and "a\\x1b[2J" in told


def test_printable_text_is_left_as_it_is():
    assert printable("Größe 模型 a b") == "Größe 模型 a b" and printable_lines("a\tb\nc") == "a\tb\nc"


def test_what_a_model_raises_moves_no_cursor_in_report_and_log(tmp_path):
    """The words of an error may come from a file: a name in a checkpoint, a line of a table."""
    registry = tmp_path / "registry"
    (registry / "models").mkdir(parents=True)
    (registry / "models" / "evil.py").write_text(
        "from testbed import Model, registry\n"
        "def load():\n"
        f"    raise ValueError({EVIL!r} + ' https://me:hunter2@host/x')\n"
        "registry.add_model(Model(name='evil', transform=None, classifier_loader=load, eval_batch_size=1))\n"
    )
    words = ["--models", "evil", "--eval-settings", "tiny", "--gpus", "cpu", "--registry", registry]
    done = tiny.call("eval.py", *words, "--db", tmp_path / "results.db", "--logdir", tmp_path / "logs")
    status = tiny.call("db.py", "--db", tmp_path / "results.db", "--status")
    told = done.stdout + done.stderr + (tmp_path / "logs" / "run.log").read_text() + status.stdout
    assert done.returncode == 1 and "ValueError" in told
    assert obeyed(told.replace("\t", "")) == "" and "hunter2" not in told


def test_a_line_of_a_run_moves_no_cursor(tmp_path, capsys):
    lines = Lines(1, 1, tmp_path / "run.log")
    lines.note(EVIL)
    lines.close()
    assert obeyed(capsys.readouterr().err) == "" == obeyed((tmp_path / "run.log").read_text())


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u2028'\"`${1}"]
)
def test_no_name_leaves_the_data_of_the_explorer(tmp_path, name):
    """Whether a browser shows such a name as text is tried in tests/plotting/test_explorer.py."""
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny.noise"])
    from testbed.store import schema

    with store.writing() as connection:
        connection.execute(schema.models.update().values(name=name, tags=[name]))
        connection.execute(schema.evaluations.update().values(warning=name, device=name))
    store.engine.dispose()
    out = tmp_path / "e.html"
    done = CliRunner().invoke(figure("explorer"), ["--db", str(tmp_path / "results.db"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    page = out.read_text(encoding="utf-8")
    assert name not in page
    assert page.count("<script") == page.count("</script>") == 2  # the data and the program
    assert "Content-Security-Policy" in page and "unsafe-inline" not in page
    shutil.rmtree(tmp_path / "logits")
