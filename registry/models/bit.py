"""Big Transfer (Kolesnikov et al. 2020), BiT-M: trained on ImageNet-21k, and fine-tuned on ImageNet or not.

The whole picture is squashed to 480 x 480, as in the ImageNet Testbed; timm crops 448 (224 where not fine-tuned).
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

# The output of each ImageNet class among the 21,843 of ImageNet-21k. Teddy (n04399382) is not among them: as in the
# ImageNet Testbed it gets the first output, n00004475 (organism).
_COLUMNS = registry.metadata(__file__, "imagenet21k_columns.json")["columns"]

for _size, _batch in {"50x1": 32, "50x3": 16, "101x1": 32, "101x3": 16, "152x4": 4}.items():
    for _end, _tag, _columns in (
        ("ILSVRC2012", "goog_in21k_ft_in1k", None),
        ("nonfinetuned", "goog_in21k", _COLUMNS),
    ):
        registry.add_model(
            zoo.entry(
                f"BiT-M-R{_size}-{_end}",
                zoo.Timm(f"resnetv2_{_size}_bit.{_tag}"),
                StandardTransform((480, 480), None, "bilinear"),
                zoo.HALF,
                "more_data",
                zoo.PUBLISHED,
                eval_batch_size=_batch,
                columns=_columns,
            )
        )
