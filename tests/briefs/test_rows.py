"""No row of a page in docs/briefs stands without a test: its last cell names one that exists.

A name alone is of the page's own file of tests: `docs/briefs/shape-bias.md`, `tests/briefs/test_shape_bias.py`.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "briefs").glob("*.md"))
CELL = re.compile(r"(?<!\\)\|")
NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def rows(page):
    """The cells of every row of every table; headers and the lines below them left out."""
    found, header = [], None
    for line in FENCED.sub("", page.read_text(encoding="utf-8")).splitlines():
        if not line.startswith("|"):
            header = None
        elif header is None:
            header = line
        elif not re.fullmatch(r"[|:\s-]+", line):
            found.append([cell.strip() for cell in CELL.split(line.strip().strip("|"))])
    return found


@cache
def functions_of(file):
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_names_a_test_that_exists(page):
    table = rows(page)
    assert len(table) >= 5
    for cells in table:
        named = NAMED.findall(cells[-1])
        assert named, f"{page.name}: no test in the last cell of: {' | '.join(cells)}"
        for file, name in named:
            file = file or f"tests/briefs/test_{page.stem.replace('-', '_')}.py"
            assert name in functions_of(file), f"{page.name}: {file} has no {name}"


def test_index_links_to_every_page():
    index = (ROOT / "docs" / "briefs.md").read_text(encoding="utf-8")
    assert PAGES
    assert [page.name for page in PAGES if not re.search(rf"\]\(briefs/{page.name}[)#]", index)] == []


READMES = (
    "ImageNet Testbed",
    "Cue-Conflict Shape Bias Evaluation",
    "Shape Bias Validation Test Suite",
    "Evaluation Metrics for Contrastive Explanation",
    "Baselines",
)


@pytest.mark.parametrize("readme", READMES)
def test_index_leads_from_each_readme_to_a_table(readme):
    index = rows(ROOT / "docs" / "briefs.md")
    (row,) = [cells for cells in index if cells[0].startswith(readme)]
    (file, anchor) = re.findall(r"\]\((briefs/[\w-]+\.md)(?:#([\w-]+))?\)", row[-1])[0]
    page = (ROOT / "docs" / file).read_text(encoding="utf-8")
    headings = [line.lstrip("# ").lower().replace(" ", "-") for line in page.splitlines() if line.startswith("#")]
    assert not anchor or anchor in headings


def test_row_without_a_test_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("| a | b |\n|---|---|\n| `x` \\| y | `tests/briefs/test_rows.py::test_no_such` |\n| z | none |\n")
    first, second = rows(page)
    assert first[0] == "`x` \\| y"
    ((file, name),) = NAMED.findall(first[-1])
    assert name not in functions_of(file)
    assert NAMED.findall(second[-1]) == []
