"""ImageNet-P (Hendrycks and Dietterich 2019): sequences of slightly changing frames; how often does a prediction flip?

A frame is compared with the previous one or, for noise, whose frames are independent draws, with the first. The
published sequences are videos; here their frames must be extracted as pictures. `db.py --print-group MODEL imagenet-p`
gives mFR and mT5D, which are relative to AlexNet: run `alexnet` on the group too.
"""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.aggregates import FlipRates
from testbed.metrics.sequences import FlipRate

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

NOISE = ("gaussian_noise", "shot_noise", "speckle_noise")
PERTURBATIONS = (
    *("gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow", "brightness"),
    *("translate", "rotate", "tilt", "scale"),
)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "shear")  # the validation perturbations
HARDER_NOISE = tuple(f"{noise}_{difficulty}" for noise in NOISE for difficulty in (2, 3))
SOURCE = (
    "zenodo.org/records/3565846; turn <perturbation>/<wnid>/<name>.mp4 into imagenet-p/<perturbation>/<wnid>/<name>/"
    "001.jpg, 002.jpg, ...: ffmpeg -i NAME.mp4 -qscale:v 2 NAME/%03d.jpg"
)

for _kind in (*PERTURBATIONS, *EXTRA, *HARDER_NOISE):
    imagenet.add(
        f"imagenet-p.{_kind}",
        *("sequences", "own-layout"),
        dataset=StandardDataset(
            name=f"imagenet-p/{_kind}", also=(f"ImageNet-P/{_kind}",), labels="imagenet", source=SOURCE
        ),
        metrics_fn=FlipRate("first" if _kind.startswith(NOISE) else "previous"),
        resize="whole",  # frames have 224 pixels already
    )

registry.add_group("imagenet-p", [f"imagenet-p.{kind}" for kind in PERTURBATIONS], aggregate=FlipRates())
registry.add_group("imagenet-p-extra", [f"imagenet-p.{kind}" for kind in EXTRA], aggregate=FlipRates())
registry.add_group("imagenet-p-harder-noise", [f"imagenet-p.{kind}" for kind in HARDER_NOISE], aggregate=FlipRates())
