"""The published constants of every corruption, for pictures of 32, 64 and 224 pixels a side.

ImageNet-C: hendrycks/robustness, `make_cifar_c`, `make_tinyimagenet_c` and `make_imagenet_c` (Hendrycks and
Dietterich, 2019). ImageNet-C-bar: facebookresearch/augmentation-corruption, `imagenet_c_bar.csv` and
`cifar10_c_bar.csv` (Mintun, Kirillov and Xie, 2021), whose CIFAR variant publishes values for five of the ten.
"""

from __future__ import annotations

from typing import NamedTuple

SIZES = (32, 64, 224)
SEVERITIES = (1, 2, 3, 4, 5)


class Table(NamedTuple):
    """The parameter names of a corruption and, for each picture size, their values at severities 1 to 5."""

    parameters: tuple[str, ...]
    rows: dict[int, tuple[tuple[float, ...], ...]]


def size_for(side: int) -> int:
    """The size (32, 64 or 224) whose constants are used for a picture whose shorter side has `side` pixels."""
    if side <= 48:
        return 32
    return 64 if side <= 128 else 224


def constants(name: str, severity: int, size: int) -> tuple[int, dict[str, float]]:
    """The size that the constants were published for, and the constants by parameter name.

    Where nothing was published for `size`, the next larger size is taken.
    """
    table = TABLES[name]
    published = min(known for known in table.rows if known >= size)
    return published, dict(zip(table.parameters, table.rows[published][severity - 1], strict=True))


def _one(name: str, **rows: tuple[float, ...]) -> Table:
    """A table of a single parameter; the keys are `px32`, `px64`, `px224`."""
    return Table((name,), {int(key[2:]): tuple((value,) for value in row) for key, row in rows.items()})


def _scaled(factor: int, *rows: tuple[float, float, float]) -> tuple[tuple[float, ...], ...]:
    """The rows with every value multiplied by a factor."""
    return tuple(tuple(factor * value for value in row) for row in rows)


_ZOOM_SMALL = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))

IMAGENET_C: dict[str, Table] = {
    "gaussian_noise": _one(
        "sigma",
        px32=(0.04, 0.06, 0.08, 0.09, 0.10),
        px64=(0.04, 0.08, 0.12, 0.15, 0.18),
        px224=(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    "shot_noise": _one("photons", px32=(500, 250, 100, 75, 50), px64=(250, 100, 50, 30, 15), px224=(60, 25, 12, 5, 3)),
    "impulse_noise": _one(
        "amount",
        px32=(0.01, 0.02, 0.03, 0.05, 0.07),
        px64=(0.01, 0.02, 0.05, 0.08, 0.14),
        px224=(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    "defocus_blur": Table(
        ("radius", "alias_sigma"),
        {
            32: ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
            64: ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
            224: ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        },
    ),
    "glass_blur": Table(
        ("sigma", "reach", "rounds"),
        {
            32: ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
            64: ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
            224: ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        },
    ),
    "motion_blur": Table(
        ("radius", "sigma"),
        {
            32: ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
            64: ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
            224: ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        },
    ),
    "zoom_blur": Table(
        ("end", "step"),
        {
            32: _ZOOM_SMALL,
            64: _ZOOM_SMALL,
            224: ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        },
    ),
    # At 224 pixels snow is milder at severity 3 than at 2; so are elastic transform and saturate. Published models
    # show the same (docs/corruptions.md).
    "snow": Table(
        ("mean", "sigma", "zoom", "threshold", "blur_radius", "blur_sigma", "keep"),
        {
            32: (
                (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            ),
            64: (
                (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
            ),
            224: (
                (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
                (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
                (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
                (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
            ),
        },
    ),
    # The programs for 32 and 64 pixels shrink the textures to a fifth and to 0.3 of their size.
    "frost": Table(
        ("keep", "weight", "texture_scale"),
        {
            32: ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
            64: ((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
            224: ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
        },
    ),
    "fog": Table(
        ("amount", "decay"),
        {
            32: ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
            64: ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
            224: ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        },
    ),
    "brightness": _one(
        "shift",
        px32=(0.05, 0.1, 0.15, 0.2, 0.3),
        px64=(0.1, 0.2, 0.3, 0.4, 0.5),
        px224=(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    "contrast": _one(
        "factor",
        px32=(0.75, 0.5, 0.4, 0.3, 0.15),
        px64=(0.4, 0.3, 0.2, 0.1, 0.05),
        px224=(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    # Published as shares of the side; the 224-pixel program multiplies by 244 (a slip its authors kept).
    "elastic_transform": Table(
        ("alpha", "sigma", "affine"),
        {
            32: _scaled(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
            64: _scaled(64, (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
            224: _scaled(
                244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
            ),
        },
    ),
    "pixelate": _one(
        "scale",
        px32=(0.95, 0.9, 0.85, 0.75, 0.65),
        px64=(0.9, 0.8, 0.7, 0.6, 0.5),
        px224=(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    "jpeg_compression": _one(
        "quality", px32=(80, 65, 58, 50, 40), px64=(65, 58, 50, 40, 25), px224=(25, 18, 15, 10, 7)
    ),
    "speckle_noise": _one(
        "sigma",
        px32=(0.06, 0.1, 0.12, 0.16, 0.2),
        px64=(0.15, 0.2, 0.25, 0.3, 0.35),
        px224=(0.15, 0.2, 0.35, 0.45, 0.6),
    ),
    "gaussian_blur": _one("sigma", px32=(0.4, 0.6, 0.7, 0.8, 1), px64=(0.5, 0.75, 1, 1.25, 1.5), px224=(1, 2, 3, 4, 6)),
    # mud = 0 is water (severities 1 to 3), 1 is mud, where `strength` is the sigma of a second smoothing.
    "spatter": Table(
        ("mean", "sigma", "blur_sigma", "threshold", "strength", "mud"),
        {
            32: (
                (0.62, 0.1, 0.7, 0.7, 0.5, 0),
                (0.65, 0.1, 0.8, 0.7, 0.5, 0),
                (0.65, 0.3, 1, 0.69, 0.5, 0),
                (0.65, 0.1, 0.7, 0.69, 0.6, 1),
                (0.65, 0.1, 0.5, 0.68, 0.6, 1),
            ),
            64: (
                (0.62, 0.1, 0.7, 0.7, 0.6, 0),
                (0.65, 0.1, 0.8, 0.7, 0.6, 0),
                (0.65, 0.3, 1, 0.69, 0.6, 0),
                (0.65, 0.1, 0.7, 0.68, 0.6, 1),
                (0.65, 0.1, 0.5, 0.67, 0.6, 1),
            ),
            224: (
                (0.65, 0.3, 4, 0.69, 0.6, 0),
                (0.65, 0.3, 3, 0.68, 0.6, 0),
                (0.65, 0.3, 2, 0.68, 0.5, 0),
                (0.65, 0.3, 1, 0.65, 1.5, 1),
                (0.67, 0.4, 1, 0.65, 1.5, 1),
            ),
        },
    ),
    # Severities 1 and 2 take colour away, the others add it.
    "saturate": Table(
        ("factor", "shift"),
        {
            32: ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
            64: ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
            224: ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        },
    ),
}

# What C-bar publishes as "severity" is a level between 0 and 10, with a meaning of its own in each function. CIFAR's
# levels were published for five of the ten only.
IMAGENET_C_BAR: dict[str, Table] = {
    "blue_noise_sample": _one("level", px32=(0.7, 1.4, 2.1, 3.5, 4.2), px224=(0.8, 1.6, 2.4, 4.0, 5.6)),
    "brownish_noise": _one("level", px32=(2.5, 4.0, 5.5, 6.5, 7.0), px224=(1.0, 2.0, 3.0, 4.0, 5.0)),
    "caustic_refraction": _one("level", px224=(2.35, 3.2, 4.9, 6.6, 9.15)),
    "checkerboard_cutout": _one("level", px32=(1.0, 2.0, 3.0, 4.0, 5.0), px224=(2.0, 3.0, 4.0, 5.0, 6.0)),
    "cocentric_sine_waves": _one("level", px224=(3.0, 5.0, 8.0, 9.0, 10.0)),
    "inverse_sparkles": _one("level", px32=(1.0, 1.5, 2.5, 4.5, 5.0), px224=(1.0, 2.0, 4.0, 9.0, 10.0)),
    "perlin_noise": _one("level", px224=(4.6, 5.2, 5.8, 7.6, 8.8)),
    "plasma_noise": _one("level", px224=(4.75, 7.0, 8.5, 9.25, 10.0)),
    "single_frequency_greyscale": _one("level", px224=(1.0, 1.5, 2.0, 4.5, 5.0)),
    "sparkles": _one("level", px32=(0.7, 3.5, 5.6, 6.3, 7.0), px224=(1.0, 2.0, 3.0, 5.0, 6.0)),
}

TABLES = {**IMAGENET_C, **IMAGENET_C_BAR}
