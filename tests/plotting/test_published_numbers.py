"""The published numbers, through the database and the scripts (facts of Taori et al. 2020 and their table)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from shared_data import shared_data

from .conftest import SOURCE, looks_drawn

shared_data("testbed", "robustness_top1s.csv")

V2 = "imagenetv2-matched-frequency-format-val"
OBJECTNET = ("val-on-objectnet-classes", "objectnet-1.0-beta")


@pytest.fixture(scope="module")
def results(published_db):
    from _results import load

    from testbed.store.opening import open_store

    return load(open_store(published_db))


@pytest.fixture
def fit_of(published_db, draw, tmp_path):
    """The JSON that scatter.py --fit-json writes."""

    def run(x, y, *more):
        files = ("--out", tmp_path / "figure.png", "--fit-json", tmp_path / "fit.json")
        draw("scatter", "--db", published_db, "--x", x, "--y", y, *files, *more)
        assert looks_drawn(tmp_path / "figure.png")
        return json.loads((tmp_path / "fit.json").read_text())

    return run


def row_of(fit, model):
    (row,) = [r for r in fit["models"] if r["model"] == model]
    return row


def test_the_v2_line_and_its_intervals(fit_of):
    fit = fit_of("val", V2)
    assert fit["n"] == 85 == len(fit["through"])
    found = (fit["slope"], fit["intercept"], fit["r2"], fit["r"], fit["slope_stderr"])
    assert found == pytest.approx((0.923229, -0.497690, 0.996046, 0.998021, 0.006385), abs=5e-7)
    assert fit["bootstrap"]["slope"] == pytest.approx([0.910224, 0.936147], abs=5e-7)
    assert fit["bootstrap"]["intercept"] == pytest.approx([-0.513618, -0.481195], abs=5e-7)


def test_effective_robustness_of_resnet50_and_clip(fit_of):
    fit = fit_of("val", V2, "--min-x", 55)
    rows = [row_of(fit, model) for model in ("resnet50", "vit_b_32_clip_zeroshot")]
    assert [r["effective_robustness"] for r in rows] == pytest.approx([-0.7376, 5.6288], abs=5e-5)
    low, high = rows[1]["effective_robustness_interval"]
    assert 4 < low < 5.6288 < high < 7


def test_published_error_bars(fit_of):
    fit = fit_of("val", V2, "--min-x", 55, "--confidence", 0.995)
    row = row_of(fit, "resnet50")
    assert row["x_interval"] == pytest.approx([75.590958, 76.663198], abs=5e-7)
    assert row["y_interval"] == pytest.approx([61.844228, 64.560938], abs=5e-7)


def test_the_objectnet_line(fit_of):
    fit = fit_of(*OBJECTNET, "--min-x", 55)
    assert fit["n"] == 85
    assert (fit["slope"], fit["intercept"], fit["r2"]) == pytest.approx((0.980910, -1.928289, 0.952511), abs=5e-7)


def test_imagenet_a_is_fitted_in_two_pieces(fit_of):
    fit = fit_of("val-on-imagenet-a-classes", "imagenet-a", "--min-x", 75)
    assert fit["kind"] == "two-piece"
    assert fit["pivot"] == pytest.approx(91.86, abs=1e-5)
    assert fit_of("val", "imagenet-a", "--min-x", 55)["pivot"] == pytest.approx(76.13, abs=1e-5)


def test_the_band(results):
    from _lines import Choice, fit_line

    line = fit_line(results, results.column("val"), results.column(V2), Choice())
    low, high = line.draws.band([60, 70, 80])
    assert low == pytest.approx([46.6399, 56.9079, 68.5210], abs=5e-5)
    assert high == pytest.approx([47.2117, 57.2252, 68.7068], abs=5e-5)


@pytest.mark.parametrize(
    ("model", "column", "value"),
    [
        ("resnet50", "val", 76.1300048828125),
        ("resnet50", "imagenetv2-matched-frequency", 63.32999801635742),
        ("resnet50", V2, 63.209999084472656),
        ("resnet50", "objectnet-1.0-beta", 35.75132332289079),
        ("resnet50", "imagenet-sketch", 24.091652),
        ("resnet50", "imagenet-a", 0.0),
        ("resnet50", "imagenet-r", 36.1733),
        ("resnet50", "imagenet-vid-robust_pm0", 67.538323),
        ("resnet50", "ytbb-robust_pm10", 43.8424),
        ("resnet50", "avg_corruptions", 41.5878),
        ("resnet50", "avg_pgd", 21.0230),
        ("resnet50", "avg_imagenet_c_in_memory", 43.5998),
        ("resnet50", "avg_imagenet_c_on_disk", 39.5746),
        ("alexnet", "val", 56.522),
        ("alexnet", V2, 43.43),
        ("alexnet", "avg_corruptions", 21.5515),
        ("alexnet", "avg_pgd", 24.0845),
        ("vit_b_32_clip_zeroshot", "objectnet-1.0-beta", 43.9613),
    ],
)
def test_accuracies_and_averages(results, model, column, value):
    (row,) = results.matching([model]).nonzero()[0]
    assert results.column(column).value[row] == pytest.approx(value, abs=5e-5)


def test_an_average_is_missing_where_one_of_its_settings_is(results):
    """183 models have all four PGD settings, 200 all of ImageNet-C."""
    assert np.isfinite(results.column("avg_pgd").value).sum() == 183
    assert np.isfinite(results.column("avg_imagenet_c_on_disk").value).sum() == 200


def test_resnet50_has_the_corruption_error_of_the_imagenet_c_paper(results):
    """76.7 relative to AlexNet (Hendrycks and Dietterich 2019, table 1).

    The testbed resizes the images once more, so that AlexNet itself comes out at 102; the ratio stays.
    """
    from corruptions import chosen_family, mean_corruption_error, reference_errors

    from testbed.entries.registry import load_registry

    base, family = chosen_family(results, ("imagenet-c.*_on-disk",))
    errors, words = reference_errors(results, load_registry(), family, None)
    assert (base, len(errors), words) == ("imagenet-c_on-disk", 15, "relative to AlexNet")
    value, low, high = mean_corruption_error(results, family, errors)
    resnet50, alexnet = (results.matching([name]).nonzero()[0][0] for name in ("resnet50", "alexnet"))
    assert 100 * value[resnet50] / value[alexnet] == pytest.approx(76.7, abs=0.5)
    assert low[resnet50] < value[resnet50] < high[resnet50]


def test_robustness_to_pgd_tells_nothing_about_v2(results):
    """The published finding: effective robustness to attacks and to ImageNetV2 are nearly uncorrelated."""
    from _lines import Choice
    from effective_robustness import rho_column

    from testbed.stats.effective_robustness import robustness_correlation

    choice = Choice(min_x=55)
    x, y = (rho_column(results, name, None, choice) for name in ("avg_pgd", V2))
    others = np.array([p.type != "standard" for p in results.points])
    found = robustness_correlation(x.value[others], y.value[others])
    assert found.n > 90
    assert found.low < 0 < found.high


def test_a_table_has_effective_robustness_beside_accuracy(published_db, draw):
    arguments = ("--eval-settings", "val", V2, "--rho", "--models", "resnet50", "--no-intervals", "--digits", 4)
    printed = draw("table", "--db", published_db, *arguments).output
    assert printed.splitlines()[2] == "| resnet50 | standard | 76.1300 | 63.2100 | -0.7376 |"


@pytest.mark.parametrize("name", ["imagenet-a", "transfer-pgd"])
def test_a_figure_of_the_paper_is_drawn(published_db, draw, tmp_path, name):
    draw("paper", "--db", published_db, "--source", SOURCE, "--figures", name, "--out", tmp_path)
    assert looks_drawn(tmp_path / f"{name}.png")
    assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_the_grid_of_all_models_is_drawn(published_db, draw, tmp_path):
    draw("grid", "--db", published_db, "--out", tmp_path / "grid.png")
    assert looks_drawn(tmp_path / "grid.png")
