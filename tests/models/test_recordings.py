"""What a run keeps beside the logits: features caught on the way, rotation logits of a trained head."""

import contextlib

import numpy as np
import pytest
import torch

import tiny
from stored_results import completed
from testbed.data.arrays import ArrayDataset
from testbed.engine.rotation_training import Stepper, augmented, train_rotation_head
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import EntryError, ModelError
from testbed.models.classifier import LoadedModel
from testbed.models.features import FeatureWatch
from testbed.models.rotation import RotationHead, head_path, read_head, save_head, turned
from testbed.options import RunOptions
from testbed.store.measuring import outputs_of


def stored(store, model="tiny_a", setting="tiny"):
    return outputs_of(store, registry(), completed(store, model, setting))


def registry():
    found = Registry()
    found.load_folder(tiny.REGISTRY)
    return found


def images():
    pixels = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 3), dtype=np.uint8)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def test_features_are_what_goes_into_the_last_linear_layer(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"], record=("features",))
    assert not report.failed
    np.testing.assert_allclose(stored(store).extras["features"], images().flatten(1), atol=1e-6)
    even = np.arange(200) % 10 % 2 == 0
    derived = stored(store, setting="tiny-even").extras["features"]
    np.testing.assert_allclose(derived, images().flatten(1)[even], atol=1e-6)


def test_a_pair_stored_without_features_is_run_again_for_them_and_only_once(tmp_path):
    tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    plain, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert not plain.worked
    again, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], record=("features",))
    assert len(again.outcome.completed) == 1
    third, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], record=("features",))
    assert not third.worked
    without, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert not without.worked and "features" in stored(store).extras


def watched(network, feature_layer=None):
    entry = Model("net", None, lambda: network, 4, feature_layer=feature_layer)
    loaded = LoadedModel(entry, "cpu", RunOptions())
    watch = FeatureWatch(loaded.network, loaded.entry.name, loaded.entry.feature_layer)
    with torch.no_grad(), watch.watching():
        loaded.network(torch.arange(2 * 3 * 8 * 8.0).view(2, 3, 8, 8) / 384)
        return watch.features(2)


def test_convolutional_heads_and_named_layers_give_one_row_per_image():
    torch.manual_seed(0)
    body, head = torch.nn.Conv2d(3, 5, 3), torch.nn.Conv2d(5, 10, 1)
    network = torch.nn.Sequential(body, head, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    x = torch.arange(2 * 3 * 8 * 8.0).view(2, 3, 8, 8) / 384
    torch.testing.assert_close(watched(network), body(x).mean(dim=(2, 3)).detach())
    torch.testing.assert_close(watched(network, feature_layer="1"), head(body(x)).mean(dim=(2, 3)).detach())


def test_what_cannot_be_watched_is_told_in_one_line():
    with pytest.raises(ModelError, match="no features found; name the layer"):
        watched(torch.nn.Flatten())
    with pytest.raises(ModelError, match="has no layer 'nowhere'"):
        watched(torch.nn.Flatten(), feature_layer="nowhere")
    with pytest.raises(EntryError, match="expected features or rotation, got 'heat'"):
        RunOptions(record=("heat",))
    with pytest.raises(EntryError, match="--compile"):
        RunOptions(record=("features",), compile=True)


def test_rotation_needs_its_head_and_then_records_the_logits_of_four_turns(tmp_path):
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], record=("rotation",), results_folder=str(tmp_path))
    assert "no rotation head for 'tiny_a'" in tiny.failure(report)
    assert "--train-rotation-head tiny_a" in tiny.failure(report)
    options = RunOptions(cache_folder=str(tmp_path / "cache"))
    head, digest = train_rotation_head(registry().model("tiny_a"), registry().eval_setting("tiny"), options, epochs=2)
    save_head(head_path(tmp_path, "tiny_a"), head, digest, "tiny")
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], record=("rotation",), results_folder=str(tmp_path))
    assert not report.failed
    views = [torch.rot90(images(), quarters, (2, 3)).flatten(1) for quarters in range(4)]
    expected = torch.stack([head(view) for view in views], dim=1).detach()
    np.testing.assert_allclose(stored(store).extras["rotation"], expected, atol=1e-4)
    with pytest.raises(ModelError, match="trained for other weights"):
        read_head(head_path(tmp_path, "tiny_a"), "tiny_a", "0" * 64)


def save_random_head(folder, seed, model="tiny_a"):
    """A head of the tiny model, not trained."""
    digest = LoadedModel(registry().model("tiny_a"), "cpu", RunOptions()).weights_sha256
    torch.manual_seed(seed)
    head = RotationHead(192)
    save_head(head_path(folder, model), head, digest, "tiny", epochs=20, seed=seed, limit=None)
    return head


def test_logits_of_another_rotation_head_are_recorded_again(tmp_path):
    how = dict(record=("rotation",), results_folder=str(tmp_path))
    save_random_head(tmp_path, 1)
    tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"], **how)
    same, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"], **how)
    assert not same.worked
    first = completed(store, "tiny_a", "tiny").provenance.rotation_head
    assert {k: v for k, v in first.items() if k != "sha256"} == {"trained_on": "tiny", "epochs": "20", "seed": "1"}
    save_random_head(tmp_path, 2)
    again, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"], **how)
    assert again.worked and not again.failed
    assert completed(store, "tiny_a", "tiny").provenance.rotation_head["sha256"] != first["sha256"]
    save_random_head(tmp_path, 2)  # trained again with the same outcome
    third, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"], **how)
    assert not third.worked
    features_only, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], record=("features",))
    assert not features_only.worked


def test_a_head_that_is_trained_anew_in_the_middle_of_a_pair_fails_it(tmp_path, monkeypatch):
    from testbed.engine.recording import Recorder

    save_random_head(tmp_path, 1)
    recorded = Recorder.chunks

    def retrain_and_record(self, done):
        save_random_head(tmp_path, 2)
        return recorded(self, done)

    monkeypatch.setattr(Recorder, "chunks", retrain_and_record)
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], record=("rotation",), results_folder=str(tmp_path))
    assert "rotation head changed while the pair was under way" in tiny.failure(report)


def test_chunks_of_an_older_head_are_not_joined_with_those_of_a_new_one(tmp_path, monkeypatch):
    from testbed.engine.recording import Recorder

    how = dict(record=("rotation",), results_folder=str(tmp_path), chunk_size=64)
    save_random_head(tmp_path, 1)
    recorded = Recorder.chunks

    def record_and_stop(self, done):
        recorded(self, done)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping, contextlib.suppress(KeyboardInterrupt):
        stopping.setattr(Recorder, "chunks", record_and_stop)
        tiny.run(tmp_path, ["tiny_a"], ["tiny"], **how)
    head = save_random_head(tmp_path, 2)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], **how)
    assert not report.failed
    expected = head(images().flatten(1)).detach()
    np.testing.assert_allclose(stored(store).extras["rotation"][:, 0], expected, atol=1e-4)


def test_a_checkpoint_has_a_rotation_head_of_its_own(tmp_path):
    network = registry().model("tiny_a").classifier_loader()
    torch.save(network.state_dict(), tmp_path / "mine.pt")
    how = dict(record=("rotation",), results_folder=str(tmp_path), checkpoint=str(tmp_path / "mine.pt"))
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], **how)
    said = f"`python autoeval.py --train-rotation-head tiny_a --checkpoint {tmp_path}/mine.pt --on SETTING` trains one"
    assert said in tiny.failure(report)
    save_random_head(tmp_path, 1, "tiny_a@mine")
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], **how)
    assert not report.failed


def test_steps_are_of_64_whatever_the_batches_are():
    """Batches of 100, of 7 and of all at once give the same head."""
    features = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(4, (300,), generator=torch.Generator().manual_seed(1))
    weights = []
    for size in (100, 7, 300):
        torch.manual_seed(0)
        head = RotationHead(6)
        steps = Stepper(head, epochs=3)
        for _ in range(3):
            for rows, truths in zip(features.split(size), labels.split(size), strict=True):
                steps.learn(rows, truths)
            steps.end_epoch()
        weights.append(head.weight.detach().clone())
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)
    torch.testing.assert_close(weights[0], weights[2], rtol=0, atol=0)


def test_turns_are_the_published_ones():
    image = torch.arange(6.0).view(1, 1, 2, 3)
    torch.testing.assert_close(turned(image, 1), image.flip(3).transpose(2, 3))  # 90: flip W, then transpose
    torch.testing.assert_close(turned(image, 2), image.flip(2, 3))  # 180: flip both
    torch.testing.assert_close(turned(image, 3), image.transpose(2, 3).flip(3))  # 270: transpose, then flip W


def test_training_is_seeded_and_learns_which_side_is_up(tmp_path):
    """Pictures that are bright at the top: a linear head on the pixels can tell every turn."""
    rng = np.random.default_rng(1)
    bright = np.linspace(255, 0, 8)[:, None, None] * np.ones((8, 8, 3))
    pictures = np.clip(bright + rng.normal(0, 20, (300, 8, 8, 3)), 0, 255).astype(np.uint8)

    np.savez(tmp_path / "bright.npz", images=pictures, labels=np.zeros(300, int))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
    model = Model("net", None, lambda: network, 100)
    setting = EvalSetting("bright", dataset=ArrayDataset(path=tmp_path / "bright.npz"))
    accuracy = []
    heads = [
        train_rotation_head(model, setting, RunOptions(cache_gb=0), epochs=8, seen=lambda n, a: accuracy.append(a))[0]
        for _ in range(2)
    ]
    torch.testing.assert_close(heads[0].weight, heads[1].weight, rtol=0, atol=0)
    assert np.mean(accuracy[-3:]) > 95 > np.mean(accuracy[:1])


def test_augmentation_crops_and_flips_within_a_black_border():
    generator = torch.Generator().manual_seed(3)
    picture = torch.rand(1, 3, 16, 16, generator=generator).expand(64, -1, -1, -1)
    padded = torch.nn.functional.pad(picture[0], (2, 2, 2, 2))
    crops = {
        padded[:, top : top + 16, left : left + 16].flip(flip).numpy().tobytes()
        for top in range(5)
        for left in range(5)
        for flip in ([], [2])
    }
    made = augmented(picture, generator)
    assert all(crop.contiguous().numpy().tobytes() in crops for crop in made)
    assert len({crop.contiguous().numpy().tobytes() for crop in made}) > 20


def test_turns_go_with_their_pictures_where_a_batch_comes_back_in_parts():
    from testbed.engine.rotation_training import RandomTurns

    turns = RandomTurns(torch.Generator().manual_seed(0))
    images = torch.rand(6, 3, 8, 8)
    turns(images)
    expected = RandomTurns(torch.Generator().manual_seed(0))
    expected(images)
    parts = [turns.take(2), turns.take(4)]
    assert torch.cat(parts).tolist() == expected.take(6).tolist()
    assert len(turns.take(1)) == 0
