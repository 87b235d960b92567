"""Whoever writes outside the results: how each is called, for full disks and for folders that may not be written."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
from click.testing import CliRunner

import tiny

RUN = ("--models", "tiny_a", "--eval-settings", "tiny", "--gpus", "cpu", "--workers", "0", "--threads", "1")
WRITERS = {  # {there} is the folder, {db} a database with results of tiny_a on `tiny` and `tiny.noise`
    "--copy": ("db.py", "--db", "{db}", "--copy", "{there}/copy/results.db"),
    "--merge": ("db.py", "--db", "{there}/new/results.db", "--merge", "{db}"),
    "--save-logits": ("db.py", "--db", "{db}", "--save-logits", "tiny", "{there}/dump"),
    "--export": ("db.py", "--db", "{db}", "--export", "{there}/table.csv"),
    "--logits": ("eval.py", *RUN, "--db", "{db}", "--overwrite", "--logits", "file://{there}/logits"),
    "table": ("testbed", "plot", "table", "--db", "{db}", "--out", "{there}/t.md"),
    "explorer": ("testbed", "explorer", "--db", "{db}", "--out", "{there}/e.html"),
    "figure": ("testbed", "plot", "grid", "--db", "{db}", "--out", "{there}/f.png"),
    "autoeval --out": (
        *("autoeval.py", "--db", "{db}", "--models", "tiny_a", "--source", "tiny", "--test", "tiny.noise"),
        *("--methods", "ac", "--out", "{there}/a.csv"),
    ),
    "heatmaps": ("testbed.explain.convert_heatmaps", "{db}.npy", "--out", "{there}/m.npz"),
}


def results_in(folder: Path) -> Path:
    """The database that the calls above read, with what else they do."""
    _, store = tiny.run(folder, ["tiny_a"], ["tiny", "tiny.noise"])
    store.engine.dispose()
    np.save(folder / "results.db.npy", {7: np.zeros((300, 300))}, allow_pickle=True)
    return folder / "results.db"


def call(what: str, db: Path, there: Path) -> CompletedProcess:
    """One of them, in this process."""
    script, *words = (word.format(there=there, db=db) for word in WRITERS[what])
    if script in tiny.MAINS:
        return tiny.call(script, *words)
    done = CliRunner().invoke(import_module(script).main, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
