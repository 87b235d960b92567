"""CIFAR-10 and -100, newer test sets of CIFAR-10, and corruptions on disk and in memory (32-pixel constants)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed import ArrayDataset, EvalSetting, registry
from testbed.metrics.aggregates import CorruptionSummary
from testbed.metrics.classification import classification
from testbed.perturb.corruptions import CORRUPTIONS, corruption

data = registry.load_module(Path(__file__).with_name("_cifar_data.py"))

SEVERITIES = range(1, 6)


def add(name: str, *tags: str, **what: Any) -> None:
    registry.add_eval_setting(EvalSetting(name=name, metrics_fn=classification, tags=("cifar", *tags), **what))


def add_training(name: str, dataset: ArrayDataset) -> None:
    """The images that models were trained on. The tags of the test sets would run them with these."""
    registry.add_eval_setting(
        EvalSetting(name=name, dataset=dataset, size=data.TRAIN_SIZE, metrics_fn=classification, tags=("training",))
    )


def add_corrupted(name: str, clean: str, dataset: ArrayDataset, size: int, *tags: str) -> None:
    """Add <name>.<corruption>.<severity>, computed in memory from the clean images, and the group <name>."""
    for kind in CORRUPTIONS:
        for severity in SEVERITIES:
            add(
                f"{name}.{kind}.{severity}",
                *(*tags, "corruption"),
                dataset=dataset,
                size=size,
                perturbation_fn_cpu=corruption(kind, severity),
                version=corruption(kind, severity).version,
                parent_eval_setting=clean,
            )
    add_group(name, f"{name}.{{corruption}}.{{severity}}", clean)


def add_published(name: str, clean: str, folder: str, record: int, num_classes: int, *tags: str) -> None:
    """Add <name>.<corruption>.<severity>_on-disk from the published arrays, and their group."""
    for kind in CORRUPTIONS:
        for severity in SEVERITIES:
            add(
                f"{name}.{kind}.{severity}_on-disk",
                *(*tags, "corruption"),
                dataset=ArrayDataset(
                    name=folder,
                    also=(folder.lower(),),
                    files=(f"{kind}.npy", "labels.npy"),
                    # One file per corruption: 10,000 images of severity 1, then those of severity 2, and so on.
                    rows=(10_000 * (severity - 1), 10_000 * severity),
                    num_classes=num_classes,
                    source=f"zenodo.org/records/{record}, {folder}.tar (CC-BY-4.0), unpacked",
                ),
                size=10_000,
                parent_eval_setting=clean,
            )
    add_group(f"{name}-on-disk", f"{name}.{{corruption}}.{{severity}}_on-disk", clean)


def add_group(name: str, pattern: str, clean: str) -> None:
    members = [pattern.format(corruption=kind, severity=severity) for kind in CORRUPTIONS for severity in SEVERITIES]
    registry.add_group(name, members, aggregate=CorruptionSummary(pattern, clean, CORRUPTIONS))


# ---- CIFAR-10 --------------------------------------------------------------------------------------------

add("cifar10-test", "cifar10", dataset=data.TEST, size=data.TEST_SIZE)
add_training("cifar10-train", data.TRAIN)
add_corrupted("cifar10-c", "cifar10-test", data.TEST, data.TEST_SIZE, "cifar10")
add_published("cifar10-c", "cifar10-test", "CIFAR-10-C", 2535967, 10, "cifar10")

_NEW = {"cifar10.1-v4": 2_021, "cifar10.1-v6": 2_000}
for _name, _size in _NEW.items():
    _version = _name.rpartition("-")[2]
    _images = ArrayDataset(
        name="cifar10.1",
        also=("CIFAR-10.1/datasets", "CIFAR-10.1"),
        files=(f"cifar10.1_{_version}_data.npy", f"cifar10.1_{_version}_labels.npy"),
        num_classes=10,
        source="github.com/modestyachts/CIFAR-10.1 (MIT), folder datasets",
    )
    add(_name, "cifar10", dataset=_images, size=_size)
# `_images` is that of the last pass, v6.
add_corrupted("cifar10.1-c", "cifar10.1-v6", _images, 2_000, "cifar10")

add(
    "cifar10.2-test",
    "cifar10",
    dataset=ArrayDataset(
        name="cifar10.2/cifar102_test.npz",
        also=("cifar-10.2/cifar102_test.npz",),
        num_classes=10,
        source=f"the test images of github.com/modestyachts/cifar-10.2 {data.NPZ}",
    ),
    size=2_000,
)

# ---- CIFAR-100 -------------------------------------------------------------------------------------------

add("cifar100-test", "cifar100", dataset=data.TEST_100, size=data.TEST_SIZE)
add_training("cifar100-train", data.TRAIN_100)
add_corrupted("cifar100-c", "cifar100-test", data.TEST_100, data.TEST_SIZE, "cifar100")
add_published("cifar100-c", "cifar100-test", "CIFAR-100-C", 3555552, 100, "cifar100")
