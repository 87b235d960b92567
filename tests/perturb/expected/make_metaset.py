"""Wrote metaset.npz: the operations of meta sets by imgaug 0.4.0, at fixed magnitudes on drawn pictures.

imgaug does not import on NumPy 2, so it was run apart: Python 3.11 with imgaug 0.4.0, numpy 1.23.5,
opencv-python-headless 4.11.0, Pillow 13.0.0.
"""

import json
from pathlib import Path

import imgaug.augmenters as iaa
import numpy as np
from imgaug.augmenters import arithmetic, contrast, pillike


def picture(height, width, seed):
    """Waves with three patches: smooth parts, edges and flat parts."""
    rng = np.random.RandomState(seed)
    y, x = np.mgrid[:height, :width]
    steps = rng.uniform(2, 9, (3, 2))
    image = np.stack([120 + 100 * np.sin(x / a) * np.cos(y / b) for a, b in steps], axis=2)
    for _ in range(3):
        top, left = rng.randint(0, height - 8), rng.randint(0, width - 8)
        image[top : top + rng.randint(4, 12), left : left + rng.randint(4, 12)] = rng.randint(0, 256, 3)
    return np.clip(image, 0, 255).astype(np.uint8)


def by_channel(image, alphas):
    planes = [contrast.adjust_contrast_linear(image[..., c], alphas[c % len(alphas)]) for c in range(3)]
    return np.stack(planes, axis=2)


def affine(image, scale, shift, degrees):
    (sx, sy), (tx, ty) = scale, shift
    change = iaa.Affine(scale={"x": sx, "y": sy}, translate_percent={"x": tx, "y": ty}, rotate=degrees)
    return change.augment_image(image)


OPERATIONS = {
    "autocontrast": (pillike.autocontrast, [{"cutoff": c} for c in (0, 1, 7, 20)]),
    "multiply": (
        lambda image, factor: arithmetic.multiply_scalar(image, factor[0] if len(factor) == 1 else np.array(factor)),
        [{"factor": f} for f in ([0.1], [0.73], [1.9], [0.3, 1.2, 1.77])],
    ),
    "colour": (pillike.enhance_color, [{"factor": f} for f in (0.0, 0.41, 1.0, 1.5, 3.0)]),
    "solarize": (arithmetic.solarize, [{"threshold": t} for t in (32, 77, 128)]),
    "contrast": (
        lambda image, alpha: by_channel(image, alpha),
        [{"alpha": a} for a in ([0.5], [2.0], [0.6, 1.1, 1.9])],
    ),
    "affine": (
        affine,
        [
            {"scale": [1, 1], "shift": [0, 0], "degrees": 30},
            {"scale": [0.8, 1.2], "shift": [0.2, -0.13], "degrees": 0},
            {"scale": [1.13, 0.87], "shift": [-0.07, 0.111], "degrees": -17.3},
        ],
    ),
    "sharpen": (
        lambda image, alpha, lightness: iaa.Sharpen(alpha=alpha, lightness=lightness).augment_image(image),
        [{"alpha": a, "lightness": b} for a, b in ((0.1, 0.8), (0.55, 1.0), (1.0, 1.2), (0.37, 0.93))],
    ),
}


def main():
    pictures = {"square": picture(32, 32, 1), "wide": picture(24, 40, 2), "dark": picture(32, 32, 3) // 4}
    arrays = {f"picture.{name}": image for name, image in pictures.items()}
    cases = []
    for name, (change, magnitudes) in OPERATIONS.items():
        for values in magnitudes:
            for shown in ("square", "wide") if name in ("affine", "sharpen") else ("square", "dark"):
                arrays[f"expected.{len(cases)}"] = change(pictures[shown].copy(), **values)
                cases.append([name, shown, values])
    np.savez_compressed(Path(__file__).with_name("metaset.npz"), cases=np.array(json.dumps(cases)), **arrays)


if __name__ == "__main__":
    main()
