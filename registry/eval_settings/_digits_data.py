"""The handwritten digits of scikit-learn as 32x32 colour images, with a fixed split into training and test images."""

from __future__ import annotations

import functools

import numpy as np

NUM_CLASSES = 10
TRAINING_SIZE = 1000
TEST_SIZE = 797

_SPLIT_SEED = 20240
_INK = 16  # the brightest value in scikit-learn's 8x8 images
_DRAWN, _CANVAS = 24, 32  # the margin keeps a digit complete when it is shifted or rotated


@functools.cache
def training_digits() -> tuple[np.ndarray, np.ndarray]:
    """The training part in scikit-learn's form: 8x8 images with values 0..16, and labels."""
    return _part(training=True)


@functools.cache
def digits_training_images() -> tuple[np.ndarray, np.ndarray]:
    digits, labels = training_digits()
    return drawn(digits), labels


@functools.cache
def digits_test_images() -> tuple[np.ndarray, np.ndarray]:
    digits, labels = _part(training=False)
    return drawn(digits), labels


def drawn(digits: np.ndarray) -> np.ndarray:
    """8x8 images with values 0..16 -> uint8 (n, 32, 32, 3): bright strokes in the middle of a black canvas."""
    from PIL import Image

    grey = np.round(digits * (255 / _INK)).astype(np.uint8)
    canvas = np.zeros((len(digits), _CANVAS, _CANVAS), dtype=np.uint8)
    margin = slice((_CANVAS - _DRAWN) // 2, (_CANVAS + _DRAWN) // 2)
    for image, small in zip(canvas, grey, strict=True):
        image[margin, margin] = Image.fromarray(small).resize((_DRAWN, _DRAWN), Image.Resampling.BICUBIC)
    return np.repeat(canvas[..., None], 3, axis=3)


def _part(training: bool) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    data = load_digits()
    rows = _training_rows(data.target)
    if not training:
        rows = np.setdiff1d(np.arange(len(data.target)), rows)
    return data.images[rows].astype(np.uint8), data.target[rows].astype(np.int64)


def _training_rows(labels: np.ndarray) -> np.ndarray:
    """TRAINING_SIZE rows in which every class has its share, to within one image."""
    # RandomState, because numpy guarantees that its numbers never change; the committed weights depend on the split.
    shuffled = np.random.RandomState(_SPLIT_SEED).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    steps = np.arange(len(labels) + 1) * TRAINING_SIZE // len(labels)
    return np.sort(by_class[np.diff(steps) == 1])
