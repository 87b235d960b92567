"""Dual path networks (Chen et al. 2017) with the authors' weights from MXNet.

Three of them were first trained on ImageNet-5k, so they count as trained with more data. timm resizes with bicubic
interpolation.
"""

from pathlib import Path

from testbed import StandardNormalization, StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

# 124 / 255, 117 / 255, 104 / 255, and 1 / (0.0167 * 255)
_NORMALIZATION = StandardNormalization(
    mean=(0.48627450980392156, 0.4588235294117647, 0.40784313725490196), std=(0.23482446870963955,) * 3
)

for _name, _type in {
    "dpn68": "standard",
    "dpn68b": "more_data",
    "dpn92": "more_data",
    "dpn98": "standard",
    "dpn107": "more_data",
    "dpn131": "standard",
}.items():
    registry.add_model(
        zoo.entry(
            _name,
            zoo.Timm(f"{_name}.mx_in1k"),
            StandardTransform(256, 224, "bilinear"),
            _NORMALIZATION,
            _type,
            zoo.PUBLISHED,
        )
    )
