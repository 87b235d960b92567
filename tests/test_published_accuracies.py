"""Real weights give their published accuracies, through eval.py's own path over two CPU workers."""

import pytest

from shared_data import shared_data
from stored_results import results
from testbed.engine.run import run_evaluations
from testbed.entries.registry import load_registry
from testbed.options import RunOptions
from testbed.store.opening import open_store

pytestmark = pytest.mark.long


def top1(folder, models, setting, **options):
    """Accuracy of each model in percent."""
    store = open_store(str(folder / "results.db"), create=True)
    run = RunOptions(data_roots=(str(shared_data()),), cache_folder=str(folder / "cache"), **options)
    report = run_evaluations(load_registry(), store, models, [setting], run, devices=["cpu", "cpu"], quiet=True)
    assert not report.failed, report.failed[0].error
    return {r.model: r.value for r in results(store, metric="top1")}


def test_cifar_resnets_reach_their_published_accuracy_to_the_last_digit(tmp_path, monkeypatch):
    """README of akamaster/pytorch_resnet_cifar10: test error 8.27 % and 7.37 %."""
    monkeypatch.setenv("TESTBED_WEIGHTS", str(shared_data("cifar10", "weights")))
    found = top1(tmp_path, ["cifar_resnet20", "cifar_resnet32"], "cifar10-test")
    assert {name: round(value, 2) for name, value in found.items()} == {
        "cifar_resnet20": 91.73,
        "cifar_resnet32": 92.63,
    }


def test_imagenet_classifiers_agree_with_an_independent_measurement(tmp_path, monkeypatch):
    """Measured elsewhere on all 1,000 sample photographs; every second one is here, hence the tolerance."""
    monkeypatch.setenv("TESTBED_WEIGHTS", str(shared_data("imagenet-weights")))
    elsewhere = {
        "efficientnet_lite0": 88.3,
        "efficientnet_lite1": 89.9,
        "efficientnet_lite2": 90.8,
        "mobilenet_v2": 83.9,
        "mobilenet_v3_small": 82.0,
        "squeezenet1_0": 61.2,
    }
    found = top1(tmp_path, list(elsewhere), "imagenet-samples")
    assert found == pytest.approx(elsewhere, abs=1.6)
