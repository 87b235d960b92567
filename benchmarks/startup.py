"""How long the commands that compute nothing take, beyond a bare Python start. Target: at most 0.5 s."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "eval.py --help": ("eval.py", "--help"),
    "db.py --help": ("db.py", "--help"),
    "db.py --list-models-registry": ("db.py", "--list-models-registry"),
    "db.py --list-eval-settings-registry": ("db.py", "--list-eval-settings-registry"),
    "db.py --list-models-db": ("db.py", "--add-model", "digits_cnn", "--list-models-db", "--db", "DB"),
}


def seconds(*words: str, times: int = 7) -> float:
    """The median of several runs."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main() -> None:
    bare = seconds("-c", "pass")
    print(f"{'bare Python':<40} {bare:6.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for label, (script, *words) in COMMANDS.items():
            words = [str(Path(folder) / "results.db") if w == "DB" else w for w in words]
            taken = seconds(str(ROOT / script), *words)
            print(f"{label:<40} {taken:6.2f} s, {taken - bare:.2f} s beyond bare Python")


if __name__ == "__main__":
    main()
