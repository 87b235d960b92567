"""What the README promises: its commands can be typed as they stand, and its counts are those of the registry."""

import re
import shlex
from importlib import import_module

import click
import pytest

from guides import ROOT
from shared_data import shared_data
from testbed.commands import demo
from testbed.entries.registry import load_registry
from testbed.store.formats import published
from testbed.store.opening import open_store
from tiny import MAINS

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"(?:python )?((?:eval|db|autoeval|plotting/\w+)\.py --[^\n`#]*)")
PLACEHOLDERS = re.compile(r"MODEL|SETTING|GROUP|PATH|FILE|^M$|^mine$")


def commands():
    """Every command of the README, in blocks and in sentences; lines that end in a backslash are joined."""
    found = COMMAND.findall(README.replace("\\\n", " "))
    return [c.strip().rstrip(".),") for c in found]


def words_of(command):
    """The words as a shell passes them: `a.{b,c}.3` is two."""
    words = []
    for word in shlex.split(command):
        match = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
        words += [match[1] + part + match[3] for part in match[2].split(",")] if match else [word]
    return words


def parsed(command, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "plotting"))
    script, *words = words_of(command)
    name = (
        f"testbed.commands.{MAINS[script]}" if script in MAINS else script.removeprefix("plotting/").removesuffix(".py")
    )
    return import_module(name).main.make_context(script, words)


@pytest.fixture(scope="module")
def entries():
    return load_registry()


def test_readme_shows_commands():
    assert len(commands()) >= 15


@pytest.mark.parametrize("command", commands())
def test_command_of_the_readme_can_be_typed(command, monkeypatch, entries):
    try:
        given = parsed(command, monkeypatch).params
    except click.UsageError as error:
        pytest.fail(f"{command}: {error.message}")
    real = [name for name in given.get("eval_settings") or () if not PLACEHOLDERS.search(name)]
    assert not real or entries.expand_eval_settings(real)
    models = given.get("models") or () if command.startswith("eval.py") else ()
    real = [name for name in models if not PLACEHOLDERS.search(name)]
    assert not real or entries.expand_models(real)
    for option in ("print_eval", "per_class", "calibration"):
        if pair := given.get(option):
            assert entries.model(pair[0])
            assert entries.eval_setting(pair[1])


def test_words_of_the_table_of_questions_name_settings(entries):
    named = [n for n in re.findall(r"`--eval-settings ([^`]+)`", README) if not PLACEHOLDERS.search(n)]
    assert len(named) >= 3
    for words in named:
        assert entries.expand_eval_settings(shlex.split(words))


def test_demo_has_as_many_models_and_settings_as_the_readme_says(entries):
    assert "testbed demo" in (ROOT / "Makefile").read_text(encoding="utf-8")
    _, shown, *_ = demo.STEPS  # what the first one prints is not shown
    assert "--models digits-models --eval-settings digits-demo" in shown
    models, settings = re.search(r"evaluates (\w+) digit classifiers on (\d+) settings", README).groups()
    assert ["no", "one", "two", "three", "four", "five", "six", "seven"].index(models) == len(
        entries.expand_models(["digits-models"])
    )
    assert int(settings) == len(entries.expand_eval_settings(["digits-demo"]))


def test_figure_above_has_as_many_models_as_its_caption_says(tmp_path, monkeypatch):
    """The command beside `the figure above` chooses the models of the picture's caption."""
    csv, types = (shared_data("testbed", name) for name in ("robustness_top1s.csv", "model_types.csv"))
    monkeypatch.syspath_prepend(str(ROOT / "plotting"))
    from _results import load

    after = README.replace("\\\n", " ").partition("# the figure above\n")[2]
    given = parsed(COMMAND.search(after)[1], monkeypatch).params
    store = open_store(str(tmp_path / "results.db"), create=True)
    published.import_published(store, published.read_csv(csv), published.read_types(types), "imagenet-testbed")
    results = load(store)
    x, y = results.column(given["x_name"]).value, results.column(given["y_name"]).value
    assert results.highlighted(given["highlight"]).any()
    shown = int(((x >= given["min_x"]) & (y == y)).sum())
    assert f"for {shown} published models" in README
