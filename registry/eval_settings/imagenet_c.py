"""Corrupted ImageNet: ImageNet-C and -C-bar on disk and in memory, ImageNet-3DCC on disk.

On disk: the published 224-pixel JPEGs, through the model's own transform as in the ImageNet Testbed and, as
_on-disk-224, without a second resize. In memory: the corruption is applied after the model's transform.
"""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.aggregates import CorruptionSummary, Together
from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS, corruption

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

# The ImageNet Testbed has no glass blur in memory.
NOT_PUBLISHED = {"glass_blur"}
CORRUPTIONS_3D = (
    *("near_focus", "far_focus", "fog_3d", "flash", "color_quant", "low_light", "xy_motion_blur", "z_motion_blur"),
    *("iso_noise", "bit_error", "h265_abr", "h265_crf"),
)
ALEXNET = registry.metadata(__file__, "alexnet_imagenet_c_error.json")


def on_disk(folder: str, kind: str, severity: int, source: str, *also: str) -> StandardDataset:
    places = tuple(f"{other}/{kind}/{severity}" for other in also)
    name = f"{folder}/{kind}/{severity}"
    return StandardDataset(name=name, also=places, labels="imagenet", source=source, order_matters=True)


_C = "zenodo.org/records/2235448 (CC-BY-4.0), unpacked into imagenet-c/<corruption>/<severity>/<wnid>"
for _kind in CORRUPTIONS:
    for _severity in imagenet.SEVERITIES:
        _name = f"imagenet-c.{_kind}.{_severity}"
        _images = on_disk("imagenet-c", _kind, _severity, _C, "ImageNet-C")
        imagenet.add_with_tenth(f"{_name}_on-disk", "corruption", imagenet.PUBLISHED, dataset=_images)
        imagenet.add(f"{_name}_on-disk-224", "corruption", dataset=_images, resize="whole", size=imagenet.VAL_SIZE)
        imagenet.add_with_tenth(
            f"{_name}_in-memory",
            "corruption",
            *(() if _kind in NOT_PUBLISHED else (imagenet.PUBLISHED,)),
            dataset=imagenet.VAL,
            perturbation_fn_cpu=corruption(_kind, _severity),
            version=corruption(_kind, _severity).version,
        )

_BAR = (
    "dl.fbaipublicfiles.com/inc_bar/imagenet_c_bar.tar.gz, unpacked into imagenet-c-bar/<corruption>/<severity>/<wnid>"
)
for _kind in BAR_CORRUPTIONS:
    for _severity in imagenet.SEVERITIES:
        _name = f"imagenet-c-bar.{_kind}.{_severity}"
        _images = on_disk("imagenet-c-bar", _kind, _severity, _BAR, "imagenet_c_bar")
        imagenet.add(f"{_name}_on-disk", "corruption", dataset=_images, size=imagenet.VAL_SIZE)
        imagenet.add(
            f"{_name}_in-memory",
            "corruption",
            dataset=imagenet.VAL,
            perturbation_fn_cpu=corruption(_kind, _severity),
            version=corruption(_kind, _severity).version,
            size=imagenet.VAL_SIZE,
        )

_3D = "datasets.epfl.ch/3dcc/imagenet_3dcc/<name>.tar.gz (CC-BY-NC), as imagenet-3dcc/<name>/<severity>/<wnid>"
for _kind in CORRUPTIONS_3D:
    for _severity in imagenet.SEVERITIES:
        imagenet.add(
            f"imagenet-3dcc.{_kind}.{_severity}",
            "corruption",
            dataset=on_disk("imagenet-3dcc", _kind, _severity, _3D, "imagenet_3dcc"),
            size=imagenet.VAL_SIZE,
        )


# ---- groups ----------------------------------------------------------------------------------------------


def add_corruption_group(name: str, pattern: str, kinds: tuple[str, ...], alexnet: bool) -> None:
    """Add the group of a pattern; with `alexnet`, whose errors were published for these kinds, also mCE."""
    members = [pattern.format(corruption=k, severity=s) for k in kinds for s in imagenet.SEVERITIES]
    baseline = ALEXNET if alexnet else {}
    registry.add_group(name, members, aggregate=CorruptionSummary(pattern, "val", kinds, baseline))


for _place in ("on-disk", "on-disk-224", "in-memory"):
    add_corruption_group(f"imagenet-c-{_place}", f"imagenet-c.{{corruption}}.{{severity}}_{_place}", CORRUPTIONS, True)
for _place in ("on-disk", "in-memory"):
    _pattern = f"imagenet-c-bar.{{corruption}}.{{severity}}_{_place}"
    add_corruption_group(f"imagenet-c-bar-{_place}", _pattern, BAR_CORRUPTIONS, False)
add_corruption_group("imagenet-3dcc", "imagenet-3dcc.{corruption}.{severity}", CORRUPTIONS_3D, False)

registry.add_group(
    "imagenet-c",
    ["imagenet-c-on-disk", "imagenet-c-in-memory"],
    aggregate=Together(
        [
            CorruptionSummary(
                f"imagenet-c.{{corruption}}.{{severity}}_{place}", "val", CORRUPTIONS, ALEXNET, suffix=f" ({place})"
            )
            for place in ("on-disk", "in-memory")
        ]
    ),
)
registry.add_group("imagenet-c-bar", ["imagenet-c-bar-on-disk", "imagenet-c-bar-in-memory"])
