"""ImageNetV2: three selections of 10,000 new images, each as found and re-encoded like the validation set."""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.classification import subset_classification

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

# Published name -> other spellings of its folder. Folders 0 to 999 are class numbers: in string order, as many loaders
# sort them, 10 would come before 2.
SETS = {
    "imagenetv2-matched-frequency": (),
    "imagenetv2-matched-frequency-format-val": (),
    "imagenetv2-threshold0.7": ("imagenetv2-threshold-0.7",),
    "imagenetv2-threshold-0.7-format-val": ("imagenetv2-threshold0.7-format-val",),
    "imagenetv2-topimages": ("imagenetv2-top-images",),
    "imagenetv2-top-images-format-val": ("imagenetv2-topimages-format-val",),
}

for _name, _also in SETS.items():
    imagenet.add(
        _name,
        imagenet.PUBLISHED,
        dataset=StandardDataset(
            name=_name,
            also=_also,
            source="huggingface.co/datasets/vaishaal/ImageNetV2 (MIT), unpacked; folders 0 to 999 or wnids",
        ),
        size=10_000,
    )
imagenet.add(
    "imagenetv2-matched-frequency-format-val_subsampled_class_1_8",
    imagenet.PUBLISHED,
    logits_from="imagenetv2-matched-frequency-format-val",
    class_sublist=imagenet.class_list("class_1_8"),
    metrics_fn=subset_classification,
    size=1_250,
)
