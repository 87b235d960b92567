"""The guide to adding a method is followed to the letter, in a copy of the checkout; the overview has every method."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from studies.labelfree.cases import outputs
from testbed.studies.labelfree.scores import METHODS

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^```(\w+)(?: title=(\S+)( \w+)?)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDE, OVERVIEW = ((ROOT / "docs" / name).read_text() for name in ("adding-a-label-free-method.md", "label-free.md"))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what the guide touches, with its code put where it says."""
    folder = tmp_path_factory.mktemp("checkout")
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("src", "registry", "tests/studies"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for path in (*ROOT.glob("*.py"), *ROOT.glob("tests/*.py"), ROOT / "pyproject.toml"):
        shutil.copy(path, folder / path.relative_to(ROOT))
    for language, title, how, content in FENCE.findall(GUIDE):
        if language == "python" and title:
            put(folder / title, how.strip(), content)
    return folder


def put(path, how, content):
    """Write a file, add to the end of one (more), or add an entry to the table of methods (entry)."""
    if how == "more":
        content = f"{path.read_text()}\n\n{content}"
    elif how == "entry":
        before, table, after = path.read_text().partition("\n_TABLE = (\n")
        assert table, f"{path.name} has no _TABLE"
        content = f"{before}{table}{content}{after}"
    path.write_text(content)


def commands():
    """(command, lines it must print) of the console blocks."""
    told = []
    for language, _, _, content in FENCE.findall(GUIDE):
        for line in content.splitlines() if language == "console" else ():
            if line.startswith("$ "):
                told.append((line[2:], []))
            else:
                told[-1][1].append(line)
    return told


@pytest.mark.long  # it runs all tests of the methods a second time
def test_guide_adds_a_method_that_works(checkout):
    assert len(commands()) == 5
    for command, expected in commands():
        words = shlex.split(command)
        assert words[0] == "python"
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "COLUMNS": "160", "PYTHONPATH": str(checkout / "src"), "PYTEST_ADDOPTS": "-o addopts="},
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed = " ".join((done.stdout + done.stderr).split())
        for line in expected:
            assert " ".join(line.split()) in printed, f"{command}\nexpected: {line}\n{done.stdout}"
    assert "gini score" in printed


@pytest.mark.parametrize("text", [GUIDE, OVERVIEW], ids=["guide", "overview"])
def test_the_calls_from_python_are_real(text):
    (shown,) = (content for language, title, _, content in FENCE.findall(text) if language == "python" and not title)
    clean, new = outputs(), outputs(signal=1.0, seed=1)
    given = dict(clean_logits=clean.logits, clean_targets=clean.targets, new_logits=new.logits)
    exec(shown.replace('METHODS["gini"]', 'METHODS["entropy"]'), given)
    assert np.isfinite(given["score" if text is GUIDE else "estimate"])


def test_every_method_has_a_row_in_the_overview():
    names = set(re.findall(r"`([a-z-]+)`", "\n".join(row for row in OVERVIEW.splitlines() if row.startswith("| `"))))
    assert {name.removesuffix("-ts") for name in METHODS} <= names
