"""The command testbed: its sub-commands are the scripts, and its help is quick."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.commands import demo
from testbed.commands.console import COMMANDS, main
from testbed.commands.database import ACTIONS
from testbed.commands.database import main as database

ROOT = Path(__file__).parents[2]


@pytest.fixture
def testbed():
    def call(*words, fails=False):
        result = CliRunner().invoke(main, [str(word) for word in words], prog_name="testbed")
        assert (result.exit_code != 0) == fails, result.output
        return result.output

    return call


@pytest.mark.parametrize("words", [["--help"], ["plot", "--help"], ["db", "--help"], ["eval", "--help"]])
def test_help_loads_nothing_heavy(words):
    command = [sys.executable, "-X", "importtime", "-m", "testbed.commands.console", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.split("|")[-1].strip().split(".")[0] for line in told.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & {"torch", "pandas", "matplotlib"}
    assert words[0] != "eval" or "numpy" not in loaded


def test_every_script_of_a_clone_is_a_sub_command(testbed):
    scripts = {path.stem for path in ROOT.glob("*.py")} - {"setup"}
    assert scripts <= set(COMMANDS)
    figures = {path.stem for path in (ROOT / "plotting").glob("[!_]*.py")}
    listed = testbed("plot", "--help")
    assert len(figures) > 10
    for figure in figures:
        assert re.search(rf"^  {figure} ", listed, re.MULTILINE), figure
        assert f"Usage: testbed plot {figure} " in testbed("plot", figure, "--help")


@pytest.mark.parametrize("words", [["eval"], ["db"], ["autoeval"], ["explorer"], ["plot", "scatter"]])
def test_help_shows_examples_as_they_are_typed(testbed, words):
    told = testbed(*words, "--help")
    assert " ".join(["testbed", *words]) in told or words == ["explorer"]
    assert not re.search(r"\b(eval|db|scatter)\.py", told)


def test_a_script_is_named_where_a_script_was_called():
    told = CliRunner().invoke(database, ["--help"], prog_name="db.py").output
    assert "python db.py show resnet50 val" in told and "testbed" not in told


def test_notes_below_results_name_the_command_that_was_typed(testbed, store):
    from stored_results import claim

    held = claim(store, "one", "two", n_images=6)
    store.fail(held.evaluation_id, "no features: `python eval.py --record features` keeps them")
    place = store.engine.url.database
    assert "`testbed eval --record features`" in testbed("db", "status", "--db", place)
    told = CliRunner().invoke(database, ["--status", "--db", place], prog_name="db.py").output
    assert "`python eval.py --record features`" in told


@pytest.mark.parametrize("step", demo.STEPS)
def test_the_steps_of_the_demo_name_sub_commands(step):
    assert step.split()[0] in COMMANDS


def test_a_wrong_sub_command_is_answered_with_a_near_one(testbed):
    assert "no sub-command 'evl'; did you mean eval?" in testbed("evl", fails=True)
    assert "no sub-command 'stats'; did you mean status" in testbed("db", "stats", fails=True)
    assert "no sub-command 'qqq'; testbed db --help lists them" in testbed("db", "qqq", fails=True)


# ---- testbed db --------------------------------------------------------------------------------------------


@pytest.fixture
def db(testbed, store):
    store.ensure_model("one")
    store.ensure_model("two")
    return store.engine.url.database


def test_a_flag_and_its_sub_command_do_the_same(testbed, db):
    flag = testbed("db", "--list-models-db", "--filter", "t*", "--db", db)
    assert "two" in flag and "one" not in flag
    assert testbed("db", "list-models-db", "--filter", "t*", "--db", db) == flag
    assert testbed("db", "--db", db, "--filter", "t*", "list-models-db") == flag


def test_a_sub_command_takes_its_values_as_arguments(testbed, db):
    assert "model one is now three" in testbed("db", "rename-model", "one", "three", "--db", db)
    assert "removed two" in testbed("db", "remove-model", "two", "--override", "--db", db)
    assert testbed("db", "list-models-db", "--format", "csv", "--db", db).split() == ["model", "three"]


def test_a_sub_command_takes_several_words(testbed, tmp_path):
    """Both words are looked up: the error is of the second."""
    told = testbed("db", "audit-data", "digits", "qqq", "--data-root", tmp_path, tmp_path, fails=True)
    assert "no eval setting, group or tag 'qqq'" in told


def test_a_sub_command_has_the_options_that_it_reads_and_no_others(testbed):
    told = testbed("db", "calibration", "--help")
    assert {"--clean", "--variant", "--version", "--format", "--db"} <= set(re.findall(r"--[a-z-]+", told))
    assert "--aggregation" not in told and "--override" not in told
    assert "No such option" in testbed("db", "calibration", "a", "b", "--override", fails=True)


def test_flags_and_a_sub_command_at_once_are_refused(testbed, db):
    told = testbed("db", "--db", db, "--status", "list-models-db", fails=True)
    assert "expected flags or a sub-command, got --status and 'list-models-db'" in told


def test_every_flag_of_db_stands_once_in_its_help_under_a_purpose(testbed):
    sections = re.split(r"^(\w[\w ]+):$", testbed("db", "--help"), flags=re.MULTILINE)
    by_title = dict(zip(sections[1::2], sections[2::2], strict=True))
    for action in ACTIONS:
        shown = [
            title for title, text in by_title.items() if re.search(rf"^  --{action.flag}\b(?!-)", text, re.MULTILINE)
        ]
        assert shown == [action.purpose], action.flag


def test_names_of_sub_commands_are_unique():
    assert len({action.command for action in ACTIONS}) == len(ACTIONS)
