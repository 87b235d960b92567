"""Whatever folder or table is given to an import: it is taken in as it is, or refused in one line. Never believed."""

from __future__ import annotations

import copy
import io
import json
import shutil
import tempfile
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.fuzzing import fuzz_settings
from stored_results import add, completed, evaluations, results
from testbed import ArrayDataset, EvalSetting, accuracy_topk
from testbed.data import writing
from testbed.data.array_files import load_npy, load_npz
from testbed.entries.registry import Registry
from testbed.errors import StoreError, TestbedError
from testbed.metrics.labels import OWN, targets_are
from testbed.store import manage
from testbed.store.find import find
from testbed.store.formats import published
from testbed.store.formats.decisions import read_folder
from testbed.store.formats.logits import import_logits, save_logits
from testbed.store.formats.tables import export_results
from testbed.store.opening import open_store

N, CLASSES = 20, 10
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(N, CLASSES)).astype(np.float32)
TARGETS = RNG.integers(0, CLASSES, N)
IDS = [f"{i:06d}" for i in range(N)]  # as ArrayDataset names its images
TOP1 = 100 * (LOGITS.argmax(axis=1) == TARGETS).mean()


def pictures():
    return np.zeros((N, 4, 4, 3), dtype=np.uint8), TARGETS


def registry_with(*settings):
    registry = Registry()
    for setting in settings:
        registry.eval_settings.add(setting, "here")
    return registry


ELSEWHERE = ArrayDataset(path="elsewhere")
KNOWN = EvalSetting(name="s", dataset=ELSEWHERE, size=N)
WITH_DATA = EvalSetting(name="s", dataset=ArrayDataset(make=pictures, num_classes=CLASSES), size=N)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """What --save-logits writes for two models on the setting s."""
    folder = tmp_path_factory.mktemp("dump")
    with new_store() as store:
        for model in ("a", "b"):
            add(store, model, "s", logits=LOGITS, targets=TARGETS, metrics=accuracy_topk(LOGITS, TARGETS))
        save_logits(store, registry_with(KNOWN), "s", folder / "dump")
    for path in (folder / "dump").glob("*.npz"):  # the ids that the data has
        rewrite(folder / "dump", path.name, image_paths=np.array(IDS))
    return folder / "dump"


@cache
def empty_database():
    """The bytes of one: to make it takes longer than a test of it."""
    with tempfile.TemporaryDirectory() as folder:
        open_store(f"{folder}/results.db", create=True).engine.dispose()
        return Path(folder, "results.db").read_bytes()


@contextmanager
def new_store():
    place = Path(tempfile.mkdtemp(prefix="testbed-import-"))
    (place / "results").mkdir()  # what is written beside it is seen
    (place / "results" / "results.db").write_bytes(empty_database())
    store = open_store(str(place / "results" / "results.db"))
    store.begin_run()
    try:
        yield store
    finally:
        store.engine.dispose()
        shutil.rmtree(place)


@contextmanager
def changed(dump):
    """A copy of the folder that may be changed."""
    place = Path(tempfile.mkdtemp(prefix="testbed-import-"))
    try:
        yield Path(shutil.copytree(dump, place / "dump"))
    finally:
        shutil.rmtree(place)


def rewrite(folder, file, **arrays):
    """Put other arrays into a file, and the new checksum into the manifest: what an attacker or a bug would do."""
    stored = {**load_npz(folder / file), **arrays}
    np.savez(folder / file, **{name: array for name, array in stored.items() if array is not None})
    resign(folder)


def resign(folder, **values):
    manifest = json.loads((folder / "manifest.json").read_text())
    for item in manifest:
        item.update(values, sha256=writing.sha256_of(folder / item["file"]))
    (folder / "manifest.json").write_text(json.dumps(manifest))


def refusal(folder, registry, store=None, **how):
    """The one line that an import is refused with; nothing may have been stored."""
    with new_store() if store is None else copy.copy(_same(store)) as target:
        before = len(evaluations(target))
        with pytest.raises(TestbedError) as error:
            import_logits(target, registry, folder, **how)
        assert len(evaluations(target)) == before
    assert "\n" not in str(error.value)
    return str(error.value)


@contextmanager
def _same(store):
    yield store


# ---- arrays that do not fit ------------------------------------------------------------------------------


def with_nan(value):
    logits = LOGITS.copy()
    logits[3, 2] = value
    return logits


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (dict(logits=LOGITS[:5]), "expected 5 whole numbers as targets, one for each row of the logits, got int64"),
        (dict(logits=LOGITS[0]), "expected logits as floating-point numbers, images x classes, got float32 of shape"),
        (dict(logits=(LOGITS * 9).astype(int)), "expected logits as floating-point numbers"),
        (dict(logits=with_nan(np.nan)), "expected finite logits, got NaN or infinity in row 3 ('000003')"),
        (dict(logits=with_nan(np.inf)), "expected finite logits, got NaN or infinity in row 3"),
        (dict(logits=LOGITS[:, :5]), "expected labels from 0 to 4, got 9"),
        (dict(targets=TARGETS.astype(float)), "expected 20 whole numbers as targets"),
        (dict(targets=TARGETS - 5), "expected targets from -1 (no label) on, got -5 to 4"),
        (dict(targets=TARGETS + 90), "expected labels from 0 to 9, got 99"),
        (dict(image_paths=np.arange(N)), "expected 20 texts as image_paths"),
        (dict(indices=np.arange(N) - 1), "expected indices from 0 on, got -1 to 18"),
        (dict(logits=None), "logits is missing"),
        (dict(features=np.zeros((3, 2))), "expected 20 rows of 'features', as many as of the logits"),
        ({"../x": np.zeros(N)}, "expected a plain word as the name of an array, got '../x'"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(dump, arrays, words):
    with changed(dump) as folder:
        rewrite(folder, "a.npz", **arrays)
        assert words in refusal(folder, registry_with(KNOWN))


def test_arrays_of_python_objects_are_refused_unread(dump):
    with changed(dump) as folder:
        buffer = io.BytesIO()
        np.save(buffer, np.array([{}] * N, dtype=object), allow_pickle=True)
        with zipfile.ZipFile(folder / "a.npz", "a") as archive:
            archive.writestr("extra.npy", buffer.getvalue())
        resign(folder)
        assert "Python objects, which only pickle could read" in refusal(folder, registry_with(KNOWN))


# ---- against what is known here ---------------------------------------------------------------------------


def few(folder, n):
    stored = load_npz(folder / "a.npz")
    rewrite(folder, "a.npz", **{name: array[:n] for name, array in stored.items()})


def test_a_part_is_no_whole_setting(dump):
    """Five rows, and a manifest that tells 99.9 % of 797 images."""
    with changed(dump) as folder:
        few(folder, 5)
        resign(folder, metrics=[{"name": "top1", "value": 99.9, "ci_low": 99.8, "ci_high": 100.0, "n": 797}])
        words = "a on s: expected 20 images, got 5: a part of a setting comes with its variant (limit=N)"
        assert words in refusal(folder, registry_with(KNOWN))
        assert words in refusal(folder, registry_with(WITH_DATA))
        with new_store() as store:
            import_logits(store, registry_with(KNOWN), folder, override=True)
            (number,) = [n for n in results(store, ["a"]) if n.metric == "top1"]
            assert (number.value, number.n) == (100 * (LOGITS[:5].argmax(axis=1) == TARGETS[:5]).mean(), 5)
            assert completed(store, "a", "s").warning == "expected 20 images, found 5"


def test_labels_of_images_that_are_here_are_compared(dump):
    with changed(dump) as folder:
        rewrite(folder, "a.npz", targets=LOGITS.argmax(axis=1))  # always right
        wrong = int(np.flatnonzero(LOGITS.argmax(axis=1) != TARGETS)[0])
        words = f"a on s: expected label {TARGETS[wrong]} of '{IDS[wrong]}', as it is here, got"
        assert words in refusal(folder, registry_with(WITH_DATA))


RIGHT = int(np.flatnonzero(LOGITS.argmax(axis=1) == TARGETS)[0])


@pytest.mark.parametrize(
    ("rows", "indices", "words"),
    [
        (np.arange(N), np.arange(N)[::-1], "a on s: expected index 0 of {0!r}, as it is here, got 19"),
        (np.full(N, RIGHT), np.full(N, RIGHT), "a on s: expected {1!r} 1 time(s), as here, got it more often"),
    ],
    ids=["other places", "one image again and again"],
)
@pytest.mark.parametrize("known_from", ["data", "stored results"])
def test_rows_that_the_setting_has_not_are_refused(dump, rows, indices, words, known_from):
    """Rows and classes of other settings are read from a result by these places."""
    ids, registry = np.array(IDS), registry_with(WITH_DATA)
    with changed(dump) as folder, new_store() as store:
        if known_from == "stored results":
            ids, registry = np.array([f"{i:03d}.png" for i in range(N)]), registry_with(KNOWN)
            add(store, "mine", "s", logits=LOGITS, targets=TARGETS)
        arrays = {"logits": LOGITS[rows], "targets": TARGETS[rows], "image_paths": ids[rows], "indices": indices}
        rewrite(folder, "a.npz", **arrays)
        assert words.format(str(ids[0]), str(ids[RIGHT])) in refusal(folder, registry, store)


def test_labels_of_stored_results_are_compared_where_the_data_is_not_here(dump):
    with changed(dump) as folder, new_store() as store:
        add(store, "mine", "s", logits=LOGITS, targets=TARGETS)
        rewrite(folder, "a.npz", image_paths=np.array([f"{i:03d}.png" for i in range(N)]), targets=(TARGETS + 1) % 10)
        assert "expected label" in refusal(folder, registry_with(KNOWN), store)


def test_images_that_the_setting_has_not_are_refused(dump):
    with changed(dump) as folder:
        rewrite(folder, "a.npz", image_paths=np.array([*IDS[:-1], "other.png"]))
        words = "a on s: expected images of the setting, got 'other.png', which it has not"
        assert words in refusal(folder, registry_with(WITH_DATA))


def test_columns_are_those_of_the_setting(dump):
    with changed(dump) as folder:
        rewrite(folder, "a.npz", logits=np.hstack([LOGITS, LOGITS]))
        assert "expected logits of 10 classes, got 20" in refusal(folder, registry_with(WITH_DATA))
    part = EvalSetting(name="s", dataset=ELSEWHERE, class_sublist=range(9))
    assert "expected logits of 9 classes, got 10" in refusal(dump, registry_with(part))


def test_metrics_of_a_known_setting_that_cannot_be_measured_are_not_taken_from_the_manifest(dump):
    def broken(logits, targets):
        raise KeyError("a list of labels that is not here")

    words = refusal(dump, registry_with(EvalSetting(name="s", dataset=ELSEWHERE, metrics_fn=broken)))
    assert words == "a on s cannot be measured here: KeyError: 'a list of labels that is not here'"


def test_accuracy_of_an_unknown_setting_must_be_that_of_its_arrays(dump):
    told = []
    with new_store() as store:
        import_logits(store, Registry(), dump, tell=told.append)
        assert {n.metric: n.value for n in results(store, ["a"])}["top1"] == pytest.approx(TOP1)
    assert not told
    with changed(dump) as folder:
        resign(folder, metrics=[{"name": "top1", "value": 99.9}])
        words = f"a on s: the manifest tells top1 99.9, its logits and labels give {TOP1:.4g}: register the setting"
        assert words in refusal(folder, Registry())
        resign(folder, metrics=[{"name": "shape_bias", "value": 99.9}])
        with new_store() as store:
            import_logits(store, Registry(), folder, tell=told.append)
            assert results(store) == []  # the logits are kept; --recompute-metrics measures them once they are known
    assert told[0] == "a on s: shape_bias cannot be measured, since the setting is not registered here"


def test_labels_with_a_meaning_of_their_own_are_left_to_their_metric(dump):
    """A label that is no column may be any number."""

    @targets_are(OWN)
    def highest_label(logits, targets):
        return {"highest": float(targets.max())}

    own = EvalSetting(name="s", dataset=ELSEWHERE, metrics_fn=highest_label)
    with changed(dump) as folder, new_store() as store:
        rewrite(folder, "a.npz", targets=TARGETS + 90)
        import_logits(store, registry_with(own), folder)
        assert [(n.metric, n.value) for n in results(store, ["a"])] == [("highest", 99.0)]


# ---- versions --------------------------------------------------------------------------------------------


def test_a_version_newer_than_the_registrys_is_refused(dump):
    with changed(dump) as folder, new_store() as store:
        add(store, "mine", "s", 50.0, version=1)
        resign(folder, version=7)
        words = "expected version 1, which the registry declares, got 7, which would hide all results of yours"
        assert words in refusal(folder, registry_with(KNOWN), store)
        words = "version 7 would hide 1 result(s) of version 1 that were computed here"
        assert words in refusal(folder, Registry(), store)
        assert [n.value for n in results(store)] == [50.0]


def test_an_older_version_stays_apart_and_behind(dump):
    newer = EvalSetting(name="s", dataset=ELSEWHERE, size=N, version=2)
    with new_store() as store:
        add(store, "a", "s", 50.0, version=2)
        import_logits(store, registry_with(newer), dump)
        assert [(n.model, n.value) for n in results(store, metric="top1")] == [("a", 50.0)]


# ---- what is imported says so ------------------------------------------------------------------------------


def test_imported_results_are_results_and_say_where_they_come_from(dump, tmp_path):
    with new_store() as store:
        import_logits(store, registry_with(KNOWN), dump)
        add(store, "mine", "s", 50.0)
        imported, mine = completed(store, "a", "s"), completed(store, "mine", "s")
        assert imported.label == "a on s (imported)" and imported.imported == str(dump / "a.npz")
        assert mine.label == "mine on s" and mine.imported == ""
        assert [problem for _, problem in manage.verify(store)] == ["", ""]
        export_results(store, tmp_path / "all.json")
        rows = json.loads((tmp_path / "all.json").read_text())
    assert {r["model"]: r["imported"] for r in rows} == {"a": str(dump / "a.npz"), "b": str(dump / "b.npz"), "mine": ""}


# ---- mutated folders ---------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["..", "../x", "a\nb", "\x1b[31m", "*", "s", "=1", "x" * 300, "\ud800", "folder:/", "a.npz"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def places(value, place=()):
    """The path of every part of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(p for key, part in inner for p in places(part, (*place, key)))]


def put(value, place, new):
    if not place:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    if new is None and isinstance(inner, dict):
        del inner[place[-1]]
    else:
        inner[place[-1]] = new
    return value


DTYPES = ["f2", "f4", "f8", "i8", "u1", "?", "c8", "U3", "S3", "M8[s]"]
ARRAYS = st.builds(
    lambda shape, dtype, seed: np.random.default_rng(seed).integers(-2, 12, shape).astype("i8").astype(dtype),
    st.lists(st.sampled_from([0, 1, 3, N]), max_size=3).map(tuple),
    st.sampled_from(DTYPES),
    st.integers(0, 5),
)


def taken_or_refused(folder, registry, **how):
    """Import it; what is stored then has numbers of its own arrays."""
    with new_store() as store:
        try:
            import_logits(store, registry, folder, **how)
        except TestbedError as error:
            told = str(error)
            assert told and "\n" not in told and "\x1b" not in told and len(told) < 700
            told.encode()
            assert evaluations(store) == []
            return
        for evaluation in find(store):
            logits = np.load(store.folder / evaluation.logits_path)
            assert np.isfinite(logits).all() and evaluation.n_images == len(logits)
            assert evaluation.imported
            with np.load(store.folder / evaluation.samples_path) as rows:
                for number in results(store, [evaluation.model], [evaluation.eval_setting], ["top1"]):
                    labelled = rows["targets"] >= 0
                    right = (logits.argmax(axis=1) == rows["targets"])[labelled]
                    assert number.value == pytest.approx(100 * right.mean()) and number.n == labelled.sum()
        assert not any(path.is_file() for path in store.folder.parent.glob("*.np*"))


REGISTRIES = [registry_with(KNOWN), registry_with(WITH_DATA), Registry()]


@fuzz_settings(150)
@given(data=st.data())
def test_mutated_manifests_are_taken_in_or_refused_in_one_line(dump, data):
    manifest = json.loads((dump / "manifest.json").read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places(manifest)))
        manifest = put(manifest, place, data.draw(JSON))
    registry, override = data.draw(st.sampled_from(REGISTRIES)), data.draw(st.booleans())
    with changed(dump) as folder:
        (folder / "manifest.json").write_text(json.dumps(manifest))
        taken_or_refused(folder, registry, override=override)


@fuzz_settings(150)
@given(data=st.data())
def test_mutated_arrays_are_taken_in_or_refused_in_one_line(dump, data):
    names = st.sampled_from(["logits", "targets", "image_paths", "indices", "features", "~", "x" * 90])
    with changed(dump) as folder:
        rewrite(folder, "a.npz", **data.draw(st.dictionaries(names, st.none() | ARRAYS, min_size=1, max_size=3)))
        taken_or_refused(folder, data.draw(st.sampled_from(REGISTRIES)), override=data.draw(st.booleans()))


@fuzz_settings(150)
@given(data=st.data())
def test_torn_files_are_taken_in_or_refused_in_one_line(dump, data):
    with changed(dump) as folder:
        path = folder / data.draw(st.sampled_from(["a.npz", "manifest.json"]))
        content = bytearray(path.read_bytes()[: data.draw(st.integers(0, path.stat().st_size))])
        for _ in range(data.draw(st.integers(0, 4)) if content else 0):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(bytes(content))
        if path.name == "a.npz":
            resign(folder)
        taken_or_refused(folder, data.draw(st.sampled_from(REGISTRIES)))


# ---- array files -----------------------------------------------------------------------------------------


@pytest.fixture
def little_memory():
    """So much more than the process has now: an array of the declared size would not fit."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("shape", ["(99999999999,)", "(9999999, 9999999)", "(-5, 3)", "(10**12,)", "99", "(1.5,)"])
def test_a_declared_shape_that_the_file_does_not_hold_is_refused_before_memory_is_taken(tmp_path, shape, little_memory):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(5))
    forged = buffer.getvalue().replace(b"(5,), }" + b" " * 60, f"{shape}, }}".encode().ljust(67), 1)
    assert forged != buffer.getvalue()
    (tmp_path / "x.npy").write_bytes(forged)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", forged)
    for load, path in ((load_npy, tmp_path / "x.npy"), (load_npz, tmp_path / "x.npz")):
        with pytest.raises(ValueError):
            load(path)


def test_an_archive_of_arrays_that_unpacks_to_far_more_is_refused(tmp_path, little_memory):
    header = {"descr": "|u1", "fortran_order": False, "shape": (300 << 20,)}
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as stream,
    ):
        np.lib.format.write_array_header_1_0(stream, header)
        for _ in range(300):
            stream.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"a file of [\d,]+ bytes declares arrays of 314,572,\d+"):
        load_npz(tmp_path / "x.npz")


# ---- tables ----------------------------------------------------------------------------------------------

NAME = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"], exclude_characters="*?[]"), max_size=20)
CELL = st.sampled_from(["", "nan", "NaN"]) | st.floats(0, 100).map(repr) | st.integers(0, 100).map(str)


def table(path, rows):
    import csv

    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        csv.writer(file).writerows(rows)
    return path


@fuzz_settings(150)
@given(data=st.data())
def test_tables_of_good_names_and_percentages_are_taken_in_with_every_number(tmp_path_factory, data):
    good = NAME.filter(lambda name: name.strip(".") and name not in ("model",) and not name.startswith("'"))
    settings = data.draw(st.lists(good, min_size=1, max_size=4, unique=True))
    models = data.draw(st.lists(good, min_size=1, max_size=4, unique=True))
    if any({".", ".."} & set(name.replace("\\", "/").split("/")) and ":" not in name for name in settings + models):
        return
    cells = [[data.draw(CELL) for _ in settings] for _ in models]
    rows = [["model", *settings], *([m, *line] for m, line in zip(models, cells, strict=True))]
    with new_store() as store:
        read = published.read_csv(table(store.folder / "table.csv", rows))
        published.import_published(store, read, {}, "paper")
        values = {(n.model, n.eval_setting): n.value for n in results(store, source="paper")}
    expected = {
        (m, s): float(cell)
        for m, line in zip(models, cells, strict=True)
        for s, cell in zip(settings, line, strict=True)
        if cell and cell.lower() != "nan"
    }
    assert values == expected


@fuzz_settings(200)
@given(
    rows=st.lists(st.lists(st.text(max_size=8) | CELL | st.just("model"), max_size=4), max_size=4),
    header=st.none() | st.lists(st.text(max_size=6), min_size=1, max_size=3),
    source=st.text(max_size=4) | st.sampled_from(["paper", "own", "*", "x" * 65, "a\nb"]),
)
def test_any_table_is_taken_in_or_refused_in_one_line(rows, header, source):
    rows = rows if header is None else [["model", *header], *rows]
    with new_store() as store:
        path = table(store.folder / "table.csv", rows)
        for read in (lambda: _import_table(store, path, source), lambda: published.read_types(path)):
            told = ""
            try:
                read()
            except TestbedError as error:
                told = str(error)
            assert "\n" not in told and "\x1b" not in told
        for number in results(store, source=source):
            assert 0 <= number.value <= 100 and number.model.isprintable() and not set("*?[]") & set(number.model)


def _import_table(store, path, source):
    published.import_published(store, published.read_csv(path), {}, source)


@fuzz_settings(100)
@given(st.binary(max_size=200) | st.text(st.sampled_from('model,s\n"\0\r;5.é\x1b'), max_size=60).map(str.encode))
def test_any_bytes_as_a_table_are_taken_in_or_refused_in_one_line(content):
    with new_store() as store:
        path = store.folder / "table.csv"
        path.write_bytes(content)
        for read in (published.read_csv, published.read_types):
            told = ""
            try:
                read(path)
            except StoreError as error:
                told = str(error)
            assert "\n" not in told and "\x1b" not in told


DECISIONS = ["subj", "session", "trial", "rt", "object_response", "category", "condition", "imagename"]
ODD = st.sampled_from(["cat", "na", "1", "NaN", "inf", "-1", "1e999", "9" * 30, "x\ny", "\x1b[0m", "../x", "y" * 2000])


@fuzz_settings(150)
@given(st.lists(st.lists(ODD | st.text(max_size=5), min_size=8, max_size=8), max_size=4))
def test_any_decisions_are_read_or_refused_in_one_line(rows):
    folder = Path(tempfile.mkdtemp(prefix="testbed-import-"))
    try:
        table(folder / "x.csv", [DECISIONS, *rows])
        told = ""
        try:
            read_folder(folder)
        except StoreError as error:
            told = str(error)
        assert "\n" not in told and "\x1b" not in told
    finally:
        shutil.rmtree(folder)
