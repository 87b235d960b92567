"""Who may import whom, how long the ways are, how functions are called: what docs/architecture.md says, kept true."""

from __future__ import annotations

import ast
import re
import sys
import threading
from functools import cache
from pathlib import Path

import pytest

import tiny

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
HEAVY = {"torch", "torchvision", "timm"}
WRITTEN = ("src", "plotting", "registry", "tools")

# room -> the parts of testbed that it may import beside itself. Each names only what stands below it in this table.
ALLOWED = {
    "errors": set(),
    "options": {"errors"},
    "stats": set(),
    "metrics": {"stats"},
    "perturb": {"errors"},
    "data": {"errors"},
    "entries": {"errors", "data", "perturb", "metrics"},
    "store": {"errors", "data", "metrics", "stats", "entries"},
    "models": {"errors", "options", "data", "perturb", "entries"},
    "foreign": {"errors", "data", "metrics", "perturb", "entries", "models"},
    "explain": {"errors", "data", "metrics", "entries", "store"},
    "engine": {"errors", "options", "data", "perturb", "metrics", "entries", "models", "store"},
    "studies": {"errors", "options", "data", "metrics", "stats", "entries", "models", "store", "engine"},
    "commands": {
        *("errors", "options", "data", "metrics", "stats", "entries", "models", "store", "engine", "studies"),
    },
}
# Inside functions only: a string such as timm:resnet50 becomes an entry where such strings are known.
# A plug-in file in the words of another program is run where these are known.
INSIDE_FUNCTIONS = {"entries": {"models.strings", "explain.settings", "foreign.imports"}}
# Rooms that are used where torch is not: reading results loads no weight.
LIGHT = ("errors.py", "options.py", "__init__.py", "entries", "data", "metrics", "stats", "store", "studies/labelfree")


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def python_files(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path):
    """(module, whether at the top level) of every import in a file, with `from a import b` as a.b too."""
    modules = set()
    top = set()
    for node in tree(path).body:
        for_types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if not for_types and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            top.update(ast.walk(node))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            modules.update((alias.name, node in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules.add((node.module, node in top))
            modules.update((f"{node.module}.{alias.name}", node in top) for alias in node.names)
    return modules


def within(module, room):
    return module == room or module.startswith(room + ".")


def room_files(room):
    folder = SOURCE / "testbed" / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


# ---- rooms -----------------------------------------------------------------------------------------------


def test_every_room_has_its_line_in_the_table():
    there = {p.name.removesuffix(".py") for p in (SOURCE / "testbed").iterdir() if p.name not in ("py.typed",)}
    assert there - {"__init__", "__pycache__"} == set(ALLOWED)
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in ALLOWED:
        assert f"| `testbed/{room}" in table, f"docs/architecture.md has no line for {room}"


def test_at_most_four_modules_lie_at_the_top_of_the_package():
    assert len(list((SOURCE / "testbed").glob("*.py"))) <= 4


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_room_imports_only_what_it_may(room):
    for path in room_files(room):
        for module, at_top in imports(path):
            if not within(module, "testbed") or module in ("testbed", "testbed.__version__"):
                continue
            permitted = {room, *ALLOWED[room], *(set() if at_top else INSIDE_FUNCTIONS.get(room, set()))}
            part = module.removeprefix("testbed.")
            # `from testbed.models import strings` names its room first and then the part.
            known = any(within(part, p) or within(p, part) for p in permitted)
            assert known, f"{path.relative_to(ROOT)} imports {module}"


def test_the_table_goes_one_way():
    order = list(ALLOWED)
    for room, below in ALLOWED.items():
        assert all(order.index(other) < order.index(room) for other in below), room


@pytest.mark.parametrize("part", LIGHT)
def test_light_rooms_import_no_torch_at_their_top(part):
    path = SOURCE / "testbed" / part
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        heavy = {module for module, at_top in imports(file) if at_top and module.split(".")[0] in HEAVY}
        assert not heavy, f"{file.relative_to(ROOT)} imports {heavy}"


def test_store_and_label_free_study_never_import_torch():
    for path in (*room_files("store"), *sorted((SOURCE / "testbed/studies/labelfree").rglob("*.py"))):
        assert not {module.split(".")[0] for module, _ in imports(path)} & HEAVY, path.name


def test_label_free_study_runs_no_model():
    for path in sorted((SOURCE / "testbed/studies/labelfree").rglob("*.py")):
        for module, _ in imports(path):
            assert not within(module, "testbed.engine") and not within(module, "testbed.models"), path.name


def test_registry_files_import_the_words_and_nothing_heavy_at_the_top():
    for path in python_files("registry"):
        for module, at_top in imports(path):
            assert not (at_top and module.split(".")[0] in HEAVY and not path.name.startswith("_")), path.name
            assert not within(module, "testbed.engine") and not within(module, "testbed.store"), path.name


def test_plotting_reads_the_store_and_never_runs_models():
    for path in python_files("plotting"):
        for module, _ in imports(path):
            assert module.split(".")[0] not in HEAVY, f"{path.name} imports {module}"
            assert not within(module, "testbed.engine"), f"{path.name} imports {module}"


def test_nothing_changes_the_import_path():
    for path in python_files(*WRITTEN):
        assert "sys.path" not in path.read_text(encoding="utf-8"), path


# ---- the ways --------------------------------------------------------------------------------------------


def listed_way(title):
    """The files of one way, as docs/architecture.md lists them."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = page.split(f"### {title}\n", 1)[1].split("\n###", 1)[0].split("\n## ", 1)[0]
    return re.findall(r"^\d+\. `([^`]+)`", part, flags=re.MULTILINE)


def walked(action):
    """(file, file) for every call from one of our files into another while `action` runs, in any thread."""
    calls = set()

    def ours(frame):
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(str(ROOT)) and "/tests/" not in name:
                return str(Path(name).relative_to(ROOT)).removeprefix("src/testbed/")
            frame = frame.f_back
        return None

    def profile(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            calls.add((ours(frame.f_back), ours(frame)))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def test_an_image_passes_at_most_twenty_files_from_the_command_to_its_row(tmp_path, image_folder, monkeypatch):
    """The way in docs/architecture.md is walked: each of its files is called by one that stands before it."""
    from click.testing import CliRunner

    from testbed.commands.evaluate import main
    from testbed.engine import run
    from testbed.engine.pools import InlinePool
    from testbed.entries.registry import load_registry

    image_folder([f"{label}/{i}.png" for label in "abc" for i in range(3)], root="data/folder", size=9)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
    # The worker in this process, where the calls can be followed.
    monkeypatch.setattr(
        run,
        "ProcessPool",
        lambda devices, options, threads: InlinePool("cpu", options, load_registry(options.registry)),
    )
    arguments = ["--models", "tiny_pictures", "--eval-settings", "tiny-folder", "--gpus", "cpu"]
    results = []
    calls = walked(lambda: results.append(CliRunner().invoke(main, arguments)))
    assert results[0].exit_code == 0, results[0].output
    way = listed_way("From the command to a row")
    assert way[0] == "eval.py" and len(way) <= 20
    assert (ROOT / "eval.py").read_text(encoding="utf-8").count("testbed.commands.evaluate") == 1
    for place, file in enumerate(way[2:], start=2):
        before = [other for other in way[:place] if (other, file) in calls]
        assert before, f"{file} is called by none of {way[:place]}"


@pytest.mark.parametrize("title", ["From a stored logit to a figure", "to a table", "to a label-free number"])
def test_a_stored_logit_passes_at_most_six_files(title):
    way = listed_way(title)
    assert 3 <= len(way) <= 6
    files = [ROOT / name if name.startswith("plotting") else SOURCE / "testbed" / name for name in way]
    for reader, file in zip(files[1:], files, strict=False):
        later = {name for p in files[files.index(file) + 1 :] for name, _ in imports(p)}
        used = any(name.split(".")[-1] == file.stem for name in later)
        assert used, f"{file.name} is imported by none that come after it, such as {reader.name}"


def test_predict_and_the_loops_around_it_fit_on_one_screen():
    screens = {
        "engine/predict.py": ["predict"],
        "engine/run.py": ["run_evaluations"],
        "engine/worker.py": ["_evaluate"],
        "engine/dispatch.py": ["run"],
    }
    for file, names in screens.items():
        functions = [n for n in ast.walk(tree(SOURCE / "testbed" / file)) if isinstance(n, ast.FunctionDef)]
        for function in functions:
            if function.name in names:
                assert function.end_lineno - function.lineno < 45, f"{file}: {function.name}"


# ---- how it is written -----------------------------------------------------------------------------------


def test_no_function_takes_more_than_seven_positional_arguments():
    long = []
    for path in python_files(*WRITTEN):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
                if len(names) > 7:
                    long.append(f"{path.relative_to(ROOT)}: {node.name} takes {len(names)}")
    assert not long


def test_every_module_of_the_engine_and_the_store_has_tests_that_name_it():
    """The plan, the subtlest logic, once had no test file."""
    for name in ("engine/plan", "engine/predict", "engine/dispatch", "store/find", "store/files", "data/rows"):
        room, module = name.split("/")
        assert (ROOT / "tests" / room / f"test_{module}.py").is_file(), name


def test_stored_evaluations_and_entries_are_not_read_by_strings():
    """Evaluations are typed, provenance is never None, metrics declare their facts, frozen values set their own."""
    for path in python_files("src", "plotting"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\.row\[\"|\.provenance or ", text), path
        assert "columns_are_classes" not in text, path
        for setting in re.finditer(r'object\.__setattr__\((\w+), "', text):
            assert setting[1] == "self", f"{path} sets an attribute of another frozen value"


def test_softmax_ece_and_latex_are_written_once():
    """Taking the largest logit off a row before exp is what metrics/softmax.py is for; figures compute no metric."""
    for path in python_files("src/testbed/metrics", "src/testbed/studies", "src/testbed/store", "plotting"):
        text = path.read_text(encoding="utf-8")
        # The fit of a temperature stays in float32, as the label-free results that were checked have it.
        if path.name not in ("softmax.py", "calibration.py"):
            own = "np.exp(" in text and re.search(r"-=? [\w.]*max\(axis=1", text)
            assert not own, f"{path.relative_to(ROOT)} has a softmax of its own"
        if path.is_relative_to(ROOT / "plotting"):
            assert "textbackslash" not in text and "def expected_error" not in text, path


def test_docstrings_are_plain_and_comments_say_why():
    """`found` says nothing of what a value is. Comments once were 0.7 % of the lines; good projects have 3 to 7."""
    bound = code = comments = 0
    for path in python_files("src"):
        for node in ast.walk(tree(path)):
            bound += isinstance(node, ast.Name) and node.id == "found" and isinstance(node.ctx, ast.Store)
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        comments += sum((line.startswith("#") and not line.startswith("# ----")) or "  # " in line for line in lines)
        code += len(lines)
    assert bound <= 10
    assert comments / code >= 0.03
