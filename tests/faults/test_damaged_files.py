"""Logits, lists of images and chunks that are missing, torn or changed: refused in one line, and made again."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from stored_results import completed, results
from testbed.commands import database
from testbed.engine import dispatch
from testbed.errors import DamagedError
from testbed.store import files, schema
from testbed.store.measuring import read_outputs
from testbed.store.opening import open_store


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def remove(path):
    path.unlink()


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """tiny_a on `tiny` and what is derived from it, in results/ of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
    report, store = tiny.run(tmp_path / "results", ["tiny_a"], ["tiny", "tiny-even"])
    assert not report.failed
    yield store
    store.engine.dispose()


def logits_file(store, model="tiny_a"):
    return store.folder / completed(store, model, "tiny").logits_path


def numbers(store):
    return [(n.model, n.eval_setting, n.metric, n.value, n.ci_low, n.n) for n in results(store)]


def db(*words):
    result = CliRunner().invoke(database.main, [str(w) for w in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


DAMAGES = [flip, cut, remove]


@pytest.mark.parametrize("damage", DAMAGES)
def test_numbers_are_not_measured_again_from_a_damaged_file(stored, damage):
    before = numbers(stored)
    damage(logits_file(stored))
    told = db("--recompute-metrics")
    assert told.exit_code == 1
    assert "not measured: tiny_a on tiny is damaged: " in told.output
    assert "Error: 2 of 2 evaluations were not measured" in told.output  # what is derived reads the same file
    assert numbers(stored) == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "words",
    [
        ("--per-class", "tiny_a", "tiny"),
        ("--per-class", "tiny_a", "tiny-even"),
        ("--calibration", "tiny_a", "tiny"),
        ("--save-logits", "tiny", "saved"),
        ("--verify",),
    ],
)
def test_whoever_reads_damaged_logits_is_refused_in_one_line(stored, words, damage):
    path = logits_file(stored)
    damage(path)
    told = db(*words)
    what = "is missing" if damage is remove else "has changed since it was written"
    assert told.exit_code == 1 and f"results/logits/tiny/{path.name} {what}" in told.output
    assert "Traceback" not in told.output and told.output.count("Error: ") == 1
    assert "damaged: 2 pairs (tiny_a on tiny, tiny-even)" in db("--status").output  # what is derived with it, too


@pytest.mark.parametrize("damage", [cut, remove])
def test_status_sees_missing_and_shortened_files_by_itself(stored, damage):
    assert "damaged" not in db("--status").output
    damage(logits_file(stored))
    told = db("--status", "--format", "csv").output
    assert "tiny,damaged" in told and "tiny-even,damaged" in told


@pytest.mark.parametrize("damage", [cut, remove])
def test_files_stored_before_sizes_were_are_told_by_their_header(stored, damage):
    with stored.writing() as connection:
        connection.execute(schema.evaluations.update().values(logits_bytes=None))
    assert "damaged" not in db("--status").output
    damage(logits_file(stored))
    assert "tiny,damaged" in db("--status", "--format", "csv").output


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_next_run_makes_a_damaged_result_again(stored, damage):
    before, whole = numbers(stored), logits_file(stored).read_bytes()
    damage(logits_file(stored))
    db("--verify")
    report, _ = tiny.run("results", ["tiny_a"], ["tiny-even"])
    assert [(p.setting.name, p.action) for p in report.plan.pairs] == [("tiny", "run"), ("tiny-even", "derive")]
    assert not report.failed and numbers(stored) == before
    assert logits_file(stored).read_bytes() == whole
    assert db("--verify").exit_code == 0 and "damaged" not in db("--status").output


def test_a_file_that_was_put_back_is_whole_again(stored):
    path = logits_file(stored)
    shutil.copy(path, "kept.npy")
    flip(path)
    assert db("--verify").exit_code == 1
    shutil.copy("kept.npy", path)
    report, _ = tiny.run("results", ["tiny_a"], ["tiny"])
    assert [p.action for p in report.plan.pairs] == ["done"]
    assert db("--verify").exit_code == 0 and "damaged" not in db("--status").output


@pytest.mark.parametrize("damage", [cut, remove])
def test_a_damaged_list_of_images_is_written_anew(stored, damage):
    before = numbers(stored)
    samples = stored.folder / completed(stored, "tiny_a", "tiny").samples_path
    damage(samples)
    assert db("--per-class", "tiny_a", "tiny").exit_code == 1
    report, _ = tiny.run("results", ["tiny_a"], ["tiny"])
    assert not report.failed and numbers(stored) == before
    assert len(files.load_rows(samples)) == 200


def test_a_file_is_read_once_per_process_for_its_checksum(stored, monkeypatch):
    evaluation, read = completed(stored, "tiny_a", "tiny"), []
    monkeypatch.setattr(files, "_digests", {})
    original = files.sha256_of
    monkeypatch.setattr(files, "sha256_of", lambda path: read.append(path) or original(path))
    for _ in range(3):
        read_outputs(stored, evaluation)
    assert len(read) == 1
    flip(logits_file(stored))
    with pytest.raises(DamagedError):
        read_outputs(stored, evaluation)
    assert len(read) == 2


def test_figures_and_python_refuse_damaged_logits(stored):
    import testbed

    flip(logits_file(stored))
    with pytest.raises(DamagedError, match="tiny_a on tiny is damaged"):
        testbed.logits("tiny_a", "tiny")
    figure = tiny.script("plotting/calibration.py", "--models", "tiny_a", "--eval-settings", "tiny")
    assert figure.returncode == 1 and figure.stderr.count("\n") == 1
    assert figure.stderr.startswith("Error: tiny_a on tiny is damaged: ")


# ---- any damage at all -----------------------------------------------------------------------------------

ANYWHERE = st.floats(0, 1, exclude_max=True)
CHANGES = st.one_of(
    st.tuples(st.just("cut"), ANYWHERE),
    st.tuples(st.just("flip"), st.lists(st.tuples(ANYWHERE, st.integers(1, 255)), min_size=1, max_size=8)),
    st.tuples(st.just("overwrite"), st.binary(max_size=64)),
)


def damaged(data, change):
    kind, how = change
    if kind == "cut":
        return data[: int(how * len(data))]
    if kind == "overwrite":
        return how
    changed = bytearray(data)
    for place, bits in how:
        changed[int(place * len(changed))] ^= bits
    return bytes(changed)


@pytest.fixture(scope="module")
def one_result(tmp_path_factory):
    report, store = tiny.run(tmp_path_factory.mktemp("damaged"), ["tiny_a"], ["tiny"])
    assert not report.failed
    yield store
    store.engine.dispose()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=CHANGES, which=st.sampled_from(["logits_path", "samples_path"]))
def test_damaged_files_of_a_result_are_refused_or_read_as_they_were(one_result, change, which):
    evaluation = completed(one_result, "tiny_a", "tiny")
    path = one_result.folder / getattr(evaluation, which)
    whole = path.read_bytes()
    expected = tiny.logits(one_result, "tiny_a", "tiny")
    rows = files.load_rows(one_result.folder / evaluation.samples_path)
    path.write_bytes(damaged(whole, change))
    try:
        outputs, refused = read_outputs(one_result, evaluation), ""
    except DamagedError as error:
        outputs, refused = None, str(error)
    finally:
        path.write_bytes(whole)
    if outputs is None:
        assert "\n" not in refused and path.name in refused
    else:
        assert (outputs.logits == expected).all() and (outputs.targets == rows.targets).all()
        assert (outputs.ids == rows.ids).all()


# ---- chunks ----------------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A run that ended between its last chunk and its result: four chunks of 50 pictures, and no result."""
    with monkeypatch.context() as patch:
        patch.setattr("testbed.engine.recording.Recorder.finish", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=50, batch_size=50)
    assert report.interrupted
    parts = sorted(tmp_path.glob("logits/tiny/*.parts/*.npz"))
    assert len(parts) == 4
    yield parts
    store.engine.dispose()


@pytest.mark.parametrize("damage", [lambda p: flip(p, 1000), cut, remove, lambda p: p.write_bytes(b"")])
def test_a_damaged_chunk_is_made_anew_and_said_so(tmp_path, begun, damage, monkeypatch):
    expected = tiny.run(tmp_path / "other", ["tiny_a"], ["tiny"], chunk_size=50, batch_size=50)[1]
    damage(begun[1])
    damage(begun[2])
    told = []
    monkeypatch.setattr("testbed.engine.progress.Silent.note", lambda self, text: told.append(text))
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=50, batch_size=50)
    assert not report.failed
    assert (tiny.logits(store, "tiny_a", "tiny") == tiny.logits(expected, "tiny_a", "tiny")).all()
    (note,) = told
    assert note.startswith("tiny_a on tiny: a finished chunk is damaged and made anew (images 50 to 100: it ")
    assert note.endswith("and 1 more")


def test_a_chunk_of_another_shape_is_made_anew(tmp_path, begun):
    files.write_part(begun[0].parent, 0, {"logits": np.zeros((49, 10), dtype=np.float32)})
    assert files.part_problem(begun[0], 50) == "expected 50 rows, it has 49"
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=50, batch_size=50)
    assert not report.failed and (tiny.logits(store, "tiny_a", "tiny")[:50] != 0).any()


def test_whole_chunks_are_taken_up(tmp_path, begun, monkeypatch):
    given = []
    original = dispatch.Dispatcher._next_task
    monkeypatch.setattr(dispatch.Dispatcher, "_next_task", lambda *a: given.append(original(*a)) or given[-1])
    begun[3].unlink()
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=50, batch_size=50)
    assert not report.failed
    assert [(t.start, t.stop) for t in given if t is not None] == [(150, 200)]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=CHANGES)
def test_any_damage_of_a_chunk_is_noticed_or_harmless(tmp_path, change):
    rng = np.random.default_rng(0)
    arrays = {"logits": rng.normal(size=(6, 4)).astype(np.float32), "features": rng.normal(size=(6, 2))}
    files.write_part(tmp_path, 0, arrays)
    path = files.part_path(tmp_path, 0)
    path.write_bytes(damaged(path.read_bytes(), change))
    problem = files.part_problem(path, 6)
    assert "\n" not in problem
    if not problem:
        with np.load(path, allow_pickle=False) as stored:
            for name in stored.files:
                assert name in arrays and (stored[name] == arrays[name]).all()


def test_chunks_of_changed_code_are_not_joined(tmp_path, begun):
    """The perturbation or the classifier was changed between two runs: the first one's chunks are of another result."""
    store = open_store(str(tmp_path / "results.db"))
    with store.writing() as connection:
        connection.exec_driver_sql("""UPDATE evaluations SET provenance = '{"functions": {"model classify": "x"}}'""")
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=50, batch_size=50)
    assert not report.failed
    assert not begun[0].parent.exists()  # begun anew under another name, and the old chunks are gone
    store.engine.dispose()
