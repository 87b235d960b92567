"""ObjectNet: household objects in odd poses. 113 of its 313 folders stand for 125 ImageNet classes.

The prediction is among the 125, and right if it is one of the folder's; other folders are not run at all.
"""

from pathlib import Path

from testbed import CropBorder, StandardDataset, registry
from testbed.metrics.class_groups import InGroup, Merged

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

FOLDERS = registry.metadata(__file__, "objectnet.json")
CLASSES = tuple(c for members in FOLDERS.values() for c in members)
_PLACE = {c: place for place, c in enumerate(CLASSES)}
GROUPS = tuple(tuple(_PLACE[c] for c in members) for members in FOLDERS.values())  # in places of CLASSES

# name, images, source, tags: the version of the published results, and the final one
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
        transform=CropBorder(2),  # the red frame
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
