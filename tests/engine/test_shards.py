"""Sharing a run out: who has what, that all machines agree about it, and that it is even."""

from __future__ import annotations

import random

import pytest

import tiny
from testbed.engine import bundles as bundles_module
from testbed.engine.bundles import bundles_of
from testbed.engine.plan import make_plan
from testbed.engine.shards import Shard, cells_of, plan_of_shard, shards_of, share_out
from testbed.entries.registry import Registry
from testbed.errors import EntryError
from testbed.options import RunOptions

MODELS = ["tiny_a", "tiny_b", "tiny_wide", "tiny_slow"]
SETTINGS = ["tiny", "tiny-even", "tiny-some-even", "tiny.noise", "tiny.noise-some", "tiny.motion_blur"]


@pytest.fixture
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


@pytest.fixture
def owners(registry, store):
    """The shards of every pair (model, setting) of a plan."""

    def of(models, settings, count, **options):
        plan = make_plan(registry, store, models, settings, RunOptions(**options))
        shards = shards_of(plan, registry, options.get("limit"), count)
        return {(p.stored_model, p.setting.name): set(s) for p, s in zip(plan.pairs, shards, strict=True)}

    return of


# ---- even ----------------------------------------------------------------------------------------------------


def grid(n_models, n_settings, images=lambda s: 50_000, kind=lambda s: "plain", preparations=3):
    """Models on settings as `cells_of` gives them."""
    return {
        (f"m{m}", f"s{s:03d}"): (kind(s), images(s), f"p{m % preparations}")
        for m in range(n_models)
        for s in range(n_settings)
    }


def unevenness(cells, count, cost):
    """The largest share beside the mean."""
    loads = [0.0] * count
    for cell, shard in share_out(cells, count).items():
        loads[shard - 1] += cost(cell)
    return max(loads) / (sum(loads) / count)


@pytest.mark.parametrize("count", [2, 8, 64])
def test_declared_costs_are_shared_out_to_a_thousandth(count):
    cells = grid(200, 100, images=lambda s: (50_000, 10_000, 7_500, 200)[s % 4])
    assert unevenness(cells, count, lambda cell: cells[cell][1]) < 1.01


@pytest.mark.parametrize(("n_models", "n_settings", "count"), [(1, 7, 3), (3, 2, 4), (5, 1, 2), (1, 1, 1), (2, 2, 8)])
def test_few_pairs_are_shared_out_as_evenly_as_whole_pairs_can_be(n_models, n_settings, count):
    cells = grid(n_models, n_settings)
    best = -(-len(cells) // count) / (len(cells) / count)
    assert unevenness(cells, count, lambda cell: 1) == pytest.approx(best)


@pytest.mark.parametrize("count", [4, 16])
def test_shares_are_even_though_no_speed_of_a_model_is_known(count):
    """Speeds a hundredfold apart, as of timm's models: with many settings every shard has all of them."""
    speeds = random.Random(0)
    seconds = {f"m{m}": speeds.lognormvariate(0, 1.2) for m in range(300)}
    cells = grid(300, 96, images=lambda s: (50_000, 10_000)[s % 2])
    assert unevenness(cells, count, lambda cell: cells[cell][1] * seconds[cell[0]]) < 1.05
    by_number = {m: int(m[1:]) * count // 300 for m in seconds}  # the same number of models for each
    loads = [sum(s for m, s in seconds.items() if by_number[m] == i) for i in range(count)]
    assert max(loads) / (sum(loads) / count) > 1.1


def test_attacks_are_shared_out_by_themselves():
    """Nobody declares how many passes one takes."""
    cells = grid(20, 12, kind=lambda s: "attack" if s % 4 == 0 else "plain")
    for times in (1, 40, 1000):
        assert unevenness(cells, 6, lambda cell, n=times: n if cells[cell][0] == "attack" else 1) < 1.1


def test_pictures_of_most_settings_are_decoded_by_one_shard():
    cells = grid(50, 90)
    where = {}
    for (_, setting), shard in share_out(cells, 8).items():
        where.setdefault(setting, set()).add(shard)
    assert sum(len(shards) == 1 for shards in where.values()) >= 90 - 7
    assert max(map(len, where.values())) == 2


def test_a_setting_that_is_cut_is_cut_between_preparations_where_that_is_even():
    cells = grid(40, 1, preparations=2)
    shards = share_out(cells, 2)
    assert {shards[cell] for cell in cells if cells[cell][2] == "p0"} == {1}
    assert {shards[cell] for cell in cells if cells[cell][2] == "p1"} == {2}


def test_larger_pictures_cost_more_and_limits_bound_all_settings(registry):
    models = [registry.model("tiny_pictures"), registry.model("tiny_a")]
    cells = cells_of(registry, models, ["tiny", "tiny-even", "tiny-missing"])
    assert cells["tiny_pictures", "tiny"][1] == 200 * 8 * 8
    assert cells["tiny_a", "tiny"][1] == cells["tiny_a", "tiny-missing"][1] == 200 * 224 * 224
    assert ("tiny_a", "tiny-even") not in cells
    assert cells_of(registry, models, ["tiny"], limit=20)["tiny_pictures", "tiny"][1] == 20 * 8 * 8
    assert cells_of(registry, models, ["tiny-some"])["tiny_pictures", "tiny"][1] == 4 * 8 * 8


# ---- agreed --------------------------------------------------------------------------------------------------


def test_shards_agree_whatever_is_done_and_in_whatever_order_the_names_come(owners, store):
    before = owners(MODELS, SETTINGS, 3)
    report, other = tiny.run(store.folder, ["tiny_a", "tiny_b"], ["tiny", "tiny.noise-some"])
    assert not report.failed
    other.engine.dispose()
    assert owners(MODELS[::-1], SETTINGS[::-1], 3) == before
    assert set().union(*before.values()) == {1, 2, 3}


def test_what_is_derived_goes_with_the_pair_whose_logits_it_reads(owners):
    of = owners(MODELS, SETTINGS, 4)
    for model in MODELS:
        assert of[model, "tiny"] == of[model, "tiny-even"] == of[model, "tiny-some-even"]
        assert of[model, "tiny.noise"] == of[model, "tiny.noise-some"]


def test_every_pair_is_in_one_share_and_an_ensemble_in_that_of_its_members_or_in_none(registry, store):
    ensemble = "ensemble:tiny_a+tiny_b"
    settings = ["tiny", "tiny.noise", "tiny.motion_blur", "tiny-even"]

    def plan():
        return make_plan(registry, store, ["tiny_a", "tiny_wide", ensemble], settings, RunOptions())

    shares = [plan_of_shard(plan(), registry, None, Shard(i, 4), helps=False) for i in (1, 2, 3, 4)]
    own = [(p.stored_model, p.setting.name) for share in shares for p in share.pairs]
    assert len(own) == len(set(own))
    left = {(p.stored_model, p.setting.name) for p in plan().pairs} - set(own)
    assert left and {model for model, _ in left} == {"ensemble:tiny_a+tiny_b"}
    told = " ".join(note for share in shares for note in share.notes)
    assert "of ensembles with members in other shards: left out; the same command without --shard" in told
    assert shares[0].share == f"shard 1 of 4: {len(shares[0].pairs)} of 16 pairs"
    whole = plan_of_shard(plan(), registry, None, Shard(1, 1), helps=False)
    assert whole.share == "shard 1 of 1: 16 of 16 pairs" and not whole.notes


def test_where_shards_help_each_other_the_own_share_comes_first_in_bundles_of_its_own(registry, store, monkeypatch):
    plan = make_plan(registry, store, MODELS, SETTINGS, RunOptions())
    n_pairs = len(plan.pairs)
    helping = plan_of_shard(plan, registry, None, Shard(2, 3), helps=True)
    assert len(helping.pairs) == n_pairs
    later = [pair.later for pair in helping.pairs]
    assert later == sorted(later) and later.count(False) == int(helping.share.split()[4])
    bundles = bundles_of(helping, registry, RunOptions())
    assert all(len({pair.later for pair in bundle.pairs}) == 1 for bundle in bundles)
    monkeypatch.setattr(bundles_module, "_LOADED", 1)
    assert len(bundles_of(helping, registry, RunOptions())) < len(helping.having("run"))
    helping.shared = True  # other machines may take what is not begun, but nothing of a bundle that is
    assert len(bundles_of(helping, registry, RunOptions())) == len(helping.having("run"))


# ---- words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("3/2", "expected 1/2 to 2/2, got 3/2"),
        ("0/0", "expected at least one shard, as in 1/1, got 0/0"),
        ("0/8", "counted from 1: expected 1/8 to 8/8, got 0/8; in an array that begins at 0, --shard auto adds the 1"),
        ("a/b", "expected I/N such as 1/8, or auto in a Slurm array, got 'a/b'"),
        ("-1/2", "expected I/N"),
        ("1/8/9", "expected I/N"),
        ("", "expected I/N"),
        ("٣/٨", "expected I/N"),
        ("1/99999999999", "expected I/N"),
        ("auto", "SLURM_ARRAY_TASK_ID is not set, so this is no Slurm array: give I/N"),
    ],
)
def test_wrong_shards_are_answered_in_a_line(text, answer):
    with pytest.raises(EntryError) as error:
        Shard.read(text, {})
    assert str(error.value).startswith("--shard") and answer in str(error.value)


def slurm(number, least, most, count):
    words = {"ID": number, "MIN": least, "MAX": most, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{word}": str(value) for word, value in words.items()}


def test_a_task_of_a_slurm_array_knows_its_shard():
    assert Shard.read("auto", slurm(0, 0, 7, 8)) == Shard(1, 8)
    assert Shard.read("auto", slurm(32, 1, 32, 32)) == Shard(32, 32)
    assert Shard.read("2/3", slurm(0, 0, 7, 8)) == Shard(2, 3)


@pytest.mark.parametrize("array", [slurm(3, 1, 7, 3), slurm(9, 0, 7, 8), slurm(1, 1, 7, 4)])
def test_an_array_with_gaps_is_refused_with_what_to_do(array):
    with pytest.raises(EntryError, match=r"array with gaps.*give I/N, such as \$SLURM_ARRAY_TASK_ID/8"):
        Shard.read("auto", array)


def test_variables_of_slurm_that_are_no_numbers_are_refused():
    with pytest.raises(EntryError, match="expected numbers in SLURM_ARRAY_TASK_ID"):
        Shard.read("auto", {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "x"})
