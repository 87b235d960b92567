"""Changes one operator or constant at a time and runs the mirrored tests: which changes does no test notice?

    python tools/mutants.py                                  # a sample of every module named in docs/statistics.md
    python tools/mutants.py --modules metrics/ood --modules 'stats/*' --each 20
    python tools/mutants.py --only src/testbed/metrics/ood.py:94    # all changes of one line

The tree is copied, the copy is changed, and the tests that mirror the module run there. The sample of a module depends
on nothing but its name and text, so that two runs compare the same changes.
"""

from __future__ import annotations

import ast
import copy
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("src/testbed")
DEFAULT_MODULES = (
    *("metrics/*", "stats/*", "store/*", "engine/plan"),
    *("studies/groups", "studies/labelfree/agreement", "studies/labelfree/transport"),
)
# Lengths of text columns and NOT NULL: SQLite does not enforce the one, and every writer fills in the other.
LEFT_OUT = ("store/schema",)
# What attacks a module may stand in tests/faults, by the fault and not by the module.
FAULTS = {
    "store/damage": ("test_damaged_files",),
    "store/database": ("test_ownership", "test_changed_functions"),
    "store/files": ("test_damaged_files",),
    "store/formats/logits": ("test_imports",),
    "store/formats/logits_checks": ("test_imports",),
    "store/formats/manifest": ("test_imports",),
    "store/formats/published": ("test_imports", "test_names"),
    "store/masking": ("test_secrets",),
    "store/mixed": ("test_changed_data",),
    "store/opening": ("test_read_only",),
    "store/sweeping": ("test_left_behind",),
    "engine/plan": ("test_changed_data",),
}
COPIED = ("src", "tests", "plotting", "registry", "tools", "docs", "pyproject.toml", "README.md", "requirements.txt")
COPIED_SCRIPTS = ("eval.py", "db.py", "autoeval.py")
MOST_MEMORY = 16 << 30  # address space of a test run: a mutant may ask for any amount

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One change: bytes `start` to `end` of a module become `text`."""

    file: Path  # from the root of the tree
    line: int
    start: int
    end: int
    before: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_short(self.before)}  ->  {_short(self.text)}"


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    noticed: bool
    how: str  # "failed", "hung", "passed"


def _short(text: str, most: int = 70) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


# ---- changes ---------------------------------------------------------------------------------------------


def mutants_of(file: Path, text: str) -> list[Mutant]:
    """Every change of a module, in the order of its lines."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    mutants = []
    tree = ast.parse(text)
    # A condition that is a comparison is changed by its operator; others are negated.
    conditions = {n.test for n in ast.walk(tree) if isinstance(n, ast.If | ast.While)}
    for node in _changeable(tree):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
        before = text.encode()[start:end].decode()
        negated = node in conditions and isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.NamedExpr)
        for changed in [ast.UnaryOp(ast.Not(), node)] if negated else _changes(node):
            # Brackets, since a changed operator may bind less than its surroundings.
            after = ast.unparse(changed)
            after = after if isinstance(changed, ast.Constant | ast.stmt) else f"({after})"
            mutants.append(Mutant(file, node.lineno, start, end, before, after))
    return sorted(mutants, key=lambda m: (m.start, m.end, m.text))


def _changeable(tree: ast.AST) -> Iterator[ast.expr | ast.Return]:
    """Expressions and returns that run. Not annotations, messages of errors, or text."""
    # zip(..., strict=True) is a guard of our own, and stacklevel says whose line a warning names.
    if isinstance(tree, ast.keyword) and tree.arg in ("strict", "stacklevel"):
        return
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            # Places inside of f-strings are not known to Python 3.11.
            if not isinstance(node, ast.AST) or isinstance(node, ast.Raise | ast.JoinedStr | ast.Import):
                continue
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.expr | ast.Return):
                yield node
            yield from _changeable(node)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = COMPARISONS[type(operator)]()
            yield changed
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        changed = copy.deepcopy(node)
        changed.op = ARITHMETIC[type(node.op)]()
        yield changed
    elif isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        changed = copy.deepcopy(node)
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
    elif isinstance(node, ast.Constant):
        value = _other_value(node.value)
        if value is not None:
            yield ast.Constant(value)
    elif isinstance(node, ast.Return) and node.value is not None and getattr(node.value, "value", 0) is not None:
        yield ast.Return(ast.Constant(None))


def _other_value(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value * 1.1 if isinstance(value, float) and value else None


def sampled(file: Path, text: str, each: int) -> list[Mutant]:
    """`each` changes of a module, the same at every call; all of them for 0."""
    mutants = mutants_of(file, text)
    if not each or len(mutants) <= each:
        return mutants
    chosen = random.Random(str(file)).sample(mutants, each)
    return sorted(chosen, key=lambda m: (m.start, m.end, m.text))


# ---- tests -----------------------------------------------------------------------------------------------


def mirrored_tests(file: Path, root: Path = ROOT) -> list[Path]:
    """The tests of a module's room that are named after it or import it, then those of its faults."""
    inside = file.relative_to(SOURCE).with_suffix("")
    room, module = root / "tests" / inside.parts[0], "testbed." + ".".join(inside.parts)
    files = sorted(room.rglob("test_*.py"))
    own = [path for path in files if path.stem == f"test_{inside.name}"]
    others = [path for path in files if path not in own and module in _imported(path)]
    faults = [root / "tests" / "faults" / f"{name}.py" for name in FAULTS.get(str(inside), ())]
    chosen = [*(own + others or files), *faults]
    return [path.relative_to(root) for path in chosen]


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return names


def run_tests(tree: Path, tests: Sequence[Path], limit_s: float | None) -> str:
    """`passed`, `failed`, or `hung` where the limit was reached."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        # A change that keeps the size of a file within one second would be taken from the cache.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long", *map(str, tests)]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that workers which the tests start end with them
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY)),
    )
    try:
        return "passed" if process.wait(limit_s) == 0 else "failed"
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def copied_tree(folder: Path) -> Path:
    """A copy of what tests need, with the shared data beside it where the project has it."""
    folder.chmod(0o755)  # tests of read-only results go on as another user
    tree = folder / "tree"
    tree.mkdir()
    for name in (*COPIED, *COPIED_SCRIPTS):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, tree / name)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return tree


def tried(tree: Path, file: Path, mutants: Sequence[Mutant]) -> Iterator[Outcome]:
    """Each change in turn; the module is as it was afterwards."""
    tests = mirrored_tests(file)
    original = (tree / file).read_bytes()
    began = time.monotonic()
    if run_tests(tree, tests, None) != "passed":
        raise click.ClickException(f"{file}: expected {' '.join(map(str, tests))} to pass before any change")
    limit_s = 20 + 4 * (time.monotonic() - began)
    try:
        for mutant in mutants:
            changed = original[: mutant.start] + mutant.text.encode() + original[mutant.end :]
            (tree / file).write_bytes(changed)
            how = run_tests(tree, tests, limit_s)
            yield Outcome(mutant, how != "passed", how)
    finally:
        (tree / file).write_bytes(original)


# ---- the command -----------------------------------------------------------------------------------------


def chosen_files(patterns: Sequence[str]) -> list[Path]:
    files = []
    for path in sorted((ROOT / SOURCE).rglob("*.py")):
        name = str(path.relative_to(ROOT / SOURCE).with_suffix(""))
        if path.name == "__init__.py" or (name in LEFT_OUT and name not in patterns):
            continue
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            files.append(path.relative_to(ROOT))
    if not files:
        raise click.ClickException(f"no module matches {' '.join(patterns)}; expected such as metrics/ood or stats/*")
    return files


@click.command(help=__doc__)
@click.option("--modules", multiple=True, metavar="GLOB", help="Below src/testbed, such as metrics/ood; repeatable.")
@click.option("--each", default=10, show_default=True, help="Changes of each module; 0 for all.")
@click.option("--only", multiple=True, metavar="FILE:LINE", help="All changes of one line.")
@click.option("--least", default=85.0, show_default=True, help="Exit with 1 where a smaller share, in %, is noticed.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the unnoticed changes into this file.")
def main(modules: tuple[str, ...], each: int, only: tuple[str, ...], least: float, out: Path | None) -> None:
    lines = {(Path(place.rpartition(":")[0]), int(place.rpartition(":")[2])) for place in only}
    files = sorted({file for file, _ in lines}) or chosen_files(modules or DEFAULT_MODULES)
    unnoticed: list[Mutant] = []
    total = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copied_tree(Path(folder))
        for file in files:
            text = (ROOT / file).read_text(encoding="utf-8")
            mutants = sampled(file, text, 0 if lines else each)
            if lines:
                mutants = [m for m in mutants if (file, m.line) in lines]
            outcomes = list(tried(tree, file, mutants)) if mutants else []
            missed = [o.mutant for o in outcomes if not o.noticed]
            total += len(outcomes)
            unnoticed += missed
            click.echo(f"{file.relative_to(SOURCE)!s:40} {len(outcomes) - len(missed):4} of {len(outcomes):4} noticed")
            for mutant in missed:
                click.echo(f"    {mutant}")
            if out is not None:
                out.write_text("".join(f"{m}\n" for m in unnoticed), encoding="utf-8")
    share = 100 * (total - len(unnoticed)) / max(total, 1)
    click.echo(f"{total - len(unnoticed)} of {total} changes noticed ({share:.0f} %)")
    if share < least:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
