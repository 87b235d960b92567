"""Who may import whom: the rules of docs/architecture.md, kept by reading every import of the tree."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
HEAVY = {"torch", "torchvision", "timm"}

# room -> the parts of testbed that it may import beside itself
ALLOWED = {
    "testbed.stats": set(),
    "testbed.perturb": {"testbed.errors"},
    "testbed.metrics": {"testbed.stats"},
    "testbed.data": {"testbed.errors"},
}


def imports(path):
    """(module, whether at the top level) of every import in a file, with `from a import b` as a.b too."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set()
    for node in tree.body:
        for_types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if not for_types and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            top.update(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update((alias.name, node in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add((node.module, node in top))
            found.update((f"{node.module}.{alias.name}", node in top) for alias in node.names)
    return found


def within(module, room):
    return module == room or module.startswith(room + ".")


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_room_imports_only_what_it_may(room):
    folder = SOURCE / room.replace(".", "/")
    files = sorted(folder.rglob("*.py"))
    assert files
    for path in files:
        for module, _ in imports(path):
            if within(module, "testbed") and module != "testbed":
                permitted = {room, *ALLOWED[room]}
                assert any(within(module, p) for p in permitted), f"{path.relative_to(ROOT)} imports {module}"


def test_registry_files_import_the_words_and_nothing_heavy_at_the_top():
    for path in sorted((ROOT / "registry").rglob("*.py")):
        if path.name.startswith("_"):
            continue
        for module, at_top in imports(path):
            assert not (at_top and module.split(".")[0] in HEAVY), f"{path.name} imports {module} at the top"


def test_store_and_words_never_import_torch():
    light = [*(SOURCE / "testbed/store").rglob("*.py"), *(SOURCE / "testbed").glob("*.py")]
    for path in light:
        assert not {m.split(".")[0] for m, _ in imports(path)} & HEAVY, path.name


def test_runs_know_nothing_of_label_free_estimation():
    for path in sorted((SOURCE / "testbed/engine").glob("*.py")):
        assert not any(within(module, "testbed.studies.labelfree") for module, _ in imports(path)), path.name


def test_plotting_reads_the_store_and_never_runs_models():
    for path in sorted((ROOT / "plotting").glob("*.py")):
        for module, _ in imports(path):
            assert module.split(".")[0] not in HEAVY, f"{path.name} imports {module}"
            assert not within(module, "testbed.engine"), f"{path.name} imports {module}"


def test_nothing_changes_the_import_path():
    for folder in ("src", "registry", "plotting", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            assert "sys.path" not in path.read_text(encoding="utf-8"), path
