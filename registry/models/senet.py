"""Squeeze-and-excitation networks (Hu et al. 2018): the authors' weights, which timm calls legacy."""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

for _name, _tag in {
    "senet154": "legacy_senet154.in1k",
    "se_resnet50": "legacy_seresnet50.in1k",
    "se_resnet101": "legacy_seresnet101.in1k",
    "se_resnet152": "legacy_seresnet152.in1k",
    "se_resnext50_32x4d": "legacy_seresnext50_32x4d.in1k",
    "se_resnext101_32x4d": "legacy_seresnext101_32x4d.in1k",
}.items():
    registry.add_model(
        zoo.entry(_name, zoo.Timm(_tag), StandardTransform(256, 224), zoo.IMAGENET, "standard", zoo.PUBLISHED)
    )
