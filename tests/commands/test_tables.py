"""Tables are aligned, and narrow terminals get a narrower one."""

import pytest

from testbed.commands.causes import Failure, cause_lines
from testbed.commands.families import families, shared_base, shared_beginning
from testbed.commands.results_table import results_table
from testbed.commands.tables import in_plain_words, labelled_lines, text_table_within, with_interval
from testbed.store.evaluation import Number

BLANK = Number._make([None] * len(Number._fields))


def rows(models=("tiny_alpha_model", "tiny_beta_model"), settings=("clean", "noise.5")):
    return [
        BLANK._replace(model=m, eval_setting=s, metric=k, value=50.0, ci_low=41.0, ci_high=58.0, n=100, unit="%")
        for m in models
        for s in settings
        for k in ("top1", "top5")
    ]


def test_wide_terminal_shows_intervals_in_a_grid():
    lines = results_table(rows(), 160).splitlines()
    assert lines[0].split() == ["top1", "(%)", "on", "tiny_alpha_model", "tiny_beta_model"]
    assert lines[3].split() == ["noise.5", "50.00", "[41.00,", "58.00]", "50.00", "[41.00,", "58.00]"]


def test_narrow_terminal_shows_the_longer_side_and_breaks_long_names():
    table = results_table(rows(), 40)
    lines = table.splitlines()
    assert max(map(len, lines)) <= 48
    assert [line.split() for line in lines[:3]] == [
        ["tiny_", "tiny_"],
        ["alpha_", "beta_"],
        ["top1", "(%)", "on", "model", "model"],
    ]
    assert lines[4].split() == ["clean", "50.0", "±9.0", "50.0", "±9.0"]
    assert table.endswith("± is the longer side of the 95 % interval.")


def test_one_model_lists_every_metric_and_so_does_full():
    assert len(results_table(rows(models=("one",)), 160).splitlines()) == 2 + 4
    assert len(results_table(rows(), 20, full=True).splitlines()) == 2 + 8


def test_a_terminal_too_narrow_for_all_settings_says_how_many_are_left_out():
    lines = results_table(rows(), 20).splitlines()
    assert [line.split() for line in lines[2:4]] == [["alpha_model", "50.0"], ["beta_model", "50.0"]]
    assert "Settings that have no room here: 1." in lines
    assert lines[-1].startswith("--full")


CORRUPTIONS = ("fog", "frost", "snow", "motion_blur", "jpeg_compression", "contrast", "gaussian_noise")
MANY = ("photos", *(f"photos.{c}.{severity}" for c in CORRUPTIONS for severity in range(1, 6)))


def falling(models=("net_a", "net_b")):
    """80 on clean images; 70, 60, 50, 40, 30 at the severities: mean 50, from 30 to 70."""
    levels = {s: 80.0 if s == "photos" else 80.0 - 10 * int(s[-1]) for s in MANY}
    return [
        BLANK._replace(model=m, eval_setting=s, metric="top1", value=v, ci_low=v - 4, ci_high=v + 4, n=100, unit="%")
        for m in models
        for s, v in levels.items()
    ]


def test_more_than_a_screen_shows_severities_as_their_mean_and_range():
    lines = results_table(falling(), 120).splitlines()
    assert len(lines) == 2 + 1 + len(CORRUPTIONS) + 3
    assert lines[3].split() == ["photos.fog.1-5", *["50.00", "(30.0", "to", "70.0)"] * 2]
    assert "--full shows every setting and metric with its interval." in lines


@pytest.mark.parametrize("models", [2, 7, 30, 400])
def test_table_of_a_big_run_fits_80_columns(models):
    names = [f"timm:resnet{i}_long_name.tag_in1k" for i in range(models)]
    table = results_table(falling(names), 80)
    assert max(map(len, table.splitlines())) <= 80
    assert len(table.splitlines()) < max(models, len(CORRUPTIONS)) + 15
    assert "50.0" in table


def test_mean_over_some_of_the_severities_is_not_shown_as_one():
    some = [r for r in falling() if r.eval_setting != "photos.fog.5" or r.model == "net_a"]
    line = next(line for line in results_table(some, 120).splitlines() if line.startswith("photos.fog"))
    assert line.split()[-3:] == ["4", "of", "5"]


def test_settings_with_other_metrics_have_a_table_of_their_own():
    other = [r._replace(metric="shape_bias", eval_setting=f"cue{r.eval_setting}") for r in falling()]
    told = results_table([*falling(), *other], 120)
    assert [line.split()[0] for line in told.splitlines() if " on" in line] == ["top1", "shape_bias"]


def test_families_are_severities_of_one_corruption_and_numbered_sets():
    names = ["d", "d.fog.1", "d.fog.2", "d.fog.3", "d.fog.1_on-disk", "d-meta-00", "d-meta-07", "d.rain.1", "d.rain.5"]
    assert list(families(names)) == ["d", "d.fog.1-3", "d.fog.1_on-disk", "d-meta-00 to 07", "d.rain.1,5"]


def test_names_lose_only_whole_words_that_all_of_them_share():
    assert shared_beginning(["digits_cnn", "digits_cnn_noise"]) == "digits_"
    assert shared_beginning(["resnet50", "resnet101"]) == ""
    assert shared_beginning(["timm:a", "timm:"]) == ""
    assert shared_base(["digits", "digits.fog.1-5", "digits.thin", "val"]) == "digits"


def test_failures_of_one_kind_are_told_once_with_their_number():
    missing = [Failure("net", f"set{i}", f"dataset 'set{i}' not found: expected x at d/{i}.") for i in range(9)]
    long = "RuntimeError: Error(s) in loading state_dict: Missing key(s): " + "layer.weight, " * 3000
    lines = cause_lines([*missing, Failure("a", "x", long), Failure("b", "x", long)])
    assert lines == [
        "9 pairs (net on set0, set1, set2 and 6 more): dataset 'set0' not found: expected x at d/0.",
        "  likewise 'set1', 'set2', 'set3' and 5 more",
        lines[2],
    ]
    assert lines[2].startswith("2 pairs (a, b on x): RuntimeError: Error(s) in loading")
    assert len(lines[2]) < 600
    assert "more characters" in lines[2]


def test_the_heading_tells_the_unit_that_the_metric_declares():
    nats = [row._replace(metric="nll", unit="nats") for row in rows() if row.metric == "top1"]
    assert results_table(nats, 160).startswith("nll (nats) on")
    plain = [row._replace(metric="accuracy_of_mine", unit=None) for row in rows() if row.metric == "top1"]
    assert results_table(plain, 160).startswith("accuracy_of_mine on")  # nothing is guessed from a name


def test_small_number_without_an_interval_keeps_three_digits():
    """CAUC and CDROP of a single heatmap have no interval, and 0.06 would be one digit of 0.0629."""
    shown = [with_interval(value, None, None) for value in (0.505013, 0.0629, 0.0236878, 1.0, 71.3, 0.0)]
    assert shown == ["0.505", "0.0629", "0.0237", "1.00", "71.30", "0.00"]
    assert with_interval(0.505, 0.4, 0.6) == "0.51 [0.40, 0.60]"


def test_columns_without_room_stand_below_with_the_first_ones_repeated():
    names, row = ["set", "true", *(f"method_{i}" for i in range(9))], ["fog", "70.1", *("55.5" for _ in range(9))]
    table = text_table_within(40, names, [row, row], kept=2)
    assert max(map(len, table.splitlines())) <= 40
    parts = table.split("\n\n")
    assert len(parts) > 1
    assert all(part.splitlines()[-1].split()[:2] == ["fog", "70.1"] for part in parts)
    shown = " ".join(part.replace("_\n", "_") for part in parts)
    assert table.count("55.5") == 18 and "method_" in shown
    assert text_table_within(160, names, [row], kept=2).count("fog") == 1


def test_a_terminal_narrower_than_one_column_gets_one_at_a_time():
    assert text_table_within(1, ["set", "a", "b"], [["fog", "1", "2"]]).count("fog") == 2


def test_facts_kept_as_json_are_told_in_plain_words():
    assert in_plain_words(["features", "rotation"]) == "features, rotation"
    assert in_plain_words({"a.pth": "ab12", "kept": [1, 2.5]}) == "a.pth ab12, kept 1, 2.50"
    assert [in_plain_words(v) for v in (True, False, 1, "text")] == ["yes", "no", "1", "text"]


def test_long_facts_go_on_below_and_lose_nothing():
    checksum = "0123456789abcdef" * 4
    text = labelled_lines(80, [("weights sha256", checksum), ("versions", "torch 2.5.1, " * 12), ("seed", "0")])
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert f"weights sha256  {checksum}" in lines
    assert text.count("torch 2.5.1") + text.count("torch\n") == 12
    assert lines[-1] == "seed                 0"
