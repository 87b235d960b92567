"""ImageNet-9, the backgrounds challenge (Xiao et al. 2020): nine superclasses, foreground and background recombined."""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.aggregates import GAP, Difference
from testbed.metrics.class_groups import InGroup

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

VARIANTS = ("original", "mixed_same", "mixed_rand", "mixed_next", "only_fg", "no_fg", "only_bg_b", "only_bg_t")
GROUPS = tuple(tuple(group) for group in registry.metadata(__file__, "imagenet9.json"))

for _variant in VARIANTS:
    imagenet.add(
        f"imagenet-9.{_variant}",
        "backgrounds",
        dataset=StandardDataset(
            name=f"imagenet-9/{_variant}/val",
            also=(f"bg_challenge/{_variant}/val", f"imagenet-9/{_variant}"),
            labels="sorted",  # folders 00_dog to 08_fish
            source="github.com/MadryLab/backgrounds_challenge, release data, backgrounds_challenge_data.tar.gz",
        ),
        metrics_fn=InGroup(GROUPS, among_all=True),
        size=4_050,
    )

registry.add_group(
    "imagenet-9",
    [f"imagenet-9.{variant}" for variant in VARIANTS],
    aggregate=Difference("background_gap", "imagenet-9.mixed_same", "imagenet-9.mixed_rand", kind=GAP),
)
