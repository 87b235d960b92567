"""ImageNet validation, other metrics of its stored logits, and sets with all 1000 classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from testbed import StandardDataset, TestbedError, registry
from testbed.metrics.accuracy import class_accuracy
from testbed.metrics.calibration import calibration
from testbed.metrics.classification import subset_classification
from testbed.metrics.multilabel import ValidationLabels
from testbed.perturb.colour import greyscale

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))


@cache
def real_labels() -> Sequence[Sequence[int]]:
    """The ReaL labels of Beyer et al. 2020 (Apache-2.0), a file of timm; 3,163 images have none."""
    timm = find_spec("timm")  # located without importing it, which takes seconds
    folders = (timm.submodule_search_locations or []) if timm else []
    for folder in folders:
        path = Path(folder) / "data" / "_info" / "imagenet_real_labels.json"
        if path.is_file():
            labels: Sequence[Sequence[int]] = json.loads(path.read_text(encoding="utf-8"))
            return labels
    raise TestbedError("imagenet-real needs the labels that come with timm: pip install timm")


imagenet.add("val", imagenet.PUBLISHED, dataset=imagenet.VAL, size=imagenet.VAL_SIZE)
imagenet.add(
    "val_subsampled_class_1_8",
    imagenet.PUBLISHED,
    logits_from="val",
    class_sublist=imagenet.class_list("class_1_8"),
    metrics_fn=subset_classification,
    size=6_250,
)
imagenet.add("val-classes", logits_from="val", metrics_fn=class_accuracy, size=imagenet.VAL_SIZE)
imagenet.add("val-calibration", logits_from="val", metrics_fn=calibration, size=imagenet.VAL_SIZE)
imagenet.add("imagenet-real", logits_from="val", metrics_fn=ValidationLabels(real_labels), size=imagenet.VAL_SIZE)

imagenet.add(
    "greyscale",
    imagenet.PUBLISHED,
    dataset=imagenet.VAL,
    perturbation_fn_cpu=greyscale,
    size=imagenet.VAL_SIZE,
)
imagenet.add(
    "stylized_imagenet",
    imagenet.PUBLISHED,
    dataset=StandardDataset(
        name="stylized_imagenet",
        also=("stylized-imagenet/val", "stylized-imagenet"),
        labels="imagenet",
        source="render the validation images with github.com/rgeirhos/Stylized-ImageNet; wnid folders",
    ),
    size=imagenet.VAL_SIZE,
)
imagenet.add(
    "imagenet-sketch",
    imagenet.PUBLISHED,
    dataset=StandardDataset(
        name="imagenet-sketch",
        also=("ImageNet-Sketch",),
        labels="imagenet",
        source="github.com/HaohanWang/ImageNet-Sketch, wnid folders",
    ),
    size=50_889,  # the ImageNet Testbed's registry says 50,000
)
for _name, _style in (("imagenet-cartoon", "cartoon"), ("imagenet-drawing", "drawing")):
    imagenet.add(
        _name,
        _style,
        dataset=StandardDataset(
            name=_name, labels="imagenet", source=f"zenodo.org/records/6801109, {_name}.tar.gz (CC-BY), wnid folders"
        ),
        size=imagenet.VAL_SIZE,
    )
