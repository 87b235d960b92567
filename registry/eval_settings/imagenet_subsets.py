"""Sets with some of the 1000 classes, and their twins: the validation images of the same classes.

top1 is among the set's own classes, as in the ImageNet Testbed; top1_full1000 is among all 1000. Both are read from one
evaluation over all classes, <name>.full1000.
"""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.accuracy import class_accuracy
from testbed.metrics.classification import subset_classification
from testbed.metrics.labels import COLUMNS, targets_are

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

# (name, class list, images, images of the twin, twin, source)
SETS = (
    (
        *("imagenet-a", "imagenet_a", 7_500, 10_000, "val-on-imagenet-a-classes"),
        "github.com/hendrycks/natural-adv-examples, imagenet-a.tar (MIT), md5 c3e55429088dc681f30d81f4726b6595",
    ),
    (
        *("imagenet-r", "imagenet_r", 30_000, 10_000, "val-on-imagenet-r-classes"),
        "github.com/hendrycks/imagenet-r, imagenet-r.tar (MIT), md5 a61312130a589d0ca1a8fca1f2bd3337",
    ),
)

for _name, _classes, _size, _twin_size, _twin, _source in SETS:
    imagenet.add(
        f"{_name}.full1000",
        dataset=StandardDataset(name=_name, labels="imagenet", source=_source),
        size=_size,
    )
    for _subset, _parent, _images in ((_name, f"{_name}.full1000", _size), (_twin, "val", _twin_size)):
        imagenet.add(
            _subset,
            imagenet.PUBLISHED,
            logits_from=_parent,
            class_sublist=imagenet.class_list(_classes),
            metrics_fn=subset_classification,
            size=_images,
        )


@targets_are(COLUMNS)
def openimages_accuracy(logits, targets):
    """metrics_fn: that of subsets, and top1_balanced, the mean over classes."""
    metrics = subset_classification(logits, targets)
    balanced = class_accuracy(logits, targets)
    return metrics | {"top1_balanced": balanced["top1_mean_per_class"]} if balanced else metrics


imagenet.add(
    "openimages_test_ilsvrc_subset",
    imagenet.PUBLISHED,
    "own-layout",
    dataset=StandardDataset(
        name="openimages_test_ilsvrc_subset",
        labels="imagenet",
        source="test images of Open Images (storage.googleapis.com/openimages) that people gave exactly one label "
        "which is one of 420 ImageNet classes, sorted into wnid folders",
    ),
    class_sublist=imagenet.class_list("openimages"),
    metrics_fn=openimages_accuracy,
    size=23_120,  # the ImageNet Testbed's registry says 23,104, and 20,700 for the twin
)
imagenet.add(
    "val-on-openimages-classes",
    imagenet.PUBLISHED,
    logits_from="val",
    class_sublist=imagenet.class_list("openimages"),
    metrics_fn=subset_classification,
    size=21_000,
)
