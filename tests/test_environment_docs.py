"""docs/environment.md names every environment variable of the project, and none that nothing reads."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "environment.md"
VARIABLE = re.compile(r"\bTESTBED_[A-Z_]*[A-Z]\b")
READS = re.compile(r"\bos\.(?:environ\.get\(|environ\[|getenv\()\"(\w+)\"")


def sources():
    folders = [path for name in ("src", "plotting", "registry") for path in sorted((ROOT / name).rglob("*.py"))]
    return [*folders, ROOT / "tests" / "shared_data.py", ROOT / ".ci" / "run"]


def found(pattern, paths):
    return {name for path in paths for name in pattern.findall(path.read_text(encoding="utf-8"))}


def test_page_has_the_variables_that_are_read_and_no_others():
    assert found(VARIABLE, [PAGE]) == found(VARIABLE, sources())


def test_page_has_the_variables_of_others_that_are_read_by_name():
    read = found(READS, sources())
    assert {"TESTBED_FROST", "XDG_CACHE_HOME"} <= read
    assert sorted(name for name in read if f"`{name}`" not in PAGE.read_text(encoding="utf-8")) == []


def test_every_variable_has_a_row_and_an_example():
    text = PAGE.read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(TESTBED_\w+)`", text, re.MULTILINE))
    examples = "\n".join(re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert rows == set(VARIABLE.findall(text))
    assert sorted(name for name in rows if f"{name}=" not in examples) == []
