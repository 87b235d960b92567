"""Figures of estimates without labels: what is drawn is what is stored."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from stored_results import copy_results
from testbed.commands import autoeval
from testbed.errors import TestbedError
from testbed.store.estimates import estimates
from testbed.store.find import numbers
from testbed.store.opening import open_store
from testbed.studies.labelfree.agreement import aline_s

WORDS = ["--source", "toy", "--fit", "toy.blur.*", "--test", "toy.noise.*"]


@pytest.fixture(scope="module")
def estimated(small_db, tmp_path_factory):
    """The small database with estimates of one model."""
    folder = tmp_path_factory.mktemp("estimated")
    copy_results(Path(small_db).parent, folder)
    path = str(folder / "results.db")
    done = CliRunner().invoke(
        autoeval.main, ["--models", "line_a", *WORDS, "--methods", "doc", "entropy", "--db", path]
    )
    assert done.exit_code == 0, done.output
    return path


def copied(path, folder):
    copy_results(Path(path).parent, folder)
    return str(folder / "results.db")


def autoeval_in(path, *words):
    done = CliRunner().invoke(autoeval.main, ["--models", "line_a", *words, "--db", path])
    assert done.exit_code == 0, done.output


@pytest.fixture
def module():
    return importlib.import_module("label_free")  # the folder is on the path: conftest


def test_points_lie_at_true_and_estimated_accuracy(module, estimated):
    store = open_store(estimated)
    rows = module.chosen_rows(store, models=("line_a",))
    assert {(r["eval_setting"], r["method"]) for r in rows} == {
        (f"toy.noise.{i}", method) for i in (1, 2) for method in ("doc", "entropy", "no-change", "mean-of-fit")
    }
    figure = module.panels(rows, None)
    titles = [ax.get_title().split()[0] for ax in figure.axes]
    assert titles == ["entropy", "doc", "no-change", "mean-of-fit"]
    stored = {(e["eval_setting"], e["method"]): e for e in estimates(store)}
    drawn = figure.axes[1].collections[0].get_offsets()
    expected = [
        (stored[f"toy.noise.{i}", "doc"]["accuracy"], stored[f"toy.noise.{i}", "doc"]["estimate"]) for i in (1, 2)
    ]
    low = figure.axes[1].get_ylim()[0]
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(np.clip(expected, low, 100), axis=0))


def test_fit_sets_are_chosen_by_the_very_words(module, estimated, tmp_path):
    """toy.blur.* must not also mean toy.blur.1 toy.blur.2, nor what begins alike."""
    path = copied(estimated, tmp_path)
    long = [f"toy.blur.{i}" for i in (1, 2)] * 12
    for fit in (["toy.blur.1", "toy.blur.2"], long, [*long, "toy.blur.1"]):
        autoeval_in(path, "--source", "toy", "--fit", *fit, "--test", "toy.noise.*", "--methods", "entropy")
    store = open_store(path)
    assert len({r["fit"] for r in estimates(store) if r["fit"]}) == 4
    for words in (("toy.blur.*",), ("toy.blur.1", "toy.blur.2"), tuple(long), (*long, "toy.blur.1")):
        rows = module.chosen_rows(store, models=("line_a",), fit=words)
        assert len({r["fit"] for r in rows if r["fit"]}) == 1
        assert {r["fit"] for r in rows if r["fit"]} < {r["fit"] for r in estimates(store)}
    with pytest.raises(TestbedError, match="no such estimates"):
        module.chosen_rows(store, models=("line_a",), methods=("entropy",), fit=("toy.blur",))
    told = module.chosen_rows(store, models=("line_a",), methods=("entropy",), fit=("toy.blur.* (2 sets)",))
    assert {r["fit"] for r in told if r["method"] != "no-change"} == {"toy.blur.* (2 sets)"}


def test_estimates_that_assume_different_things_are_not_drawn_together(module, estimated, tmp_path):
    path = copied(estimated, tmp_path)
    for prior in ("source", "uniform"):
        words = ("--source", "toy", "--test", "toy.noise.*", "--methods", "cot", "--class-prior", prior)
        autoeval_in(path, *words)
    store = open_store(path)
    with pytest.raises(TestbedError, match="several estimates by cot, choose with --assumes: source, uniform"):
        module.chosen_rows(store)
    rows = module.chosen_rows(store, assumes=("uniform",))
    drawn = {(r["method"], r["assumes"]) for r in rows if r["method"] not in module.BASELINES}
    assert drawn == {("cot", "uniform"), ("doc", ""), ("entropy", "")}


def test_bars_are_the_errors(module, estimated):
    rows = module.chosen_rows(open_store(estimated), methods=("doc",))
    figure = module.bars(rows, None)
    off = {m: np.array([r["estimate"] - r["accuracy"] for r in rows if r["method"] == m]) for m in ("doc", "no-change")}
    expected = sorted((np.sqrt((o**2).mean()) for o in off.values()), reverse=True)
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx(expected)


def test_a_method_that_is_worse_than_assuming_no_change_is_seen_as_such(module, estimated):
    """The accuracy of the source, of 200 images, is what no-change says of every set."""
    store = open_store(estimated)
    rows = module.chosen_rows(store)
    (clean,) = [n.value for n in numbers(store, ["line_a"], ["toy"], "top1")]
    assert [r["estimate"] for r in rows if r["method"] == "no-change"] == pytest.approx([clean, clean])
    figure = module.bars(rows, None)
    off = {m: module._errors_of(rows, m).rmse for m in ("doc", "entropy", "no-change")}
    (line,) = figure.axes[0].lines
    assert line.get_xdata()[0] == pytest.approx(off["no-change"])
    worse = sum(off[m] > off["no-change"] for m in ("doc", "entropy"))
    said = " ".join(text.get_text() for text in figure.texts)
    assert f"{worse} of 2 methods have a larger RMSE than no-change" in said
    assert "2 sets of 200 images" in said
    panels = module.panels(rows, None)
    red = [ax.get_title().split()[0] for ax in panels.axes if ax.title.get_color() == module.LINE_COLOR]
    assert len(red) == worse
    assert module.worse_than_no_change({"a": 3.0, "b": 1.0, "no-change": 2.0, "mean-of-fit": 9.0}) == ["a"]


def test_estimates_that_are_not_there_are_answered_with_those_that_are(module, estimated):
    store = open_store(estimated)
    with pytest.raises(TestbedError, match=r"there are: --methods doc, entropy; --source toy; --fit toy.blur.\*"):
        module.chosen_rows(store, methods=("fid",))
    with pytest.raises(TestbedError, match=r"no estimates of limit=40 in .* there are: whole settings"):
        module.chosen_rows(store, variant="limit=40")
    with pytest.raises(TestbedError, match="no such estimates; there are some of line_a"):
        module.chosen_rows(store, models=("line_b",))


def test_the_agreement_line_is_the_one_of_the_predictions(module, small_db):
    from testbed.entries.registry import Registry
    from testbed.studies.labelfree.sets import StoredModel, predictions_of

    store = open_store(small_db)
    figure = module.agreement_figure(store, (), ("line_*",), "toy", "toy.noise.1", None, None)
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
