"""Inception, NASNet and Xception with weights from TensorFlow, prepared as in the ImageNet Testbed.

timm's own configuration resizes with bicubic interpolation, and some of them to less: 333 (InceptionResNet, Xception),
363 (NASNet, PNASNet).
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

for _name, _tag, _resize, _crop in (
    ("inceptionresnetv2", "inception_resnet_v2.tf_in1k", 341, 299),
    ("inceptionv4", "inception_v4.tf_in1k", 341, 299),
    ("nasnetalarge", "nasnetalarge.tf_in1k", 378, 331),
    ("pnasnet5large", "pnasnet5large.tf_in1k", 378, 331),
    ("xception", "legacy_xception.tf_in1k", 341, 299),
):
    registry.add_model(
        zoo.entry(
            _name,
            zoo.Timm(_tag),
            StandardTransform(_resize, _crop, "bilinear"),
            zoo.HALF,
            "standard",
            zoo.PUBLISHED,
            eval_batch_size=32,
        )
    )
