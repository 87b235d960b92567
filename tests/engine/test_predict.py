"""predict: models and rows in, outputs out. No database and no process is needed for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import testbed
import tiny
from stored_results import completed
from testbed import ArrayDataset, EvalSetting, Model, StandardNormalization, StandardTransform
from testbed.engine.predict import predict, predict_all
from testbed.engine.preparing import LocalPreparer as Preparer
from testbed.entries.registry import Registry
from testbed.errors import EntryError, ImageError
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions
from testbed.perturb.corruptions import corruption

OPTIONS = RunOptions(cache_gb=0)


@pytest.fixture(scope="module")
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


def loaded(registry, *names, options=OPTIONS):
    return [LoadedModel(registry.model(name), "cpu", options) for name in names]


def test_outputs_are_those_that_a_run_stores(registry, tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_b"], ["tiny.noise"])
    (model,) = loaded(registry, "tiny_b")
    outputs = predict_all(model, registry.runnable("tiny.noise"), OPTIONS)
    np.testing.assert_array_equal(outputs.logits, tiny.logits(store, "tiny_b", "tiny.noise"))
    assert outputs.model == "tiny_b"
    assert outputs.targets.tolist() == (np.arange(200) % 10).tolist()
    facts = completed(store, "tiny_b", "tiny.noise").provenance
    assert outputs.facts["transform"] == facts.other["transform"] == "None"
    assert outputs.facts["batch_size"] == 16


def test_several_models_get_what_each_gets_alone_and_every_image_is_perturbed_once(registry):
    calls = []

    def noise(image, rng):
        calls.append(1)
        return (image + torch.from_numpy(rng.normal(0, 0.2, tuple(image.shape)).astype("float32"))).clamp(0, 1)

    setting = replace(registry.runnable("tiny.noise"), perturbation_fn_cpu=noise)
    models = loaded(registry, "tiny_a", "tiny_b", "tiny_votes")
    preparer = Preparer(OPTIONS)
    rows = setting.rows(preparer.samples(setting))
    together: dict[str, list[np.ndarray]] = {}
    for outputs in predict(models, setting, rows, OPTIONS, preparer):
        together.setdefault(outputs.model, []).append(outputs.logits)
    assert len(calls) == 200
    assert list(together) == ["tiny_a", "tiny_b", "tiny_votes"]
    for model in models:
        alone = predict_all(model, registry.runnable("tiny.noise"), OPTIONS)
        np.testing.assert_array_equal(np.concatenate(together[model.entry.name]), alone.logits)


def test_a_perturbation_on_the_device_that_needs_no_model_is_called_once_for_all(registry):
    calls = []

    def noise(images, rng):
        calls.append(len(images))
        return (images + 0.2 * rng.normal(images.shape[1:])).clamp(0, 1)

    setting = replace(registry.runnable("tiny.batch_noise"), perturbation_fn_gpu=noise)
    models = loaded(registry, "tiny_a", "tiny_b")
    rows = setting.rows(Preparer(OPTIONS).samples(setting))
    first, *_ = predict(models, setting, rows, OPTIONS)
    assert sum(calls) == 200
    alone = predict_all(models[0], registry.runnable("tiny.batch_noise"), OPTIONS)  # this one takes the model
    np.testing.assert_array_equal(first.logits, alone.logits[:16])


def test_a_network_that_writes_into_its_input_does_not_change_what_the_next_one_sees(registry):
    spoiling = replace(registry.model("tiny_a"), name="spoiling", classify=lambda images, model: model(images.zero_()))
    models = [LoadedModel(spoiling, "cpu", OPTIONS), *loaded(registry, "tiny_a")]
    setting = registry.runnable("tiny.noise")
    rows = setting.rows(Preparer(OPTIONS).samples(setting))
    together = [o.logits for o in predict(models, setting, rows, OPTIONS) if o.model == "tiny_a"]
    np.testing.assert_array_equal(np.concatenate(together), predict_all(models[1], setting, OPTIONS).logits)


def test_logits_that_lie_in_the_memory_of_the_images_stay_as_they_were(registry):
    pixels = replace(registry.model("tiny_a"), name="pixels", classify=lambda images, model: images.flatten(1)[:, :10])
    spoiling = replace(pixels, name="spoiling", classify=lambda images, model: images.zero_().flatten(1)[:, :10])
    models = [*(LoadedModel(entry, "cpu", OPTIONS) for entry in (pixels, spoiling)), *loaded(registry, "tiny_a")]
    setting = registry.runnable("tiny.noise")
    rows = setting.rows(Preparer(OPTIONS).samples(setting))
    together = [o for o in predict(models, setting, rows, OPTIONS) if o.model == "pixels"]
    alone = predict_all(models[0], setting, OPTIONS)
    np.testing.assert_array_equal(np.concatenate([o.logits for o in together]), alone.logits)


@pytest.mark.parametrize(
    "other",
    [
        {"transform": StandardTransform(8, 8)},
        {"eval_batch_size": 12},
    ],
)
def test_models_that_see_other_batches_are_refused(registry, other):
    entry = registry.model("tiny_a")
    models = [LoadedModel(e, "cpu", OPTIONS) for e in (entry, replace(entry, name="other", **other))]
    setting = registry.runnable("tiny")
    rows = setting.rows(Preparer(OPTIONS).samples(setting))
    with pytest.raises(EntryError, match="predict: tiny_a, other do not prepare their images alike"):
        next(predict(models, setting, rows, OPTIONS))


def test_some_rows_are_predicted_in_their_order_with_their_numbers(registry):
    (model,) = loaded(registry, "tiny_a")
    setting = registry.runnable("tiny.noise")
    rows = setting.rows(Preparer(OPTIONS).samples(setting))
    whole, some = predict_all(model, setting, OPTIONS), np.array([150, 3, 77])
    part = predict_all(model, setting, OPTIONS, rows.take(some))
    np.testing.assert_allclose(part.logits, whole.logits[some], atol=1e-5)
    assert part.rows.numbers.tolist() == part.rows.indices.tolist() == [150, 3, 77]


def test_unreadable_images_are_an_error_or_missing_from_the_rows(tmp_path, image_folder):
    folder = image_folder([f"{label}/{i}.png" for label in "ab" for i in range(3)], size=8)
    (folder / "a" / "1.png").write_bytes(b"no picture")
    setting = EvalSetting(name="mine", dataset=testbed.StandardDataset(path=folder))
    model = LoadedModel(Model("flat", None, lambda: lambda images: images.flatten(1)[:, :2], 4), "cpu", OPTIONS)
    with pytest.raises(ImageError):
        predict_all(model, setting, OPTIONS)
    outputs = predict_all(model, setting, replace(OPTIONS, skip_bad_images=True))
    assert outputs.rows.numbers.tolist() == [0, 2, 3, 4, 5]


def test_a_batch_that_once_did_not_fit_is_split_from_then_on(registry):
    sizes: list[int] = []

    def greedy(images, model):
        sizes.append(len(images))
        if len(images) > 4:
            raise torch.OutOfMemoryError("tried to allocate more than there is")
        return model(images)

    entry = replace(registry.model("tiny_a"), name="greedy", classify=greedy)
    notes: list[str] = []
    setting = registry.runnable("tiny")
    rows = setting.rows(Preparer(OPTIONS).samples(setting))
    parts = list(predict([LoadedModel(entry, "cpu", OPTIONS)], setting, rows, OPTIONS, note=notes.append))
    assert sum(map(len, parts)) == 200
    assert sizes[:3] == [16, 8, 4]
    assert max(sizes[10:]) == 4  # no later batch is tried whole
    assert notes[-1] == "greedy on tiny: out of memory, batch size is now 4"
    assert parts[-1].facts["batch_size"] == 4


@pytest.mark.parametrize(("fits", "expected"), [(40, [4, 8, 16, 32, 64, 32, 32]), (512, [4, 8, 16, 32, 64, 76])])
def test_automatic_batch_size_doubles_until_memory_runs_out(registry, fits, expected):
    sizes: list[int] = []

    def greedy(images, model):
        sizes.append(len(images))
        if len(images) > fits:
            raise torch.OutOfMemoryError("tried to allocate more than there is")
        return model(images)

    options = replace(OPTIONS, batch_size="auto")
    entry = replace(registry.model("tiny_a"), name="greedy", classify=greedy, eval_batch_size=4)
    setting = registry.runnable("tiny")
    rows = setting.rows(Preparer(OPTIONS).samples(setting))
    loaded = LoadedModel(entry, "cpu", options)
    assert not loaded.grows  # on a CPU every batch has the model's own size
    loaded.grows = True
    notes: list[str] = []
    parts = list(predict([loaded], setting, rows, options, note=notes.append))
    assert sum(map(len, parts)) == 200
    assert sizes[: len(expected)] == expected
    if fits == 40:
        assert max(sizes[len(expected) :]) == 32
        assert notes == ["greedy on tiny: out of memory, batch size is now 32"]
        assert parts[-1].facts["batch_size"] == 32


@pytest.mark.parametrize(("own", "prepared"), [(4, 512), (64, 512), (100, 400), (512, 512), (600, 600)])
def test_batches_of_automatic_size_are_whole_numbers_of_the_models_own(own, prepared):
    assert RunOptions(batch_size="auto").batch_of(own) == prepared
    assert RunOptions().batch_of(own) == own
    assert RunOptions(batch_size=7).batch_of(own) == 7


def test_textures_are_found_in_the_data_root_of_a_run_in_this_process(tmp_path, monkeypatch):
    """Frost needs photographs; a run inside this process finds them where it was told, as worker processes do."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "somewhere" / "frost"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"):
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(folder / name)
    images = rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    setting = EvalSetting(
        name="frozen",
        dataset=ArrayDataset(make=lambda: (images, np.arange(6) % 3), num_classes=3),
        perturbation_fn_cpu=corruption("frost", 3),
    )
    model = Model("flat", None, lambda: lambda batch: batch.flatten(1)[:, :3], 4)
    table = testbed.evaluate(model, setting, data_root=str(tmp_path / "somewhere"), db="r.db", gpus=["cpu"], quiet=True)
    assert table.n.tolist() == [6]


def test_predict_needs_neither_database_nor_registry(monkeypatch):
    """A bare module is enough, and nothing of the store is opened."""

    def refused(*arguments, **more):
        raise AssertionError("predict opened a database")

    monkeypatch.setattr("testbed.store.opening.open_store", refused)
    monkeypatch.setattr("sqlalchemy.create_engine", refused)
    images = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    setting = EvalSetting(name="black", dataset=ArrayDataset(make=lambda: (images, np.zeros(4)), num_classes=2))
    normalization = StandardNormalization([0.5] * 3, [0.5] * 3)
    entry = Model("sum", None, lambda: lambda batch: batch.flatten(1)[:, :2], 2, normalization)
    outputs = predict_all(LoadedModel(entry, "cpu", OPTIONS), setting, OPTIONS)
    assert outputs.logits.tolist() == [[-1.0, -1.0]] * 4


def test_a_network_that_takes_views_of_its_activations_is_run_in_the_usual_layout(registry):
    """x.view(n, -1) of a convolution fails where channels lie last, which is the default on the CPU."""

    class Viewing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Conv2d(3, 4, 3)
            self.formats = []

        def forward(self, images):
            self.formats.append(images.is_contiguous(memory_format=torch.channels_last))
            return self.layer(images).view(len(images), -1)[:, :10]

    network = Viewing()
    setting = registry.runnable("tiny")
    model = LoadedModel(Model("viewing", None, lambda: network, 64), "cpu", OPTIONS)
    outputs = predict_all(model, setting, OPTIONS)
    assert network.formats == [True, False, False, False, False]
    assert outputs.facts["channels_last"] is False
    plain = LoadedModel(Model("viewing", None, Viewing, 64), "cpu", replace(OPTIONS, channels_last=False))
    np.testing.assert_array_equal(outputs.logits, predict_all(plain, setting, OPTIONS).logits)


def test_layouts_differ_by_rounding_only(registry):
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(576, 10)
    )
    logits = []
    for last in (True, False):
        options = replace(OPTIONS, channels_last=last)
        model = LoadedModel(Model("net", None, lambda: network, 64), "cpu", options)
        logits.append(predict_all(model, registry.runnable("tiny"), options).logits)
    np.testing.assert_allclose(*logits, atol=1e-5)
