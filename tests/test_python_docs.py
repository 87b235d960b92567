"""docs/python.md: every public name is there, signatures are the real ones, and the examples do what they show."""

import ast
import doctest
import inspect
import re
from pathlib import Path

import pandas as pd
import pytest

import testbed
import testbed.explain

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIGNATURE = re.compile(r"^(testbed(?:\.\w+)+)\(\s*(.*?)\s*\)$", re.MULTILINE | re.DOTALL)


def blocks(language):
    return [content for found, content in FENCE.findall(TEXT) if found == language]


SIGNATURES = dict(match for block in blocks("python") for match in SIGNATURE.findall(block))


@pytest.mark.parametrize("name", testbed.__all__)
def test_page_has_every_public_name(name):
    assert re.search(rf"\btestbed\.{name}\b", TEXT), f"docs/python.md says nothing of testbed.{name}"


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_the_real_one(name):
    """Names, order, kinds and defaults; one that ends in `...` leaves out the last parameters."""
    shown = SIGNATURES[name]
    called = testbed
    for word in name.split(".")[1:]:
        called = getattr(called, word)
    real = [_plain(parameter) for parameter in inspect.signature(called).parameters.values()]
    told = _parameters(shown.removesuffix("...").rstrip(", "))
    assert told == (real[: len(told)] if shown.endswith("...") else real)


def _plain(parameter):
    default = parameter.default
    if default is parameter.empty:
        default = ""
    else:
        default = default.__name__ if callable(default) else repr(default)
    return parameter.name, parameter.kind, default


def _parameters(text):
    """What stands between the parentheses of a signature, as `_plain` tells a real one."""
    arguments = ast.parse(f"def f({text}): ...").body[0].args
    kind = inspect.Parameter
    places = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(places) - len(arguments.defaults)) + arguments.defaults
    found = [(a.arg, kind.POSITIONAL_OR_KEYWORD, d) for a, d in zip(places, defaults, strict=True)]
    found += [(a.arg, kind.KEYWORD_ONLY, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        found.append((arguments.kwarg.arg, kind.VAR_KEYWORD, None))
    return [(name, how, _written(default)) for name, how, default in found]


def _written(default):
    """A literal as repr writes it, a function by its last name."""
    if default is None:
        return ""
    if isinstance(default, ast.Name | ast.Attribute):
        return ast.unparse(default).split(".")[-1]
    return repr(ast.literal_eval(default))


def test_examples_do_what_they_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = "\n".join(blocks("pycon"))
    assert examples.count(">>>") > 20
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    told = []
    with pd.option_context("display.width", 160, "display.max_columns", None):
        options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        result = doctest.DocTestRunner(optionflags=options).run(test, out=told.append)
    assert result.failed == 0, "".join(told)
