"""Vision transformers (Dosovitskiy et al. 2021) as first published: trained on ImageNet-21k, fine-tuned on ImageNet.

timm's bare names mean later weights (augreg).
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

for _name, _resize, _crop in (
    ("vit_base_patch16_224", 248, 224),
    ("vit_base_patch16_384", 384, 384),
    ("vit_large_patch32_384", 384, 384),
):
    registry.add_model(
        zoo.entry(
            _name,
            zoo.Timm(f"{_name}.orig_in21k_ft_in1k"),
            StandardTransform(_resize, _crop, "bicubic"),
            zoo.HALF,
            "more_data",
            zoo.PUBLISHED,
        )
    )
