"""Pictures of none of the 1000 classes. `db.py --print-group MODEL ood` shows how well each score detects them."""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.aggregates import UnknownClasses
from testbed.metrics.ood import mean_scores

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

# Name -> (near or far as in OpenOOD, images, other folder names, source)
SETS = {
    "ninco": (
        *("near", 5_879, ("NINCO/NINCO_OOD_classes", "NINCO")),
        "zenodo.org/records/8013288, NINCO_all.tar.gz, md5 b9ffae324363cd900a81ce3c367cd834",
    ),
    "ssb-hard": ("near", 49_000, ("ssb_hard",), "github.com/Jingkang50/OpenOOD, ssb_hard"),
    "openimage-o": (
        *("far", 17_632, ("openimage_o", "OpenImage-O")),
        "zenodo.org/records/10540831, OpenImage-O.zip, md5 c0abd7cd4b6f218a7149adc718d70e6e",
    ),
    "inaturalist": ("far", 10_000, ("iNaturalist",), "github.com/Jingkang50/OpenOOD, inaturalist"),
    "textures": (
        *("far", 5_160, ("texture",)),
        "dtd-r1.0.1.tar.gz (robots.ox.ac.uk/~vgg/data/dtd), md5 fff73e5086ae6bdbea199a49dfb8a4c1, without the four "
        "classes that overlap with ImageNet's",
    ),
}

for _name, (_kind, _size, _also, _source) in SETS.items():
    imagenet.add(
        _name,
        "ood",
        dataset=StandardDataset(name=_name, also=_also, labels="none", source=_source),
        metrics_fn=mean_scores,
        controls=("val",),  # detection compares with known pictures
        size=_size,
    )

# ImageNet-O is scored among 200 of the classes, so it is compared with validation images of the same 200.
imagenet.add(
    "imagenet-o",
    "ood",
    dataset=StandardDataset(
        name="imagenet-o",
        labels="none",
        source="github.com/hendrycks/natural-adv-examples, imagenet-o.tar (MIT), md5 86bd7a50c1c4074fb18fc5f219d6d50b",
    ),
    class_sublist=imagenet.class_list("imagenet_o"),
    metrics_fn=mean_scores,
    controls=("val-on-imagenet-o-classes",),
    size=2_000,
)
imagenet.add(
    "val-on-imagenet-o-classes",
    logits_from="val",
    class_sublist=imagenet.class_list("imagenet_o"),
    size=10_000,
)

registry.add_group(
    "ood",
    [*SETS, "imagenet-o"],
    aggregate=UnknownClasses(
        known={**dict.fromkeys(SETS, "val"), "imagenet-o": "val-on-imagenet-o-classes"},
        kinds={kind: [name for name, (own, *_) in SETS.items() if own == kind] for kind in ("near", "far")},
    ),
)
