"""Reading a large results database: 400 models x 400 settings x 5 metrics, 160,000 evaluations, 800,000 numbers.

    python benchmarks/store.py [--models 2000]

What a user waits for beyond the start of the program, against its budget: `--print-eval` of one pair, `--status`, the
table behind plotting/grid.py and the data of the explorer page. Each is measured three times in this process, and the
best is told: the first brings the imports, and the machine may be busy with other things.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

MODELS, SETTINGS = 400, 400  # which the budgets are for
METRICS = ("top1", "top5", "nll", "brier", "ece")
ROOT = Path(__file__).resolve().parents[1]
BUDGETS_S = {
    "--print-eval of one pair": 0.1,
    "--status": 1.0,
    "the table behind grid.py": 1.0,
    "the explorer's data": 5.0,
}
PROVENANCE = {  # as long as that of a real run
    "versions": dict.fromkeys(("testbed", "torch", "torchvision", "timm", "numpy", "pillow", "scipy"), "1.2.3"),
    "weights_files": {f"/weights/{'x' * 40}.safetensors": "0" * 64},
    "transform": "StandardTransform(img_resize_size=256, img_crop_size=224, interpolation='bilinear')",
    "normalization": "StandardNormalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))",
    "arrays_sha256": {"logits": "0" * 64},
    "bad_rows": [],
    "devices": ["cuda:0"],
    "logits_dtype": "float32",
}


def fill(path: Path | str, models: Sequence[str], settings: Sequence[str], **facts: Any) -> None:
    """The rows a run would have left, written in bulk; `facts` are values of every evaluation."""
    from testbed.store import schema
    from testbed.store.database import now
    from testbed.store.opening import open_store

    store, n_settings = open_store(str(path), create=True), len(settings)
    kinds = {name: dict(unit="%", better="higher", lowest=0.0, highest=100.0) for name in METRICS}
    with store.writing() as connection:
        named = dict(tags=["standard"], created_at=now())
        connection.execute(schema.models.insert(), [dict(named, id=i + 1, name=n) for i, n in enumerate(models)])
        named = dict(version=1, size=50_000, tags=[], created_at=now())
        connection.execute(
            schema.eval_settings.insert(), [dict(named, id=i + 1, name=n) for i, n in enumerate(settings)]
        )
        common = dict(complete=True, status="completed", n_images=50_000, created_at=now(), provenance=PROVENANCE)
        common |= facts
        for model in range(1, len(models) + 1):
            first = (model - 1) * n_settings
            ids = range(first + 1, first + n_settings + 1)
            rows = [dict(common, id=i, model_id=model, eval_setting_id=i - first) for i in ids]
            connection.execute(schema.evaluations.insert(), rows)
            numbers = [
                dict(kinds[name], evaluation_id=i, name=name, position=k, value=(i * 7 + k) % 100, n=50_000)
                for i in ids
                for k, name in enumerate(METRICS)
            ]
            for number in numbers:
                number |= dict(ci_low=max(number["value"] - 1, 0), ci_high=min(number["value"] + 1, 100))
            connection.execute(schema.metrics.insert(), numbers)
        connection.execute(sa.text("ANALYZE"))
    store.engine.dispose()


def best_of(times: int, function: Callable[[], object]) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def command(*arguments: str) -> Callable[[], object]:
    from click.testing import CliRunner

    from testbed.commands.database import main

    def call() -> object:
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == 0, result.output
        return result

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=MODELS)
    n_models = parser.parse_args().models
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        fill(path, [f"model-{i:03d}" for i in range(n_models)], [f"set.noise.{i:03d}" for i in range(SETTINGS)])
        sys.path.insert(0, str(ROOT / "plotting"))
        import explorer
        from _results import load

        from testbed.store.opening import open_store

        store = open_store(str(path))
        db = ("--db", str(path))
        measured = {
            "--print-eval of one pair": command(*db, "--print-eval", "model-123", "set.noise.321"),
            "--status": command(*db, "--status"),
            "the table behind grid.py": lambda: load(store, "top1"),
            "the explorer's data": lambda: explorer.embedded(explorer.page_data(store, load(store, "top1"))),
        }
        print(f"{n_models} models x {SETTINGS} settings x {len(METRICS)} metrics, {path.stat().st_size / 1e6:.0f} MB")
        for what, function in measured.items():
            seconds = best_of(3, function)
            verdict = "within" if seconds <= BUDGETS_S[what] else "OVER"
            print(f"{what:<28} {seconds:6.3f} s  {verdict} {BUDGETS_S[what]} s")


if __name__ == "__main__":
    main()
