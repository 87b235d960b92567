from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import sqlalchemy as sa

from stored_results import add, add_published, completed, evaluations, results
from testbed import ArrayDataset, EvalSetting, accuracy_topk
from testbed.entries.registry import Registry
from testbed.errors import StoreError, UnknownName
from testbed.metrics.estimate import Estimate
from testbed.store import manage, schema
from testbed.store.formats import tables
from testbed.store.formats.logits import import_logits, save_logits
from testbed.store.formats.tables import export_results
from testbed.store.measuring import outputs_of
from testbed.store.write import recompute_metrics

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(20, 10)).astype(np.float32)
TARGETS = RNG.integers(0, 10, 20)
FEATURES = RNG.normal(size=(20, 3))


def registry_with(*settings):
    registry = Registry()
    for setting in settings:
        registry.eval_settings.add(setting, "here")
    return registry


def setting(name="s", **more):
    return EvalSetting(name=name, dataset=ArrayDataset(path="somewhere"), **more)


REGISTRY = registry_with(setting())


@pytest.fixture
def dump(store, tmp_path):
    """What --save-logits writes for two models on one setting."""
    store.begin_run()
    facts = dict(weights_sha256="w" * 64, dataset_fingerprint="f", device="cpu", dtype="float32", seed=3)
    metrics = accuracy_topk(LOGITS, TARGETS)
    for name, extras in (("timm:a/b", {"features": FEATURES}), ("plain", None)):
        add(store, name, "s", logits=LOGITS, targets=TARGETS, extras=extras, metrics=metrics, **facts)
    add(store, "plain", "t", logits=LOGITS)
    save_logits(store, REGISTRY, "s", tmp_path / "dump")
    return tmp_path / "dump"


# ---- saving ----------------------------------------------------------------------------------------------


def test_dump_opens_with_numpy_alone(dump):
    assert sorted(p.name for p in dump.iterdir()) == ["manifest.json", "plain.npz", "timm_a_b.npz"]
    with np.load(dump / "timm_a_b.npz", allow_pickle=False) as stored:
        assert (stored["logits"] == LOGITS).all() and stored["logits"].dtype == np.float32
        assert stored["targets"].tolist() == TARGETS.tolist()
        assert stored["image_paths"].tolist() == [f"{i:03d}.png" for i in range(20)]
        assert (stored["features"] == FEATURES).all()
    with np.load(dump / "plain.npz", allow_pickle=False) as stored:
        assert "features" not in stored.files


def test_manifest_tells_model_file_metrics_and_origin(dump):
    first, second = json.loads((dump / "manifest.json").read_text())
    assert (first["model"], first["file"]) == ("plain", "plain.npz")
    assert (second["model"], second["file"], second["eval_setting"]) == ("timm:a/b", "timm_a_b.npz", "s")
    assert (second["version"], second["variant"], second["seed"]) == (1, "", 3)
    best = 100 * (LOGITS.argmax(1) == TARGETS).mean()
    assert {m["name"]: m["value"] for m in second["metrics"]}["top1"] == pytest.approx(best)


def test_only_the_models_version_and_variant_asked_for_are_saved(store, tmp_path):
    store.begin_run()
    add(store, "old", "s", version=1, logits=LOGITS)
    add(store, "new", "s", version=2, logits=LOGITS)
    add(store, "too", "s", version=2, logits=LOGITS)
    add(store, "new", "s", version=2, variant="limit=20", logits=LOGITS)

    def names(**how):
        return [e.model for e in save_logits(store, REGISTRY, "s", tmp_path / "dump", **how)]

    assert names() == ["new", "too"]
    assert names(models=["too"]) == ["too"]
    assert names(variant="limit=20") == ["new"]


@pytest.mark.parametrize("write", [lambda s, p: save_logits(s, REGISTRY, "s", p), lambda s, p: export_results(s, p)])
def test_place_that_cannot_be_written_is_one_line(dump, store, tmp_path, write):
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "r.csv"
    with pytest.raises(StoreError) as error:
        write(store, place)
    assert str(error.value).startswith(f"{place} cannot be written: ")


def test_rows_of_unreadable_images_are_left_out(store, tmp_path):
    store.begin_run()
    logits = LOGITS.copy()
    logits[[2, 5]] = np.nan
    evaluation = add(store, "m", "s", logits=logits, targets=TARGETS)
    e = schema.evaluations
    with store.writing() as connection:
        stored = connection.execute(sa.select(e.c.provenance).where(e.c.id == evaluation)).scalar_one()
        connection.execute(e.update().where(e.c.id == evaluation).values(provenance={**stored, "bad_rows": [2, 5]}))
    save_logits(store, REGISTRY, "s", tmp_path / "dump")
    with np.load(tmp_path / "dump" / "m.npz") as stored:
        assert (stored["logits"] == np.delete(LOGITS, [2, 5], axis=0)).all()
        assert stored["image_paths"].tolist() == [f"{i:03d}.png" for i in range(20) if i not in (2, 5)]


def test_derived_setting_is_saved_as_its_rows_and_columns(store, tmp_path):
    store.begin_run()
    parent = add(store, "m", "s", logits=LOGITS, targets=TARGETS)
    add(store, "m", "odd", derived_from_id=parent)
    odd = EvalSetting(name="odd", logits_from="s", class_sublist=[9, 7, 5, 3, 1])
    save_logits(store, registry_with(setting(), odd), "odd", tmp_path / "dump")
    rows = np.flatnonzero(TARGETS % 2)
    with np.load(tmp_path / "dump" / "m.npz") as stored:
        assert (stored["logits"] == LOGITS[rows][:, [9, 7, 5, 3, 1]]).all()
        assert stored["targets"].tolist() == ((9 - TARGETS[rows]) // 2).tolist()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [("ss", UnknownName, "no eval setting 'ss' in the database"), ("u", StoreError, "any model on u has not been run")],
)
def test_nothing_to_save_is_told(dump, store, tmp_path, name, error, message):
    store.ensure_eval_setting("u")
    with pytest.raises(error) as raised:
        save_logits(store, REGISTRY, name, tmp_path / "nothing")
    assert str(raised.value).startswith(message)
    assert not (tmp_path / "nothing").exists()


# ---- importing -------------------------------------------------------------------------------------------


def test_dump_comes_back_equal_elsewhere(dump, store, elsewhere):
    assert import_logits(elsewhere, REGISTRY, dump) == [("plain", "s"), ("timm:a/b", "s")]
    for model in ("plain", "timm:a/b"):
        here, there = (completed(s, model, "s") for s in (store, elsewhere))
        stored = outputs_of(elsewhere, REGISTRY, there)
        assert (stored.logits == LOGITS).all() and stored.logits.dtype == np.float32
        assert stored.targets.tolist() == TARGETS.tolist()
        assert stored.ids.tolist() == [f"{i:03d}.png" for i in range(20)]
        assert stored.rows.indices.tolist() == list(range(20))
        carried = ("weights_sha256", "dataset_fingerprint", "device", "dtype", "seed", "variant", "n_images")
        assert {k: getattr(there, k) for k in carried} == {k: getattr(here, k) for k in carried}
    assert (outputs_of(elsewhere, REGISTRY, there).extras["features"] == FEATURES).all()
    compared = ("model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n", "version")
    originals = [{k: getattr(r, k) for k in compared} for r in results(store, eval_settings=["s"])]
    assert [{k: getattr(r, k) for k in compared} for r in results(elsewhere)] == originals
    assert [p for _, p in manage.verify(elsewhere)] == ["", ""]


def test_two_databases_of_one_folder_do_not_share_the_files_of_an_import(dump, tmp_path, elsewhere, databases):
    """The second takes in another list of images under the same names."""
    import_logits(elsewhere, REGISTRY, dump)
    other = databases.open("other")
    other.begin_run()
    add(other, "plain", "s", logits=-LOGITS[:7], targets=TARGETS[:7])
    save_logits(other, REGISTRY, "s", tmp_path / "short")
    beside = databases.open("beside")
    beside.folder = elsewhere.folder
    import_logits(beside, REGISTRY, tmp_path / "short")
    for stored, logits in ((elsewhere, LOGITS), (beside, -LOGITS[:7])):
        outputs = outputs_of(stored, REGISTRY, completed(stored, "plain", "s"))
        assert (outputs.logits == logits).all() and len(outputs.ids) == len(logits)
        assert not any(problem for _, problem in manage.verify(stored))


def test_metrics_of_a_setting_unknown_here_are_taken_over(dump, elsewhere):
    import_logits(elsewhere, Registry(), dump)
    best = 100 * (LOGITS.argmax(1) == TARGETS).mean()
    values = {(r.model, r.metric): r.value for r in results(elsewhere)}
    assert values["plain", "top1"] == pytest.approx(best)


def test_metrics_of_a_setting_known_here_are_measured_anew(dump, elsewhere):
    known = registry_with(setting(metrics_fn=lambda logits, targets: {"mean": logits.mean()}))
    import_logits(elsewhere, known, dump)
    rows = results(elsewhere, models=["plain"])
    assert [(r.metric, r.value) for r in rows] == [("mean", pytest.approx(LOGITS.mean()))]


def test_import_over_a_stored_result_needs_override(dump, store):
    before = completed(store, "plain", "s").logits_path
    with pytest.raises(StoreError) as error:
        import_logits(store, REGISTRY, dump)
    assert str(error.value) == "plain on s is stored already: repeat with --override to replace it"
    import_logits(store, REGISTRY, dump, override=True)
    assert not (store.folder / before).exists()
    assert (outputs_of(store, REGISTRY, completed(store, "plain", "s")).logits == LOGITS).all()


def test_tampered_file_is_refused(dump, elsewhere):
    path = dump / "plain.npz"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError) as error:
        import_logits(elsewhere, REGISTRY, dump)
    assert str(error.value) == f"{path} is not what its manifest says: the checksum differs"
    assert evaluations(elsewhere) == []


@pytest.mark.parametrize("content", [None, "{"])
def test_folder_without_a_manifest_is_refused(tmp_path, elsewhere, content):
    if content:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=r"expected a folder that --save-logits wrote, with manifest\.json in it"):
        import_logits(elsewhere, REGISTRY, tmp_path)


# ---- measuring again -------------------------------------------------------------------------------------


def test_recomputed_metrics_replace_the_stored_ones(dump, store):
    known = registry_with(setting(metrics_fn=lambda logits, targets: {"largest": Estimate(logits.max())}))
    done, problems = recompute_metrics(store, known)
    assert done == 2
    assert len(problems) == 1 and problems[0].startswith("plain on t: no eval setting, group or tag 't'")
    rows = results(store, eval_settings=["s"])
    assert [(r.model, r.metric, r.value) for r in rows] == [
        ("plain", "largest", pytest.approx(LOGITS.max())),
        ("timm:a/b", "largest", pytest.approx(LOGITS.max())),
    ]
    assert recompute_metrics(store, known, "x*") == (0, [])


# ---- tables ----------------------------------------------------------------------------------------------


@pytest.fixture
def exported(store):
    store.begin_run()
    add(store, "a,b", "s", 100 / 3)
    add(store, "a,b", "s", 20.0, variant="limit=3")
    add(store, "ä", "s", metrics={"top1": Estimate(float("nan"))})
    add_published(store, "ä", "s", 76.13)
    return store


EXPECTED = [
    ("a,b", "s", "top1", 100 / 3, 6, "", 1, "own"),
    ("a,b", "s", "top1", 20.0, 6, "limit=3", 1, "own"),
    ("ä", "s", "top1", 76.13, None, "", 0, "a paper"),
    ("ä", "s", "top1", None, None, "", 1, "own"),
]
COLUMNS = ("model", "eval_setting", "metric", "value", "n", "variant", "version", "source")


def read_csv(path):
    def value(text, kind):
        return kind(text) if text else None

    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    kinds = {"value": float, "n": int, "version": int}
    return [tuple(value(r[c], kinds[c]) if c in kinds else r[c] for c in COLUMNS) for r in rows]


def read_json(path):
    def strict(constant):
        raise ValueError(f"{constant} is no JSON")

    rows = json.loads(path.read_text(encoding="utf-8"), parse_constant=strict)
    return [tuple(r[c] for c in COLUMNS) for r in rows]


def read_parquet(path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    assert set(table.column_names) == {*tables.COLUMNS, tables.IMPORTED}
    return [tuple(r[c] for c in COLUMNS) for r in table.to_pylist()]


@pytest.mark.parametrize(("ending", "read"), [("csv", read_csv), ("json", read_json), ("parquet", read_parquet)])
def test_exported_table_holds_everything_with_all_digits(exported, tmp_path, ending, read):
    path = tmp_path / f"table.{ending}"
    assert export_results(exported, path) == 4
    assert read(path) == EXPECTED


def test_other_endings_are_refused_and_write_nothing(exported, tmp_path):
    with pytest.raises(StoreError) as error:
        export_results(exported, tmp_path / "table.xlsx")
    assert str(error.value) == "--export: expected a file ending in .csv, .json or .parquet, got table.xlsx"
    assert not (tmp_path / "table.xlsx").exists()
