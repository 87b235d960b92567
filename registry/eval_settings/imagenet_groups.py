"""Groups of settings from several files."""

from testbed import registry
from testbed.metrics.aggregates import Mean

registry.add_group(
    "natural-shifts",
    [
        "imagenetv2-matched-frequency-format-val",
        "imagenetv2-threshold-0.7-format-val",
        "imagenetv2-top-images-format-val",
        "imagenet-sketch",
        "objectnet-1.0-beta",
        "imagenet-a",
        "imagenet-r",
        "imagenet-vid-robust",
        "ytbb-robust",
    ],
    aggregate=Mean(),  # of the settings with a top1; the videos have pm0 and pm10 instead
)
