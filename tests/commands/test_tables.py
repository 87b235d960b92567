"""Tables are aligned, and narrow terminals get a narrower one."""

from testbed.commands.tables import results_table, with_interval
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


def test_very_narrow_terminal_or_one_model_lists_every_metric():
    assert len(results_table(rows(), 20).splitlines()) == 2 + 8
    assert len(results_table(rows(models=("one",)), 160).splitlines()) == 2 + 4


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
