"""testbed.plotting: the pieces of the figures, from Python."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import testbed
from shared_data import PROJECT

from .conftest import SHIFTS, add_share, looks_drawn


def test_the_example_of_the_guide_draws_a_figure(store, tmp_path):
    """In a process of its own, in another folder, where nothing has put plotting/ on the path."""
    for setting in ("toy", *SHIFTS):
        for i, model in enumerate("abcde"):
            add_share(store, model, setting.replace("toy", "digits"), 60 + 5 * i - 20 * (setting != "toy"))
    (tmp_path / "results").mkdir()
    store.engine.dispose()
    (tmp_path / "results.db").rename(tmp_path / "results" / "results.db")
    page = (PROJECT / "docs" / "plotting.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    left = "[p for p in sys.path if p.endswith('plotting')], [f for f in sys.meta_path if 'testbed' in str(f)]"
    told = f"\nimport sys\nprint({left})"
    done = subprocess.run([sys.executable, "-c", example + told], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["wrote mine.png", "[] []"]
    assert looks_drawn(tmp_path / "mine.png")


def test_public_names_are_those_of_the_guide():
    from testbed.commands import own_figures

    page = (PROJECT / "docs" / "plotting.md").read_text(encoding="utf-8").split("## A figure of your own")[1]
    for name in own_figures.__all__:
        assert getattr(testbed.plotting, name).__module__, name
        assert name in page or name in ("Line", "Words"), name
    with pytest.raises(AttributeError, match=r"module 'testbed.plotting' has no attribute 'nothing'"):
        testbed.plotting.nothing  # noqa: B018


def test_importing_the_address_loads_nothing_heavy():
    code = "import sys, testbed.plotting; print({'torch', 'matplotlib', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
