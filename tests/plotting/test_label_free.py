"""Figures of estimates without labels: what is drawn is what is stored."""

import importlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from testbed.commands import autoeval
from testbed.labelfree.agreement import aline_s
from testbed.store.estimates import estimates
from testbed.store.opening import open_store

WORDS = ["--source", "toy", "--fit", "toy.blur.*", "--test", "toy.noise.*"]


@pytest.fixture(scope="module")
def estimated(small_db, tmp_path_factory):
    """The small database with estimates of one model."""
    folder = tmp_path_factory.mktemp("estimated")
    shutil.copytree(Path(small_db).parent, folder, dirs_exist_ok=True)
    path = str(folder / "results.db")
    done = CliRunner().invoke(
        autoeval.main, ["--models", "line_a", *WORDS, "--methods", "doc", "entropy", "--db", path]
    )
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture
def module():
    return importlib.import_module("label_free")  # the folder is on the path: conftest


def test_points_lie_at_true_and_estimated_accuracy(module, estimated):
    store = open_store(estimated)
    rows = module.chosen_rows(store, ("line_a",), "", (), (), None, None)
    assert {(r["eval_setting"], r["method"]) for r in rows} == {
        (f"toy.noise.{i}", method) for i in (1, 2) for method in ("doc", "entropy")
    }
    figure = module.panels(rows, None)
    titles = [ax.get_title().split()[0] for ax in figure.axes]
    assert titles == ["entropy", "doc"]
    stored = {(e["eval_setting"], e["method"]): e for e in estimates(store)}
    drawn = figure.axes[1].collections[0].get_offsets()
    expected = [
        (stored[f"toy.noise.{i}", "doc"]["accuracy"], stored[f"toy.noise.{i}", "doc"]["estimate"]) for i in (1, 2)
    ]
    low = figure.axes[1].get_ylim()[0]
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(np.clip(expected, low, 100), axis=0))


def test_bars_are_the_errors(module, estimated):
    rows = module.chosen_rows(open_store(estimated), (), "", ("doc",), (), None, None)
    figure = module.bars(rows, None)
    off = np.array([r["estimate"] - r["accuracy"] for r in rows])
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([np.sqrt((off**2).mean())])


def test_the_agreement_line_is_the_one_of_the_predictions(module, small_db):
    from testbed.labelfree.sets import StoredModel, predictions_of
    from testbed.registry import Registry

    store = open_store(small_db)
    figure = module.agreement_figure(store, (), ("line_*",), "toy", "toy.noise.1", "", None)
    models = [StoredModel(store, Registry(), f"line_{letter}") for letter in "abcde"]
    source, labels = predictions_of(models, [m.one("toy") for m in models])
    target, _ = predictions_of(models, [m.one("toy.noise.1") for m in models])
    line = aline_s(source, target, (source == labels).mean(axis=1)).line
    drawn = next(item for item in figure.axes[0].lines if item.get_label() == "line of agreement")
    (x0, x1), (y0, y1) = drawn.get_data()
    assert (y1 - y0) / (x1 - x0) == pytest.approx(line.slope)
    assert len(figure.axes[0].collections[0].get_offsets()) == 10  # pairs of five models


def test_files_are_written_and_what_is_missing_is_told(module, estimated, small_db, tmp_path):
    out = tmp_path / "figure"
    done = CliRunner().invoke(module.main, ["--db", estimated, "--out", str(out)])
    assert done.exit_code == 0, done.output
    for name in ("figure-estimates.png", "figure-rmse.png"):
        assert np.asarray(Image.open(tmp_path / name)).std() > 5
    done = CliRunner().invoke(module.main, ["--db", small_db, "--out", str(out)])
    assert done.exit_code == 1 and "`python autoeval.py` makes them" in done.output
