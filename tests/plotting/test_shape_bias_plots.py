"""Shape bias and error consistency as figures: what they show is what is stored."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from shared_data import shared_data
from testbed.entries.registry import Registry, default_folder
from testbed.errors import StoreError, UnknownName
from testbed.metrics.categories16 import NAMES
from testbed.store.opening import open_store
from testbed.studies.people import observers

PLOTTING = Path(__file__).parents[2] / "plotting"


@pytest.fixture
def module(monkeypatch):
    """A figure script as a module."""
    monkeypatch.syspath_prepend(str(PLOTTING))
    return importlib.import_module


@pytest.fixture(scope="module")
def registry():
    found = Registry()
    found.load_file(default_folder() / "eval_settings" / "model_vs_human.py")
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory, registry):
    """Three people and two networks by their published decisions."""
    decisions = shared_data("cue-conflict-decisions")
    store = open_store(str(tmp_path_factory.mktemp("filled") / "results.db"), create=True)
    observers.import_decisions(store, registry, decisions, "cue-conflict")
    yield store
    store.engine.dispose()


def test_people_are_pooled_and_models_stand_in_the_order_of_their_bias(module, filled):
    drawn = module("shape_bias").load(filled, "cue-conflict")
    assert [o.label for o in drawn] == ["3 people", "resnet50@decisions", "alexnet@decisions"]
    shape, texture = 829 + 907 + 1006, 33 + 54 + 34  # the published counts of the three
    assert drawn[0].pooled == pytest.approx(100 * shape / (shape + texture))
    assert drawn[1].pooled == pytest.approx(100 * 162 / 734)
    # boxes: mean over persons of each category; the published box plot does so, its line does not
    assert drawn[0].boxes == pytest.approx(drawn[0].bias, abs=3)
    assert not np.allclose(drawn[0].boxes, drawn[0].bias)


def test_figure_has_a_marker_per_category_and_a_line_per_observer(module, filled):
    figure = module("shape_bias").matrix(module("shape_bias").load(filled, "cue-conflict"))
    (ax,) = figure.axes
    assert [len(c.get_offsets()) for c in ax.collections if len(c.get_offsets()) > 1] == [17, 17, 17]
    assert {t.get_text() for t in ax.get_yticklabels()} == {"all categories", *NAMES}
    lines = sorted(round(line.get_xdata()[0], 2) for line in ax.lines)
    assert lines == [22.07, 25.31, 50, 95.77]


def test_shape_bias_has_the_exact_interval_of_its_decisions(module, filled):
    """Clopper-Pearson from scipy, for ResNet-50's published 162 decisions for shape of 734."""
    from scipy.stats import binomtest

    drawn = module("shape_bias").load(filled, "cue-conflict")[1]
    expected = binomtest(162, 734).proportion_ci(0.95, "exact")
    assert drawn.intervals(np.arange(16))[:, 0] == pytest.approx([100 * expected.low, 100 * expected.high])
    figure = module("shape_bias").matrix([drawn])
    label = figure.legends[0].get_texts()[0].get_text()
    assert f"[{100 * expected.low:.1f}, {100 * expected.high:.1f}]" in label
    assert "734 decisions" in " ".join(text.get_text() for text in figure.texts)


def test_lines_that_coincide_have_their_dashes_in_each_others_gaps(module):
    dash = module("shape_bias")._DASH
    alone, *three = module("shape_bias").apart([50.0, 23.2, 23.3, 23.1])
    assert alone == "-"
    for period in range(0, 3 * dash, dash):  # each stretch of a period has the dash of exactly one line
        assert sum((period + offset) % (3 * dash) < on for offset, (on, _) in three) == 1


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("shape_bias", ["--kind", "matrix", "--models", "resnet50@*"]),
        ("shape_bias", ["--kind", "box"]),
        ("error_consistency", ["--kind", "heat"]),
        ("error_consistency", ["--kind", "lines", "--models", "resnet50@*"]),
    ],
)
def test_scripts_write_pictures(module, filled, tmp_path, script, options):
    out = tmp_path / "figure.png"
    words = ["--db", str(filled.folder / "results.db"), "--out", str(out), *options]
    done = CliRunner().invoke(module(script).main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert min(Image.open(out).size) > 400


def test_heat_map_is_symmetric_with_people_first(module, filled, registry):
    names, kappa = module("error_consistency").pairwise([observers.panel(filled, registry, "cue-conflict")])
    assert names[:3] == ["subject-01", "subject-02", "subject-03"]
    assert np.array_equal(kappa, kappa.T)
    assert (np.diag(kappa) == 1).all()
    assert kappa[:3, 3:].max() < 0.15 < kappa[0, 1]


def test_lines_of_one_set_without_conditions_stand_at_the_set(module, filled, registry):
    drawn = module("error_consistency").lines([observers.panel(filled, registry, "cue-conflict")], resamples=50)
    assert [line.label for line in drawn] == ["people among themselves", "alexnet@decisions", "resnet50@decisions"]
    assert drawn[0].places == ["cue-conflict"]
    assert drawn[0].low < drawn[0].value < drawn[0].high


def test_missing_results_and_unknown_models_are_answered(module, filled):
    with pytest.raises(UnknownName, match="no results of model 'resnet5'"):
        module("shape_bias").load(filled, "cue-conflict", ["resnet5"])
    with pytest.raises(StoreError, match="no shape bias on 'edge'"):
        module("shape_bias").load(filled, "edge")
