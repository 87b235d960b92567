"""The published ResNet-20 for CIFAR-10 on its real test set: thresholds known from another program."""

import pytest

from shared_data import shared_data
from testbed.engine.run import run_evaluations
from testbed.entries.registry import load_registry
from testbed.options import RunOptions
from testbed.store.find import find_one
from testbed.store.measuring import outputs_of
from testbed.studies.labelfree.outputs import Source
from testbed.studies.labelfree.scores import METHODS

pytestmark = pytest.mark.long


def test_resnet_20_has_the_thresholds_measured_elsewhere(store, tmp_path, monkeypatch):
    """-0.393 at the error quantile, -9.6e-10 at the accuracy quantile that autoeval_baselines takes."""
    monkeypatch.setenv("TESTBED_WEIGHTS", str(shared_data("cifar10", "weights")))
    options = RunOptions(data_roots=(str(shared_data()),), cache_folder=str(tmp_path / "cache"))
    registry = load_registry()
    report = run_evaluations(
        registry, store, ["cifar_resnet20"], ["cifar10-test"], options, devices=["cpu"], quiet=True
    )
    assert not report.failed, report.failed[0].error
    clean = Source.of(outputs_of(store, registry, find_one(store, "cifar_resnet20", "cifar10-test")))
    assert clean.accuracy == pytest.approx(0.9173)
    assert clean.threshold("negative_entropy") == pytest.approx(-0.393, abs=5e-4)
    assert clean.compat_threshold == pytest.approx(-9.6e-10, rel=1e-2)
    assert METHODS["confscore"].compute(clean.outputs, clean) == pytest.approx(0.9702, abs=5e-5)
    assert METHODS["atc"].compute(clean.outputs, clean) == pytest.approx(0.0827)
    assert METHODS["atc-compat"].compute(clean.outputs, clean) == pytest.approx(0.9173)
