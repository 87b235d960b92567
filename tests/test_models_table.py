"""docs/models.md is what the registry says, and leaves no published model out."""

import json
from pathlib import Path

from shared_data import shared_data
from testbed.entries.registry import load_module

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "models.md"


def test_table_of_models_is_up_to_date():
    tool = load_module(ROOT / "tools" / "make_models_table.py")
    assert PAGE.read_text(encoding="utf-8") == tool.page(), "run python tools/make_models_table.py"


def test_every_published_model_stands_there_once():
    families = json.loads(shared_data("testbed", "names.json").read_text())["models"]
    names = [name for family in families.values() for name in family]
    assert len(names) == 401
    page = PAGE.read_text(encoding="utf-8")
    assert {name: page.count(f"`{name}`") for name in names} == dict.fromkeys(names, 1)
