"""Synthetic pictures: by diffusion, by a game engine, by pasting objects, by unusual distortions."""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.data.listed import ListedDataset
from testbed.metrics.aggregates import CorruptionSummary, Mean
from testbed.metrics.class_groups import Superclasses
from testbed.metrics.multilabel import AnyOf

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

# ---- ImageNet-D of 2024 (Zhang et al.): objects rendered by diffusion ---------------------------------------

DIFFUSION = registry.metadata(__file__, "imagenet_d_diffusion.json")
for _kind in ("background", "texture", "material"):
    imagenet.add(
        f"imagenet-d-diffusion.{_kind}",
        "synthetic",
        dataset=StandardDataset(
            name=f"imagenet-d-diffusion/{_kind}",
            also=(f"ImageNet-D/{_kind}",),
            classes={folder: number for number, folder in enumerate(DIFFUSION)},
            source="huggingface.co/datasets/zcs15/ImageNet-D, 113 class folders",
        ),
        metrics_fn=AnyOf(tuple(map(tuple, DIFFUSION.values()))),
    )
registry.add_group("imagenet-d-diffusion", ["imagenet-d-diffusion.*"], aggregate=Mean())

# ---- PUG: ImageNet (Bordes et al. 2023): 151 objects in a game engine ---------------------------------------

PUG = registry.metadata(__file__, "pug_imagenet.json")
imagenet.add(
    "pug-imagenet",
    "synthetic",
    dataset=ListedDataset(
        name="pug-imagenet",
        also=("PUG_IMAGENET", "PUG_ImageNet"),
        listing="labels_pug_imagenet.csv",
        columns=("filename", "character_label"),
        classes={name: number for number, name in enumerate(PUG)},
        source="github.com/facebookresearch/PUG, PUG: ImageNet (CC-BY-NC), with labels_pug_imagenet.csv",
    ),
    metrics_fn=AnyOf(tuple(map(tuple, PUG.values()))),
    size=88_328,
)

# ---- SI-Score (Djolonga et al. 2021): 61 objects at every size, place and angle -----------------------------

SI_SCORE = registry.metadata(__file__, "si_score.json")  # class folder -> ImageNet class
for _kind, _folder in (("size", "area"), ("location", "location20_area02_min0pc"), ("rotation", "rotation")):
    imagenet.add(
        f"si-score.{_kind}",
        "synthetic",
        dataset=StandardDataset(
            name=f"si-score/{_folder}",
            also=(f"si-score/{_kind}/{_folder}", f"si-score/{_kind}"),
            classes=SI_SCORE,
            source=f"s3.us-east-1.amazonaws.com/si-score-dataset/{_kind}.zip (github.com/google-research/si-score)",
        ),
    )
registry.add_group("si-score", ["si-score.*"], aggregate=Mean())

# ---- LAION-C (Li et al. 2025): six distortions, 16 superclasses ---------------------------------------------

LAION = registry.metadata(__file__, "laion_c.json")
DISTORTIONS = ("glitched", "mosaic", "stickers", "vertical_lines", "geometric_shapes", "luminance_checkerboard")
for _kind in DISTORTIONS:
    for _severity in imagenet.SEVERITIES:
        imagenet.add(
            f"laion-c.{_kind}.{_severity}",
            "corruption",
            dataset=StandardDataset(
                name=f"laion-c/{_kind}/intensity_level_{_severity}",
                also=(f"LAION-C/{_kind}/intensity_level_{_severity}",),
                classes={name: number for number, name in enumerate(LAION)},
                source="zenodo.org/records/14051887, unpacked into laion-c/<distortion>/intensity_level_<severity>",
            ),
            metrics_fn=Superclasses(tuple(map(tuple, LAION.values()))),
            resize="whole",  # as published: resized to the input size, not cropped
        )
_PATTERN = "laion-c.{corruption}.{severity}"
registry.add_group("laion-c", ["laion-c.*"], aggregate=CorruptionSummary(_PATTERN, "val", DISTORTIONS))
