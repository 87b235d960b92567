"""Shortcuts: watermarks, spurious features, edited surroundings, classes with strong cues around the object."""

from dataclasses import replace
from pathlib import Path

from testbed import StandardDataset, registry
from testbed.data.listed import ListedDataset
from testbed.metrics.aggregates import GAP, Difference, SpuriousScore, Together
from testbed.metrics.classification import subset_classification
from testbed.metrics.shortcuts import accuracy_by_folder, carton, spurious_feature
from testbed.perturb.watermark import watermark

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

# ---- ImageNet-W (Li et al. 2023): a watermark over every validation image ----------------------------------

imagenet.add(
    "imagenet-w",
    "shortcut",
    dataset=imagenet.VAL,
    perturbation_fn_cpu=watermark,
    metrics_fn=carton,
    controls=("imagenet-w.clean",),
    size=imagenet.VAL_SIZE,
)
imagenet.add("imagenet-w.clean", "shortcut", logits_from="val", metrics_fn=carton, size=imagenet.VAL_SIZE)
# IN-W Gap and Carton Gap: a model that relies on watermarks loses accuracy and predicts cartons.
registry.add_group(
    "imagenet-w-gaps",
    ["imagenet-w", "imagenet-w.clean"],
    aggregate=Together(
        [
            Difference(gap, "imagenet-w", "imagenet-w.clean", metric, kind)
            for gap, metric, kind in (
                ("in_w_gap", "top1", replace(GAP, better="higher")),  # accuracy minus clean accuracy: 0 is best
                ("carton_gap", "top1_carton", GAP),
                ("p_carton_gap", "p_carton", GAP),
            )
        ]
    ),
)

# ---- Spurious ImageNet (Neuhaus et al. 2023): the spurious feature of a class without the class ------------

imagenet.add(
    "spurious-imagenet",
    "shortcut",
    dataset=StandardDataset(
        name="spurious_imagenet/images",
        also=("spurious-imagenet/images", "spurious-imagenet"),
        labels="none",  # the class is in the folder's name
        source="github.com/YanNeu/spurious_imagenet, setup_download.sh: folders of 75 images for each of 100 classes",
    ),
    metrics_fn=spurious_feature,
    resize="whole",  # as published: no crop
    controls=("val",),
    size=7_500,
)
registry.add_group("spurious-score", ["spurious-imagenet"], aggregate=SpuriousScore("spurious-imagenet", "val"))

# ---- ImageNet-E (Li et al. 2023): backgrounds, sizes, positions and directions of objects edited -----------

imagenet.add(
    "imagenet-e",
    "shortcut",
    dataset=ListedDataset(
        name="imagenet-e",
        also=("ImageNet-E",),
        listing="labels.txt",
        separator="\t",
        source="the archive linked at github.com/alibaba/easyrobust, benchmarks/imagenet-e: labels.txt, ori/ and one "
        "folder for each edit",
    ),
    metrics_fn=accuracy_by_folder,
)

# ---- Hard ImageNet (Moayeri et al. 2022): 15 classes with strong cues around the object ---------------------

HARD = (379, 416, 433, 537, 602, 655, 706, 746, 785, 795, 801, 810, 837, 890, 981)
imagenet.add(
    "hard-imagenet-15",
    "shortcut",
    logits_from="val",
    class_sublist=HARD,
    metrics_fn=subset_classification,
    size=750,
)
