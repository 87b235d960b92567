"""What goes wrong is recorded in words, costs nobody else anything, and is tried again."""

import errno

import numpy as np
import pytest
import torch
from PIL import Image

import tiny
from stored_results import completed, evaluations, results
from testbed.errors import StoreError, UnknownName


@pytest.mark.parametrize(
    ("model", "setting", "words"),
    [
        ("tiny_unloadable", "tiny", "model 'tiny_unloadable' cannot be loaded: RuntimeError: no such weights"),
        ("tiny_raises", "tiny", "ZeroDivisionError: this classifier always fails"),
        ("tiny_nan", "tiny", "model 'tiny_nan' gives NaN for image 0000"),
        ("tiny_wide", "tiny", "model 'tiny_wide' gives 1000 classes, but the setting 'tiny' has 10"),
        ("tiny_a", "tiny-bad-metric", "ZeroDivisionError: division by zero"),
        ("tiny_a", "tiny-missing", "dataset 'no-such-set' not found: expected a folder of class folders at"),
        ("tiny_a", "tiny-missing", "Get it: ask its authors"),
        ("tiny_a", "tiny-missing", "--data-root or TESTBED_DATA"),
    ],
)
def test_failure_is_recorded_in_words_and_others_go_on(tmp_path, model, setting, words):
    report, store = tiny.run(tmp_path, ["tiny_b", model], [setting, "tiny.noise"], data_roots=(str(tmp_path),))
    pair = next(p for p in report.failed if (p.model.name, p.setting.name) == (model, setting))
    assert words in pair.error
    failed = [e for e in evaluations(store, model, setting) if e.status == "failed"]
    assert [words in e.error for e in failed] == [True]
    assert completed(store, "tiny_b", "tiny.noise")


@pytest.mark.parametrize(
    ("outputs", "came"),
    [
        (lambda logits: (logits, logits), "a tuple of Tensor, Tensor"),
        (lambda logits: {"out": logits, "aux": logits}, "a dict with out, aux"),
        (lambda logits: "cat", "a str"),
    ],
)
def test_model_that_gives_no_tensor_is_told_what_it_gave(outputs, came):
    from testbed.errors import ModelError
    from testbed.models.classifier import _as_matrix

    with pytest.raises(ModelError) as error:
        _as_matrix(outputs(torch.zeros(4, 10)), 4, "m")
    assert str(error.value) == f"model 'm': expected a tensor of logits, got {came}"


def test_model_that_cannot_be_loaded_fails_all_its_pairs_alike(tmp_path):
    report, _ = tiny.run(tmp_path, ["tiny_unloadable"], ["tiny", "tiny.noise", "tiny-even"])
    assert len(report.failed) == 3
    assert sum("no such weights" in p.error for p in report.failed) == 2
    assert "'tiny', from which it is derived, failed" in {p.setting.name: p.error for p in report.failed}["tiny-even"]


def test_failed_pair_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.engine.worker.write_part", _raise(RuntimeError("once")))
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert tiny.failure(report) == "RuntimeError: once"
    monkeypatch.undo()
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert not report.failed
    assert [e.status for e in evaluations(store)] == ["completed"]


def test_failed_rerun_leaves_the_earlier_result_standing(tmp_path, monkeypatch):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    before = tiny.logits(store, "tiny_a", "tiny")
    monkeypatch.setattr("testbed.engine.worker.write_part", _raise(RuntimeError("once")))
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], overwrite=True)
    assert report.failed
    np.testing.assert_array_equal(tiny.logits(store, "tiny_a", "tiny"), before)


def test_full_disk_stops_the_run_and_keeps_what_is_finished(tmp_path, monkeypatch):
    from testbed.engine import worker

    real, calls = worker.write_part, []

    def write(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(worker, "write_part", write)
    with pytest.raises(StoreError, match="No space left on device; what is finished is kept: make room"):
        tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=64)
    monkeypatch.setattr(worker, "write_part", lambda *a: (calls.append(a), real(*a)))
    calls.clear()
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=64)
    assert not report.failed
    assert [start for _, start, _ in calls] == [128, 192]


def test_wrong_size_is_a_warning_in_the_row(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny-size"])
    assert not report.failed
    assert completed(store, "tiny_a", "tiny-size").warning.startswith("expected 201 images, found 200")


def test_out_of_memory_halves_the_batch_and_goes_on(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_greedy", "tiny_a"], ["tiny"])
    assert not report.failed
    np.testing.assert_allclose(
        tiny.logits(store, "tiny_greedy", "tiny"), tiny.logits(store, "tiny_a", "tiny"), atol=1e-4
    )
    assert completed(store, "tiny_greedy", "tiny").provenance.other["batch_size"] == 4


@pytest.mark.parametrize(
    ("models", "settings", "words"),
    [
        (["tiny_q"], ["tiny"], r"no model, group or tag 'tiny_q'; did you mean tiny_"),
        (["tiny_a"], ["tinny"], r"no eval setting, group or tag 'tinny'; did you mean tiny"),
        (["tiny_a"], ["xyz*"], r"no eval setting, group or tag 'xyz\*'"),
    ],
)
def test_wrong_name_stops_the_run_before_any_work(tmp_path, models, settings, words):
    with pytest.raises(UnknownName, match=words):
        tiny.run(tmp_path, models, settings)
    assert not list(tmp_path.glob("logits/*"))


@pytest.fixture
def pictures(tmp_path):
    """Three classes of four pictures, one of them cut short."""
    for name in ("ant", "bee", "cat"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        for i in range(4):
            pixels = np.random.default_rng(i).integers(0, 256, (12, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "folder" / name / f"{i}.jpg", quality=95)
    bad = tmp_path / "folder/bee/2.jpg"
    bad.write_bytes(bad.read_bytes()[:200])
    return str(tmp_path)


def _three_classes(monkeypatch):
    """tiny_a has ten outputs; the pictures have three classes: let the model give three."""
    from testbed.models import classifier

    real = classifier._as_matrix
    monkeypatch.setattr(classifier, "_as_matrix", lambda logits, n, name: real(logits, n, name)[:, :3])


def test_truncated_image_fails_the_pair_by_name(tmp_path, pictures):
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny-folder"], data_roots=(pictures,))
    assert "unreadable image" in tiny.failure(report)
    assert "bee/2.jpg" in tiny.failure(report)


def test_skipped_images_are_counted_and_left_out_of_metrics(tmp_path, pictures, monkeypatch):
    _three_classes(monkeypatch)
    report, store = tiny.run(
        tmp_path, ["tiny_a"], ["tiny-folder"], data_roots=(pictures,), skip_bad_images=True, chunk_size=4, batch_size=2
    )
    assert not report.failed
    evaluation = completed(store, "tiny_a", "tiny-folder")
    assert (evaluation.n_images, evaluation.n_bad) == (12, 1)
    assert evaluation.warning.endswith("; 1 unreadable image(s) left out")
    assert results(store)[0].n == 11
    assert len(tiny.logits(store, "tiny_a", "tiny-folder")) == 11


def test_images_are_decoded_once_for_all_models(tmp_path, pictures, monkeypatch):
    from testbed.data import images

    (tmp_path / "folder/bee/2.jpg").unlink()
    _three_classes(monkeypatch)
    decode, decoded = images.decode_rgb, []
    monkeypatch.setattr(images, "decode_rgb", lambda data, where: (decoded.append(where), decode(data, where))[1])
    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny-folder"], data_roots=(pictures,))
    assert len(decoded) == 11
    cached = tiny.logits(store, "tiny_b", "tiny-folder")
    _, store = tiny.run(tmp_path / "x", ["tiny_b"], ["tiny-folder"], data_roots=(pictures,), cache_gb=0)
    assert len(decoded) == 22
    np.testing.assert_array_equal(tiny.logits(store, "tiny_b", "tiny-folder"), cached)


def test_any_folder_and_any_list_of_pictures_is_a_setting(tmp_path, pictures, monkeypatch):
    (tmp_path / "folder/bee/2.jpg").unlink()
    rows = [f"folder/{name}/{i}.jpg,{name}" for name, i in (("ant", 0), ("cat", 1), ("bee", 3))]
    (tmp_path / "list.csv").write_text("\n".join(["image,label", *rows]) + "\n")
    settings = [f"folder:{tmp_path}/folder", f"manifest:{tmp_path}/list.csv"]
    report, store = tiny.run(tmp_path, ["tiny_pictures"], settings)
    assert not report.failed
    assert [r.n for r in results(store, metric="top1")] == [11, 3]


def test_interrupted_run_keeps_its_chunks_and_says_so(tmp_path, monkeypatch):
    from testbed.engine import worker

    real, calls = worker.write_part, []

    def write(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(worker, "write_part", write)
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=64)
    assert report.interrupted
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=64)
    assert not report.interrupted
    assert [start for _, start, _ in calls[2:]] == [64, 128, 192]  # the second was written, but not recorded


def test_chunks_of_other_weights_are_not_joined(tmp_path, monkeypatch):
    from testbed.engine import worker
    from testbed.models import classifier

    real = worker.write_part

    def write(folder, start, arrays):
        real(folder, start, arrays)
        if start == 64:
            raise KeyboardInterrupt

    monkeypatch.setattr(worker, "write_part", write)
    tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=64)
    monkeypatch.undo()
    monkeypatch.setattr(classifier, "state_sha256", lambda network: "f" * 64)
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=64)
    assert "weights changed" in tiny.failure(report)
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=64)
    assert not report.failed


def _raise(error):
    def function(*arguments, **more):
        raise error

    return function
