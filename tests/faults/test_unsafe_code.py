"""What the program never does, read in its own source: pickles, shells, code from text. Who adds one is told here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tiny

TREES = ("src", "registry", "plotting", "tools", "benchmarks")
SCRIPTS = ("eval.py", "db.py", "autoeval.py", "setup.py")

# Modules that read or write pickles, or hand objects to other processes as such.
PICKLING = {
    *(
        "pickle",
        "_pickle",
        "cPickle",
        "dill",
        "cloudpickle",
        "joblib",
        "shelve",
        "marshal",
        "jsonpickle",
        "pandas.io.pickle",
    ),
    *("submitit", "ray", "torch.package", "numpy.lib.npyio"),
}
EXCEPTIONS = {  # file -> why it may
    "src/testbed/engine/preparing_messages.py": "messages between processes of one run, over their own sockets",
    "src/testbed/engine/broker.py": "messages between processes of one run, over their own sockets",
    "src/testbed/models/weights/checkpoints.py": "tells torch's refusal of pickled code by its error; reads none",
    "src/testbed/data/cifar_files.py": "CIFAR is published as pickles: a reader of our own, which runs none of them",
    "src/testbed/explain/convert_heatmaps.py": "heatmaps are published as pickles: a reader of our own, as above",
    "src/testbed/commands/submitting.py": "submitit keeps jobs as pickles in a folder of the user: plain words",
    "src/testbed/engine/ray_cluster.py": "Ray hands objects to the actors of one run",
    "tools/scale_demo.py": "starts a Ray cluster of two nodes to show",
}
UNSAFE_FLAG = "src/testbed/models/weights/checkpoints.py"  # --unsafe-pickle, which a user has to ask for

NUMPY_FILES = {"load", "save", "savez", "savez_compressed", "read_array", "write_array"}  # of np and np.lib.format
SHELLS = {
    *("os.system", "os.popen", "os.startfile", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"),
    *("commands.getoutput", "asyncio.create_subprocess_shell", "os.execl", "os.execlp", "os.spawnl", "os.spawnlp"),
}
STARTERS = {"run", "Popen", "call", "check_call", "check_output"}


@cache
def python_files() -> tuple[tuple[str, ast.Module], ...]:
    files = [path for tree in TREES for path in sorted((tiny.ROOT / tree).rglob("*.py"))]
    files += [tiny.ROOT / name for name in SCRIPTS]
    return tuple((p.relative_to(tiny.ROOT).as_posix(), ast.parse(p.read_text(encoding="utf-8"))) for p in files)


def dotted(node: ast.expr) -> str:
    """`np.lib.format.read_array` for such an expression; empty for another one."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def says(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def calls(module: ast.Module) -> list[tuple[str, ast.Call]]:
    """Each call, by the name of what is called, with the words under which modules were imported put back."""
    names = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    made = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = dotted(node.func) or (f"?.{node.func.attr}" if isinstance(node.func, ast.Attribute) else "")
            first, dot, rest = name.partition(".")
            made.append((names.get(first, first) + dot + rest, node))
    return made


def pickles(path: str, module: ast.Module) -> Iterator[str]:
    """What of a file reads or writes pickles."""
    if path not in EXCEPTIONS:
        yield from (f"imports {n}" for n in imported(module) if n in PICKLING or n.partition(".")[0] in PICKLING)
    for name, call in calls(module):
        last = name.rpartition(".")[2]
        if name == "torch.load" and not says(keyword(call, "weights_only"), True) and path != UNSAFE_FLAG:
            yield "torch.load without weights_only=True"
        if name in ("torch.save", "torch.serialization.save"):
            yield "torch.save, which writes a pickle: safetensors"
        if name.startswith("numpy") and last in NUMPY_FILES and not says(keyword(call, "allow_pickle"), False):
            yield f"{name} without allow_pickle=False"
        if last in ("load_state_dict_from_url", "PickleType", "read_pickle", "to_pickle") or name in (
            *("pandas.read_hdf", "yaml.load", "yaml.unsafe_load"),
        ):
            yield name


def shells(path: str, module: ast.Module) -> Iterator[str]:
    """What of a file gives text to a shell, or runs text."""
    for name, call in calls(module):
        if name in SHELLS:
            yield name
        if keyword(call, "shell") is not None and not says(keyword(call, "shell"), False):
            yield f"{name} with shell"
        if name in {f"subprocess.{starter}" for starter in STARTERS}:
            command = call.args[0] if call.args else keyword(call, "args")
            glued = isinstance(command, ast.Call) and getattr(command.func, "attr", "") in ("join", "format")
            if glued or isinstance(command, ast.Constant | ast.JoinedStr | ast.BinOp):
                yield f"{name} with one text for a command"
        if name in ("eval", "exec", "compile", "__import__", "os.execve", "runpy.run_path", "code.interact"):
            yield name


def told(check) -> list[str]:
    return [f"{path}: {what}" for path, module in python_files() for what in check(path, module)]


def test_no_pickle_is_read_or_written():
    assert told(pickles) == []


def test_every_exception_is_one():
    """Who no longer needs to be one is taken off the list."""
    modules = dict(python_files())
    for path, reason in EXCEPTIONS.items():
        assert reason and any(n.partition(".")[0] in PICKLING for n in imported(modules[path])), path


def test_published_pickles_are_read_by_readers_of_our_own():
    """In the files that may import pickle for that, nothing but a class that decides over every name loads one."""
    for path in ("src/testbed/data/cifar_files.py", "src/testbed/explain/convert_heatmaps.py"):
        module = dict(python_files())[path]
        readers = [
            n
            for n in ast.walk(module)
            if isinstance(n, ast.ClassDef) and "pickle" in ast.unparse(n.bases[0] if n.bases else n)
        ]
        assert [any(isinstance(m, ast.FunctionDef) and m.name == "find_class" for m in r.body) for r in readers] == [
            True
        ]
        assert not {name for name, _ in calls(module)} & {
            f"pickle.{word}" for word in ("load", "loads", "Unpickler", "dump")
        }


def test_nothing_reaches_a_shell_and_no_text_is_run():
    assert told(shells) == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            "import pickle",
            "from joblib import load",
            "import cloudpickle as c",
            "import shelve",
            "from torch import package\nimport dill",
        ),
        *(
            "import torch\ntorch.load(p)",
            "import torch as t\nt.load(p, weights_only=False)",
            "from torch import load\nload(p)",
        ),
        *("import torch\ntorch.load(p, weights_only=safe)", "import torch\ntorch.save(x, p)"),
        *(
            "import numpy as np\nnp.load(p)",
            "import numpy as np\nnp.load(p, allow_pickle=True)",
            "import numpy\nnumpy.save(p, x)",
        ),
        *("import numpy as np\nnp.lib.format.read_array(f)", "from numpy import savez\nsavez(p, x)"),
        *("import pandas as pd\npd.read_pickle(p)", "frame().to_pickle(p)", "import sqlalchemy as sa\nsa.PickleType()"),
        "from torch.hub import load_state_dict_from_url\nload_state_dict_from_url(u)",
    ],
)
def test_a_pickle_that_somebody_adds_is_seen(line):
    assert list(pickles("src/testbed/new.py", ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        *("import os\nos.system('ls')", "from os import popen\npopen('ls')", "import subprocess\nsubprocess.run('ls')"),
        *("import subprocess as s\ns.Popen(f'ls {name}')", "from subprocess import run\nrun('ls ' + name)"),
        *("import subprocess\nsubprocess.run(['ls'], shell=True)", "run(x, shell=flag)", "eval(text)", "exec(text)"),
        *("import subprocess\nsubprocess.getoutput('ls')", "import subprocess\nsubprocess.run(' '.join(words))"),
    ],
)
def test_a_shell_that_somebody_adds_is_seen(line):
    assert list(shells("src/testbed/new.py", ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["import numpy as np\nnp.load(p, allow_pickle=False)", "import torch\ntorch.load(p, weights_only=True)"]
)
def test_what_reads_no_pickle_is_passed(line):
    assert not list(pickles("src/testbed/new.py", ast.parse(line)))


def test_the_tree_is_read():
    paths = [Path(path) for path, _ in python_files()]
    assert len(paths) > 300 and Path("src/testbed/store/files.py") in paths and Path("eval.py") in paths
