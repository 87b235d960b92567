"""Statistics of batch normalisation recomputed on a setting's pictures: against torch's own update_bn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import update_bn

from testbed import EvalSetting, Model, StandardNormalization
from testbed.data.arrays import ArrayDataset
from testbed.engine.batch_norm import load_model
from testbed.errors import ModelError
from testbed.options import RunOptions

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
OPTIONS = RunOptions(cache_gb=0.0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "testbed" / "batch-norm"


@pytest.fixture
def setting(tmp_path) -> EvalSetting:
    np.savez(tmp_path / "pictures.npz", images=IMAGES, labels=np.zeros(30, dtype=np.int64))
    return EvalSetting(name="pictures", dataset=ArrayDataset(path=str(tmp_path / "pictures.npz")))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3))


def entry(setting: EvalSetting, batch: int = 10) -> Model:
    normalization = StandardNormalization(mean=[0.5] * 3, std=[0.25] * 3)
    return Model("net", None, network, batch, normalization, statistics_from=setting)


def test_statistics_are_those_of_torch(setting) -> None:
    expected = network()
    normalised = (torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    update_bn(normalised.split(10), expected)
    loaded = load_model(entry(setting), "cpu", OPTIONS)
    assert torch.allclose(loaded.network[1].running_mean, expected[1].running_mean, atol=1e-5)
    assert torch.allclose(loaded.network[1].running_var, expected[1].running_var, atol=1e-5)
    assert loaded.network[1].num_batches_tracked == 3
    assert not any(part.training for part in loaded.network.modules())
    assert loaded.network[1].momentum == 0.1
    assert loaded.facts()["batch_norm"].startswith("statistics recomputed on 30 pictures of pictures")


def test_the_checksum_is_that_of_the_recomputed_network(setting) -> None:
    plain = load_model(replace(entry(setting), statistics_from=None), "cpu", OPTIONS)
    assert load_model(entry(setting), "cpu", OPTIONS).weights_sha256 not in (None, plain.weights_sha256)


def test_batches_are_nearly_equal_since_each_counts_alike(setting) -> None:
    """29 of 30 pictures in one batch and one in another would give that one half of the weight."""
    loaded = load_model(entry(setting, batch=29), "cpu", OPTIONS)
    expected = network()
    normalised = (torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    update_bn(normalised.split(15), expected)
    assert torch.allclose(loaded.network[1].running_var, expected[1].running_var, atol=1e-5)


def test_what_one_process_computed_stands_for_all(setting, cache) -> None:
    """So that workers on unlike devices have the same bits. Other pictures are computed anew."""
    first = load_model(entry(setting), "cpu", OPTIONS)
    (kept,) = cache.iterdir()
    values = load_file(kept)
    mean = values["0.running_mean"] + 1
    save_file({**values, "0.running_mean": mean}, kept)
    assert torch.allclose(load_model(entry(setting), "cpu", OPTIONS).network[1].running_mean, mean)
    fewer = replace(setting, idx_subsample_list=tuple(range(20)))
    assert not torch.equal(load_model(entry(fewer), "cpu", OPTIONS).network[1].running_mean, mean)
    assert first.network[1].running_mean.isfinite().all()
    kept.write_bytes(kept.read_bytes()[:-3])  # torn: computed again
    again = load_model(entry(setting), "cpu", OPTIONS)
    assert torch.equal(again.network[1].running_mean, first.network[1].running_mean)


def test_a_limit_of_the_run_does_not_limit_the_statistics(setting) -> None:
    told = load_model(entry(setting), "cpu", replace(OPTIONS, limit=4)).facts()["batch_norm"]
    assert told.startswith("statistics recomputed on 30 pictures")


def test_a_network_without_such_layers_stays_as_it_is(setting) -> None:
    plain = replace(entry(setting), classifier_loader=lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)))
    assert load_model(plain, "cpu", OPTIONS).facts()["batch_norm"] == "none"


@pytest.mark.parametrize("rows", [(0,), None])
def test_pictures_that_are_too_few_or_missing_are_told_in_one_line(setting, rows) -> None:
    if rows:
        setting, message = (
            replace(setting, idx_subsample_list=rows),
            "expected at least 2 pictures of 'pictures', got 1",
        )
    else:
        setting, message = replace(setting, dataset=ArrayDataset(path="gone.npz")), "gone.npz"
    with pytest.raises(ModelError, match=rf"model 'net': its statistics cannot be recomputed: .*{message}"):
        load_model(entry(setting), "cpu", OPTIONS)


def test_a_blend_of_networks_with_batch_normalisation_warns_or_recomputes(tmp_path) -> None:
    from testbed.engine.run import run_evaluations
    from testbed.entries.registry import load_registry
    from testbed.store.find import find
    from testbed.store.opening import open_store

    registry, store = load_registry(), open_store(str(tmp_path / "results.db"), create=True)
    registry.models.entries |= {
        name: Model(name, None, lambda seed=seed: _net(seed), 16) for seed, name in enumerate(("one", "other"))
    }
    names = ["blend:one+other@0.5", "blend:one+other@0.5,bn=rows:0-64@digits", "blend:one+other@1,bn=digits", "other"]
    options = RunOptions(cache_folder=str(tmp_path / "cache"), limit=20)
    report = run_evaluations(registry, store, names, ["digits"], options, devices=["cpu"], inline=True, quiet=True)
    assert not report.failed
    averaged, recomputed, end, other = (find(store, [name], variant="*")[0] for name in names)
    assert "the statistics of its 1 batch-normalisation layers are averages" in averaged.warning
    assert averaged.provenance.other["blend"]["batch_norm"] == "statistics averaged"
    assert "averages" not in (recomputed.warning or "")
    assert "64 pictures of rows:0-64@digits" in recomputed.provenance.other["batch_norm"]
    assert len({e.weights_sha256 for e in (averaged, recomputed, end)}) == 3
    assert end.weights_sha256 == other.weights_sha256


def _net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 10)
    )
