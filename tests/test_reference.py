"""docs/reference.md is what the commands say, and they say it of every flag."""

import inspect
import re
from pathlib import Path

import pytest

from testbed.commands.database import ACTIONS, SHARED_OPTIONS
from testbed.entries.registry import load_module

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference.md"


@pytest.fixture(scope="module")
def tool():
    """With plotting/ on the path, as Python puts it there for a script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "plotting"))
        yield load_module(ROOT / "tools" / "make_reference.py")


def test_reference_is_up_to_date(tool):
    assert PAGE.read_text(encoding="utf-8") == tool.page(), f"run {tool.CALL}"


def test_reference_has_every_command(tool):
    """Whatever makes a click command in the package or in plotting/ is a section."""
    makes = re.compile(r"^@(click\.command|figure_command)\(", re.MULTILINE)
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "plotting").glob("*.py")]
    expected = {path for path in files if makes.search(path.read_text(encoding="utf-8"))}
    shown = {Path(inspect.getfile(inspect.unwrap(command.callback))) for _, command in tool.commands()}
    assert shown == expected


def test_every_row_of_a_table_has_three_cells(tool):
    rows = [line for line in tool.page().splitlines() if line.startswith("|")]
    assert len(rows) > 200
    assert [row for row in rows if len(re.findall(r"(?<!\\)\|", row)) != 4] == []


def test_text_and_default_are_taken_apart(tool):
    said = "Torch threads.  [default: the cores; x>=1]  [required]"
    assert tool._taken_apart(said) == ("Torch threads.", "required", "x>=1")
    assert tool._taken_apart("Fit on.  [default: *aws*]") == ("Fit on.", "*aws*", "")
    assert tool._taken_apart("[default: each model's own]  [x>=1]") == ("", "each model's own", "x>=1")
    assert tool._taken_apart('Variant.  [default: ""]') == ("Variant.", "", "")


def test_a_flag_of_db_takes_its_own_options_by_keyword():
    declared = [(action, name.replace("-", "_")) for action in ACTIONS for name, _, _ in action.options]
    assert declared
    for action, name in declared:
        assert inspect.signature(action.function).parameters[name].kind is inspect.Parameter.KEYWORD_ONLY, action.flag


def fields_read(function, seen):
    """The fields of `context` that a function reads, itself or in another function of testbed.commands it calls.

    Read from the source text, so it depends on every function calling its Context `context`.
    """
    seen.add(function)
    source = inspect.getsource(function)
    fields = set(re.findall(r"\bcontext\.(\w+)", source))
    for name in re.findall(r"(?<![\w.])(\w+)\(", source):
        called = getattr(function, "__globals__", {}).get(name)
        if inspect.isfunction(called) and called.__module__.startswith("testbed.commands") and called not in seen:
            fields |= fields_read(called, seen)
    return fields


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.flag)
def test_a_flag_of_db_declares_the_shared_options_that_its_function_reads(action):
    fields = fields_read(action.function, set())
    if "print" in fields:  # Context.print follows --format
        fields.add("style")
    assert set(action.reads) == fields & {option.name for option in SHARED_OPTIONS}


def test_an_option_of_several_flags_of_db_names_them_unless_they_are_most():
    for option in SHARED_OPTIONS:
        readers = option.readers()
        assert len(readers) > 1, option.name
        told = set(re.findall(r"--[a-z-]+", str(option.parameter(names_readers=True).help)))
        assert told == set(readers) or (not told and len(readers) > len(ACTIONS) / 3), option.name


def test_every_flag_says_what_it_does(tool):
    silent = [f"{name} {flag}" for name, command in tool.commands() for flag in tool.without_help(command)]
    assert silent == [], ", ".join(silent)
