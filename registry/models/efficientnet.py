"""EfficientNets (Tan and Le 2019) as first published, with AutoAugment, RandAugment, AdvProp, and Noisy Student's L2.

The resize is to 32 pixels more than the crop; timm has 331 for b3 and 833 for l2.
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

_SIZES = {"b0": 224, "b1": 240, "b2": 260, "b3": 300, "b4": 380, "b5": 456, "b6": 528, "b7": 600, "b8": 672, "l2": 800}
# Smaller batches for large inputs.
_BATCHES = {"b4": 32, "b5": 16, "b6": 16, "b7": 8, "b8": 8, "l2": 2}

# (suffix of the name, timm's tag, normalisation, type, sizes)
_TRAININGS = (
    ("", "in1k", zoo.IMAGENET, "standard", ("b0", "b1", "b2", "b3", "b4", "b5")),
    ("-autoaug", "aa_in1k", zoo.IMAGENET, "standard", ("b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7")),
    ("-randaug", "ra_in1k", zoo.IMAGENET, "standard", ("b5", "b7")),
    ("-advprop-autoaug", "ap_in1k", zoo.HALF, "robust_intv", ("b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8")),
    ("-noisystudent", "ns_jft_in1k", zoo.IMAGENET, "more_data", ("l2",)),
)

for _end, _tag, _normalization, _type, _variants in _TRAININGS:
    for _variant in _variants:
        _size = _SIZES[_variant]
        registry.add_model(
            zoo.entry(
                f"efficientnet-{_variant}{_end}",
                zoo.Timm(f"tf_efficientnet_{_variant}.{_tag}"),
                StandardTransform(_size + 32, _size, "bicubic"),
                _normalization,
                _type,
                zoo.PUBLISHED,
                eval_batch_size=_BATCHES.get(_variant, 64),
            )
        )
