"""What figures say of themselves: images, levels, what was left out; and what there is where they find nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import stored_results
from testbed.metrics.estimate import share
from testbed.store.opening import open_store

from .conftest import SHIFTS, add_share, notes_of


def test_a_metric_that_a_setting_lacks_is_answered_with_all_that_it_has(store, draw, tmp_path):
    for setting, metrics in (("toy", ("top1", "top5", "nll")), ("other", ("shape_bias",))):
        stored_results.add(store, "a", setting, metrics={name: share(50, 100) for name in metrics})
    told = draw("grid", "--metric", "shape_bias", "--eval-settings", "toy", "--db", tmp_path / "results.db", fails=True)
    assert "no results with metric 'shape_bias' on toy; there are: nll, top1, top5" in told.output


def test_published_results_without_logits_are_named_where_logits_are_needed(published_db, draw):
    told = draw("calibration", "--models", "resnet50", "--db", published_db, fails=True).output
    assert "stored: published by imagenet-testbed (numbers without logits)" in told


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("scatter", ["--x", "toy", "--y", "toy.*"]),
        ("effective_robustness", ["--x", "toy.blur.*", "--y", "toy.noise.*", "--standard"]),
        ("grid", []),
        ("corruptions", []),
        ("compare", ["above", "line_a"]),
    ],
)
def test_figures_say_how_many_images_are_behind_them(small_db, draw, tmp_path, monkeypatch, script, arguments):
    said = notes_of(monkeypatch)
    draw(script, *arguments, "--db", small_db, "--out", tmp_path / "f.png")
    assert "200 " in " ".join(said) and "images" in " ".join(said)


def test_one_of_several_figures_keeps_the_ending(small_db, draw, tmp_path):
    draw("corruptions", "--db", small_db, "--out", tmp_path / "f.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f-curves.png", "f-mce.png"]


def test_reliability_of_too_many_pairs_asks_for_a_choice(small_db, draw):
    """7 models x 5 settings."""
    told = draw("calibration", "--db", small_db, fails=True).output
    assert "35 pairs have stored logits, a figure shows up to 20: choose with --models (above, line_a" in told
    assert "--eval-settings (toy, toy.blur.1, toy.blur.2, toy.noise.1, toy.noise.2)" in told


def test_the_published_lower_end_is_the_default_and_hides_no_own_model(published_db, draw, tmp_path):
    from _lines import Choice, with_lower_end
    from _results import load

    results = load(open_store(published_db))
    pair = ("val", "imagenetv2-matched-frequency-format-val")
    x = results.column(pair[0])
    assert with_lower_end(Choice(), results, pair, x, ()).min_x == 55  # as in the paper and on the explorer page
    assert with_lower_end(Choice(min_x=0), results, pair, x, ()).min_x == 0
    assert with_lower_end(Choice(), results, ("val", "imagenet-c.fog.1_on-disk"), x, ()).min_x is None
    low = int(np.nanargmin(x.value))
    named = with_lower_end(Choice(), results, pair, x, (results.points[low].label,))
    assert named.min_x == pytest.approx(x.value[low])


def test_no_correlation_is_told_of_few_models_and_the_outermost_of_many_are_named():
    from _lines import Choice
    from _results import Column
    from effective_robustness import notes, outer_rows

    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 40)
    inner, outer = rng.normal(0, 0.1, (2, 40)), 5 * np.array([[1, -1, 0, 0], [0, 0, 1, -1]])
    value = np.concatenate([inner + 0.1 * np.cos(angle), outer], axis=1)
    x, y = (Column("shift", ("shift",), v, v, v, np.full(44, 100)) for v in value)
    rows = np.ones(44, dtype=bool)
    assert {40, 41, 42, 43} <= set(outer_rows(x, y, rows).tolist())
    assert "Pearson's r" in notes(x, y, rows, Choice())[1]
    few = np.arange(44) < 3
    assert "3 models, 100 (x) and 100 (y) images each; no correlation of fewer than 10" in notes(x, y, few, Choice())[1]


def test_levels_of_bars_and_bands_are_said(small_db, draw, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    legends: list[str] = []
    legend = Figure.legend
    monkeypatch.setattr(
        Figure,
        "legend",
        lambda self, handles, **how: (
            legends.extend(h.get_label() for h in handles) or legend(self, handles=handles, **how)
        ),
    )
    said = notes_of(monkeypatch)
    draw("scatter", "--x", "toy", "--y", "toy.*", "--db", small_db, "--out", tmp_path / "f.png", "--confidence", "0.9")
    assert "bars: 90 % intervals" in " ".join(said)
    assert "(90 % interval)" in " ".join(said)  # of the slope
    assert "90 % band of the fit" in legends


def test_names_of_settings_take_less_than_a_third_of_a_grid(small_db, tmp_path):
    from _results import load
    from grid import broken, chosen_columns, grid, ordered_rows

    assert broken("imagenet-c.gaussian_noise_on-disk", 2) == "imagenet-c.gaussian_\nnoise_on-disk"
    assert broken("val", 3) == "val"
    assert broken("<img src=x>", 2) == "<img src=x>"
    results = load(open_store(small_db))
    long = {name: f"a_very_long_name_of_an_image_set_that_goes_on.{name}" for name in results.settings}
    columns = [replace(c, label=long[c.label]) for c in chosen_columns(results, ())]
    figure = grid(results, columns, ordered_rows(results, columns, None))
    figure.canvas.draw()
    heights = [label.get_window_extent().height for label in figure.axes[0].get_xticklabels()]
    assert max(heights) < figure.bbox.height / 3


def test_severity_curves_of_many_models_leave_none_out(store, tmp_path):
    """Ten models of two types, one of a single model, beside a model that was never run on these settings."""
    from _results import load
    from corruptions import MEAN, chosen_family, curves

    for setting in ("toy", *SHIFTS):
        for i in range(9):
            add_share(store, f"m{i}", setting, 50 + i)
        add_share(store, "lonely", setting, 90, tags=["robust"])
    add_share(store, "elsewhere", "val", 10)
    results = load(store)
    base, family = chosen_family(results, ())
    figure = curves(results, base, family, "toy", np.zeros(len(results.points), dtype=bool))
    assert [ax.get_title() for ax in figure.axes] == [MEAN, "blur", "noise"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["Standard training (9)", "Trained for robustness (1)"]
    mean = figure.axes[0].lines[0].get_ydata()
    assert mean == pytest.approx([54, 54, 54])  # of 50 to 58
    assert "10 models, 100 images each" in " ".join(text.get_text() for text in figure.texts)
