"""docs/eval-settings.md is what the registry says."""

from pathlib import Path

from testbed.entries.registry import load_module

ROOT = Path(__file__).parents[1]


def test_table_of_settings_is_up_to_date():
    tool = load_module(ROOT / "tools" / "make_settings_table.py")
    assert (ROOT / "docs" / "eval-settings.md").read_text(encoding="utf-8") == tool.page(), (
        "run python tools/make_settings_table.py"
    )
