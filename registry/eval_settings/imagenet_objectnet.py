"""ObjectNet: household objects in unusual poses. 113 of its 313 folders correspond to 125 ImageNet classes.

The prediction is among the 125 classes, and right if it is one of the folder's. The other folders are not run; the
ImageNet Testbed ran all 313 and dropped the others afterwards.
"""

from pathlib import Path

from testbed import CropBorder, StandardDataset, registry
from testbed.metrics.class_groups import InGroup, Merged

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

FOLDERS = registry.metadata(__file__, "objectnet.json")
CLASSES = tuple(c for members in FOLDERS.values() for c in members)
_PLACE = {c: place for place, c in enumerate(CLASSES)}
GROUPS = tuple(tuple(_PLACE[c] for c in members) for members in FOLDERS.values())  # as places in CLASSES

# (name, images, source, tags): the version that the ImageNet Testbed used, and the final one
SETS = (
    ("objectnet-1.0-beta", 18_514, "the beta that came before objectnet-1.0, no longer offered", (imagenet.PUBLISHED,)),
    (
        *("objectnet-1.0", 18_574),
        "objectnet.dev, objectnet-1.0.zip (testing only), md5 522aa986a604c41ea641411c1d0a292e",
        (),
    ),
)

for _name, _size, _source, _tags in SETS:
    imagenet.add(
        _name,
        *_tags,
        dataset=StandardDataset(
            name=_name,
            also=(f"{_name}/images", "objectnet/images", "objectnet") if not _tags else (f"{_name}/images",),
            classes={folder: number for number, folder in enumerate(FOLDERS)},
            source=_source,
        ),
        class_sublist=CLASSES,
        transform=CropBorder(2),  # without the red frame around every picture
        metrics_fn=InGroup(GROUPS),
        size=_size,
    )

imagenet.add(
    "val-on-objectnet-classes",
    imagenet.PUBLISHED,
    logits_from="val",
    class_sublist=CLASSES,
    metrics_fn=Merged(GROUPS),
    size=6_250,
)
