"""Published results: imported beside own ones, never mixed up with them, replaced when imported again."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import stored_results
from shared_data import shared_data
from stored_results import address, every_number, results
from testbed.commands.database import main
from testbed.stats.intervals import clopper_pearson
from testbed.store.database import Store
from testbed.store.evaluation import Number
from testbed.store.formats import published
from testbed.store.names import model_tags

TABLE = "model,val,pgd.l2.eps0.5,mine\nresnet50,76.13,10.56,50\nalexnet,56.522,,NaN\n"
TYPES = "model,type,label\nresnet50,STANDARD,Standard training\nunknown,LP_ADV,Robust\nalexnet,LOW_ACCURACY_CNN,Low\n"


@pytest.fixture
def bring(store, tmp_path):
    """db.py --import-csv with these texts; returns what it printed."""

    def run(table=TABLE, types=TYPES, source="paper", fails=False):
        (tmp_path / "table.csv").write_text(table, encoding="utf-8")
        (tmp_path / "types.csv").write_text(types, encoding="utf-8")
        arguments = ["--db", address(store), "--import-csv", str(tmp_path / "table.csv")]
        arguments += ["--types", str(tmp_path / "types.csv")] if types else []
        result = CliRunner().invoke(main, [*arguments, *(["--source", source] if source else [])])
        assert (result.exit_code != 0) == fails, result.output
        return result.output.strip()

    return run


def stored(store: Store, source: str | None = "paper") -> dict[tuple[str, str], Number]:
    rows = results(store, source=source)
    return {(row.model, row.eval_setting): row for row in rows}


def test_cells_become_completed_results_of_their_source(bring, store):
    assert bring() == "paper: 4 results of 2 models on 3 eval settings"
    rows = stored(store)
    assert {pair: row.value for pair, row in rows.items()} == {
        ("resnet50", "val"): 76.13,
        ("resnet50", "pgd.l2.eps0.5"): 10.56,
        ("resnet50", "mine"): 50,
        ("alexnet", "val"): 56.522,
    }
    assert {(row.metric, row.source) for row in rows.values()} == {("top1", "paper")}
    val = rows["resnet50", "val"]
    low, high = clopper_pearson(0.7613 * 50_000, 50_000)
    assert (val.n, val.ci_low, val.ci_high) == (50_000, pytest.approx(100 * low), pytest.approx(100 * high))
    unknown = rows["resnet50", "mine"]
    assert (unknown.n, unknown.ci_low) == (None, None)


def test_types_become_tags_beside_those_a_model_has(bring, store):
    store.ensure_model("resnet50", "resnet50", ["imagenet"])
    bring()
    tags = model_tags(store)
    assert tags == {"resnet50": ["imagenet", "standard"], "alexnet": ["low_accuracy_cnn"]}
    bring()
    assert model_tags(store) == tags


def test_own_results_of_the_same_names_stay_what_they_are(bring, store):
    stored_results.add(store, "resnet50", "val", 70.0)
    bring()
    assert {p: r.value for p, r in stored(store, "own").items()} == {("resnet50", "val"): 70.0}
    assert stored(store)["resnet50", "val"].value == 76.13
    with store.reading() as connection:
        view = connection.execute(sa.text("SELECT model, eval_setting, value FROM results")).all()
    assert [tuple(row) for row in view] == [("resnet50", "val", 70.0)]
    stored_results.add(store, "alexnet", "mine", 12.0)  # a run after the import
    assert stored(store, "own")["alexnet", "mine"].value == 12.0
    assert ("alexnet", "mine") not in stored(store)


def test_an_import_replaces_the_one_before_and_leaves_other_sources(bring, store):
    bring()
    bring(source="another paper")
    first = stored(store)["resnet50", "val"].evaluation_id
    assert bring("model,val,new\nresnet50,77,5\nthird,,6\n") == (
        "paper: 3 results of 2 models (1 of them without a type) on 2 eval settings"
    )
    rows = stored(store)
    assert {pair: row.value for pair, row in rows.items()} == {
        ("resnet50", "val"): 77,
        ("resnet50", "new"): 5,
        ("third", "new"): 6,
    }
    assert rows["resnet50", "val"].evaluation_id == first
    assert len(stored(store, "another paper")) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"table": "name,val\na,5\n"}, "expected a header 'model,SETTING,...' of different names, got 'name,val'"),
        ({"table": "model,val,val\na,5,6\n"}, "expected a header"),
        ({"table": "model,val\n"}, "expected a header and at least one line, got 1 line"),
        ({"table": "model,val\na,105\n"}, "line 2, val: expected a percentage from 0 to 100 or nothing, got '105'"),
        ({"table": "model,val\na,good\n"}, "got 'good'"),
        ({"table": "model,val\na,5,6\n"}, "line 2: expected 2 cells, got 3"),
        ({"table": "model,val\na,5\na,6\n"}, "line 3: expected a new model name, got 'a'"),
        ({"types": "model,kind\na,x\n"}, "expected the columns model and type, got 'model, kind'"),
        ({"types": "model,type\na\n"}, "line 2: expected 2 cells, got 1"),
        ({"source": "own"}, "expected a name of at most 64 letters other than 'own', got 'own'"),
        ({"source": ""}, "--import-csv needs --source NAME"),
    ],
)
def test_what_cannot_be_imported_is_said_in_one_line_and_changes_nothing(bring, store, given, words):
    bring()
    before = stored(store)
    told = bring(**given, fails=True)
    assert words in told
    assert len(told.splitlines()) == 1
    assert stored(store) == before


def test_a_missing_file_is_said_in_one_line(tmp_path):
    with pytest.raises(published.StoreError, match=r"nothing\.csv cannot be read"):
        published.read_csv(tmp_path / "nothing.csv")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"pgd.linf.eps2": 6.318}, 50_000),  # 3,159 of 50,000, and no whole number of 5,000
        ({"pgd.linf.eps2": 6.32}, 5_000),  # 316 of 5,000
        ({f"imagenet-c.fog.{i}_on-disk": 40.0 + 0.002 * i for i in range(1, 31)}, 50_000),  # one in ten by chance
        ({f"imagenet-c.fog.{i}_on-disk": 40.0 + 0.02 * i for i in range(1, 31)}, 5_000),
    ],
)
def test_a_tenth_of_the_images_is_told_from_the_whole_by_the_accuracies(cells, expected):
    assert set(published.image_counts(cells).values()) == {expected}


def test_sizes_of_own_settings_serve_where_none_is_published():
    assert published.image_counts({"mine": 5.0, "val": 6.0}, {"mine": 300, "val": 7}) == {"mine": 300, "val": 50_000}


@pytest.fixture(scope="module")
def real():
    table = published.read_csv(shared_data("testbed", "robustness_top1s.csv"))
    return table, published.read_types(shared_data("testbed", "model_types.csv"))


def test_every_published_accuracy_is_a_whole_number_of_images(real):
    """With the sizes here; the published registry's sizes of sketch and ytbb do not pass."""
    table, _ = real
    for model, cells in table.cells.items():
        for setting, n in published.image_counts(cells).items():
            images = cells[setting] / 100 * n
            assert images == pytest.approx(round(images), abs=0.02), (model, setting, n)


def test_the_published_table_comes_in_whole(real, store):
    table, types = real
    done = published.import_published(store, table, types, "imagenet-testbed")
    assert (done.models, done.settings, done.results, done.without_type) == (338, 213, 71_994 - 26_220, 0)
    rows = results(store, ["resnet50"], ["val", "imagenet-a"], source="imagenet-testbed")
    assert {row.eval_setting: (row.value, row.n) for row in rows} == {
        "val": (76.1300048828125, 50_000),
        "imagenet-a": (0.0, 7_500),
    }
    assert results(store) == []
    order = sorted({r.model: r.evaluation_id for r in every_number(store)}.items(), key=lambda x: x[1])
    assert [model for model, _ in order] == list(table.cells)  # the published draws depend on it
