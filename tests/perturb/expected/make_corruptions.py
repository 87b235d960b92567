"""Writes corruptions.npz and corruptions.json: what the published programs make of a synthetic picture.

Not a test and not run by one. It needs an environment of its own, never the project's:
    pip install numpy scipy pillow scikit-image opencv-python-headless Wand     (and ImageMagick 6 for Wand)
    pip download --no-deps --no-binary :all: imagenet-c==0.0.3                  (unpacked; its setup is not run)
    python make_corruptions.py imagenet_c-0.0.3/imagenet_c/corruptions.py FROST_FOLDER

For 224 pixels the file from PyPI (hendrycks/robustness) runs with the constants that stand in it; for 32 and 64
pixels with those of `make_cifar_c.py` and `make_tinyimagenet_c.py`, typed below from the repository. Three calls
that today's numpy and scikit-image no longer know are mended on loading. Random draws come from the generator
that the tests hand to our functions, in the order in which ours take them; the arithmetic is the published.
ImageNet-C-bar is not on PyPI: its ten are written out below pixel by pixel from the published definitions
(facebookresearch/augmentation-corruption, corrupt.py), in double precision.
"""

from __future__ import annotations

import ast
import json
import math
import sys
import types
from pathlib import Path

import cv2
import numpy as np
import scipy.ndimage
import skimage.filters
from PIL import Image

SEED = 20
DETERMINISTIC = [
    "gaussian_blur",
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "saturate",
    "jpeg_compression",
    "pixelate",
]
RANDOM = ["glass_blur", "motion_blur", "snow", "frost", "fog", "elastic_transform", "spatter"]
NOISE = ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"]


def picture(height: int, width: int) -> np.ndarray:
    """Ramps, rings, a checkerboard, flat black, white, grey and pure colours; whole numbers only."""
    y, x = np.mgrid[:height, :width]
    red = 255 * x // (width - 1)
    green = 255 * y // (height - 1)
    ring = ((x - width // 2) ** 2 + (y - height // 2) ** 2) * 16 // (height * width)
    out = np.stack([red, green, ring * 83 % 256], axis=2)
    board = (x * 16 // width + y * 16 // height) % 2 == 0
    out[board & (y > height // 2)] = out[board & (y > height // 2)][:, ::-1]
    flat = [(0, 0, 0), (255, 255, 255), (128, 128, 128), (255, 0, 0), (0, 255, 0), (20, 30, 200), (250, 240, 90)]
    for place, colour in enumerate(flat):
        out[height // 8 : height // 4, width * place // 8 : width * (place + 1) // 8] = colour
    return out.astype(np.uint8)


def places(height: int, width: int) -> np.ndarray:
    """256 pixels to look at: the corners, places on the border, places anywhere."""
    rng = np.random.default_rng(7)
    y, x = rng.integers(0, height, 256), rng.integers(0, width, 256)
    y[:2], y[2:4], x[:4] = 0, height - 1, (0, width - 1, 0, width - 1)
    y[4:20], y[20:36], x[36:52], x[52:68] = 0, height - 1, 0, width - 1
    return np.stack([y, x], axis=1)


CIFAR = {
    "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.10],
    "shot_noise": [500, 250, 100, 75, 50],
    "impulse_noise": [0.01, 0.02, 0.03, 0.05, 0.07],
    "speckle_noise": [0.06, 0.1, 0.12, 0.16, 0.2],
    "gaussian_blur": [0.4, 0.6, 0.7, 0.8, 1],
    "glass_blur": [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    "defocus_blur": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    "motion_blur": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    "zoom_blur": [np.arange(1, end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26)],
    "fog": [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
    "frost": [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)],
    "snow": [
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ],
    "spatter": [
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ],
    "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],
    "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],
    "saturate": [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)],
    "jpeg_compression": [80, 65, 58, 50, 40],
    "pixelate": [0.95, 0.9, 0.85, 0.75, 0.65],
    "elastic_transform": [
        (32 * 0, 32 * 0, 32 * 0.08),
        (32 * 0.05, 32 * 0.2, 32 * 0.07),
        (32 * 0.08, 32 * 0.06, 32 * 0.06),
        (32 * 0.1, 32 * 0.04, 32 * 0.05),
        (32 * 0.1, 32 * 0.03, 32 * 0.03),
    ],
}
TINY = {
    "gaussian_noise": [0.04, 0.08, 0.12, 0.15, 0.18],
    "shot_noise": [250, 100, 50, 30, 15],
    "impulse_noise": [0.01, 0.02, 0.05, 0.08, 0.14],
    "speckle_noise": [0.15, 0.2, 0.25, 0.3, 0.35],
    "gaussian_blur": [0.5, 0.75, 1, 1.25, 1.5],
    "glass_blur": [(0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)],
    "defocus_blur": [(0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)],
    "motion_blur": [(10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)],
    "zoom_blur": CIFAR["zoom_blur"],
    "fog": [(0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)],
    "frost": [(1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)],
    "snow": [(*row[:6], mix) for row, mix in zip(CIFAR["snow"], (0.8, 0.8, 0.7, 0.65, 0.6), strict=True)],
    "spatter": [
        (0.62, 0.1, 0.7, 0.7, 0.6, 0),
        (0.65, 0.1, 0.8, 0.7, 0.6, 0),
        (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1),
        (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ],
    "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
    "brightness": [0.1, 0.2, 0.3, 0.4, 0.5],
    "saturate": [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)],
    "jpeg_compression": [65, 58, 50, 40, 25],
    "pixelate": [0.9, 0.8, 0.7, 0.6, 0.5],
    "elastic_transform": [
        (64 * 0, 64 * 0, 64 * 0.08),
        (64 * 0.05, 64 * 0.3, 64 * 0.06),
        (64 * 0.1, 64 * 0.08, 64 * 0.06),
        (64 * 0.1, 64 * 0.03, 64 * 0.03),
        (64 * 0.16, 64 * 0.03, 64 * 0.02),
    ],
}


class Draws:
    """Stands in for numpy.random inside the published module."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)
        self.shuffle: list = []

    def normal(self, size, loc=0.0, scale=1.0):
        return loc + scale * self.rng.standard_normal(size, dtype=np.float32).astype(float)

    def poisson(self, lam):
        return self.rng.poisson(lam)

    def uniform(self, low=0.0, high=1.0, size=None):
        return self.rng.uniform(low, high, size)

    def randint(self, low, high=None, size=None):
        if size != (2,):
            return int(self.rng.integers(low if high is None else high))
        if not self.shuffle:  # glass blur: our offsets of one round, visited from the lower right
            inner = SIZE - 2 * high
            offsets = self.rng.integers(low, high, size=(2, inner, inner))
            self.shuffle = list(offsets.reshape(2, -1).T)
        return self.shuffle.pop()


class NumpyWithDraws(types.ModuleType):
    def __init__(self) -> None:
        super().__init__("numpy")
        self.random = Draws()

    float_ = np.float64
    fromstring = staticmethod(np.frombuffer)

    def __getattr__(self, name):
        return getattr(np, name)


def gaussian(image, sigma, multichannel=False, **options):
    return skimage.filters.gaussian(image, sigma, channel_axis=-1 if multichannel else None, **options)


def load(path: str, frost: str) -> tuple[dict, dict]:
    """The published module for the current SIZE, and the constants used, by function."""
    global SIZE
    source = Path(path).read_text()
    for old, new in (
        ("from scipy.ndimage.interpolation import map_coordinates", "from scipy.ndimage import map_coordinates"),
        ("from pkg_resources import resource_filename", "resource_filename = lambda module, name: FROST + name[6:]"),
        ("import numpy as np", ""),
        ("from skimage.filters import gaussian", ""),
        ("224", str(SIZE)),
        ("mapsize=256", f"mapsize={max(32, 1 << (SIZE - 1).bit_length())}"),
    ):
        source = source.replace(old, new)
    tree = ast.parse(source)
    published = {}
    typed = {32: CIFAR, 64: TINY}.get(SIZE)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "c":
                rows = ast.unparse(node.value.value)
                published[function.name] = typed.get(function.name) if typed else eval(rows, {"np": np})
                node.value.value = ast.parse(f"PUBLISHED['{function.name}']", mode="eval").body
    shim = NumpyWithDraws()
    space = {"np": shim, "gaussian": gaussian, "FROST": frost + "/", "PUBLISHED": published, "__name__": "published"}
    exec(compile(ast.fix_missing_locations(tree), path, "exec"), space)
    scale = {32: 0.2, 64: 0.3}.get(SIZE)
    if scale:
        reader = types.SimpleNamespace(**{name: getattr(cv2, name) for name in dir(cv2)})
        reader.imread = lambda name: cv2.resize(cv2.imread(name), (0, 0), fx=scale, fy=scale)
        space["cv2"] = reader
    return space, published


def run(space: dict, name: str, severity: int, image: np.ndarray) -> np.ndarray:
    space["np"].random = Draws()
    given = Image.fromarray(image)
    return np.asarray(space[name](given, severity), dtype=float)


def noise_statistics(space: dict, name: str, severity: int, image: np.ndarray) -> list[float]:
    """Standard deviation of what was added (in [0, 1]) and share of values at 0 or 1, over 60 draws."""
    added, ends = [], []
    for seed in range(60):
        space["np"].random = Draws()
        space["np"].random.rng = np.random.default_rng((99, seed))
        if name == "impulse_noise":
            sk = space["sk"].util
            plain = sk.random_noise
            sk.random_noise = lambda *a, s=seed, p=plain, **k: p(*a, rng=np.random.default_rng((99, s)), **k)
        out = np.asarray(space[name](Image.fromarray(image), severity)) / 255
        if name == "impulse_noise":
            sk.random_noise = plain
        added.append(((out - image / 255) ** 2).mean())
        ends.append(((out <= 0) | (out >= 1)).mean())
    return [math.sqrt(float(np.mean(added))), float(np.mean(ends))]


# ---- ImageNet-C-bar, one pixel at a time ----

BAR_LEVELS = {
    "caustic_refraction": (2.35, 3.2, 4.9, 6.6, 9.15),
    "inverse_sparkles": (1.0, 2.0, 4.0, 9.0, 10.0),
    "sparkles": (1.0, 2.0, 3.0, 5.0, 6.0),
    "perlin_noise": (4.6, 5.2, 5.8, 7.6, 8.8),
    "blue_noise_sample": (0.8, 1.6, 2.4, 4.0, 5.6),
    "plasma_noise": (4.75, 7.0, 8.5, 9.25, 10.0),
    "checkerboard_cutout": (2.0, 3.0, 4.0, 5.0, 6.0),
    "cocentric_sine_waves": (3.0, 5.0, 8.0, 9.0, 10.0),
    "single_frequency_greyscale": (1.0, 1.5, 2.0, 4.5, 5.0),
    "brownish_noise": (1.0, 2.0, 3.0, 4.0, 5.0),
}


def bar(name: str, level: float, image: np.ndarray) -> np.ndarray:
    """Values in 0 .. 255 of the whole picture; each maker returns a function of one pixel (y, x)."""
    size = image.shape[0]
    pixel = globals()["bar_" + name](image.astype(float), np.random.default_rng(SEED), level, size)
    return np.clip([[pixel(y, x) for x in range(size)] for y in range(size)], 0, 255)


def bar_single_frequency_greyscale(image, rng, level, size):
    a = rng.uniform(-math.pi, math.pi)
    b = rng.uniform(-abs(a), abs(a))
    fx, fy = rng.permutation([a, b])
    phase = rng.uniform(0, 2 * math.pi)
    return lambda y, x: image[y, x] + level * 19.6 * math.sin(x * fx + y * fy + phase)


def bar_cocentric_sine_waves(image, rng, level, size):
    x0, y0 = rng.uniform(0, size, 2)
    frequency = rng.uniform(0, 10)
    amplitude, ring = rng.uniform(0, size / 10, 2)

    def pixel(y, x):
        wave = math.sin(math.atan2(x - x0, y - y0) * frequency) * amplitude
        return image[y, x] + level * 12.8 * (((math.dist((x, y), (x0, y0)) + wave) % ring) / ring - 0.5)

    return pixel


def bar_plasma_noise(image, rng, level, size):
    time, rounds = rng.uniform(0, 6 * math.pi), int(rng.integers(4, 7))
    sharp, scale = rng.uniform(0.5, 1), rng.uniform(0.075, 0.2) * size

    def pixel(y, x):
        u, v, i = x / scale, y / scale, [1.0, 1.0, 1.0, 0.0]
        for _ in range(rounds):
            r = math.cos(v * i[0] - i[3] + time / i[1]) / i[2], math.sin(u * i[0] - i[3] + time / i[1]) / i[2]
            u, v = u + r[0] - 0.3 * r[1], v + r[1] + 0.3 * r[0]
            i = [i[0] * 1.93, i[1] * 1.15, i[2] * (2.25 - sharp), i[3] * time * i[1]]
        colour = [math.sin(u - time), math.sin((u + v + math.sin(time)) * 0.5), math.sin(v + time)]
        return (1 - level * 6.4 / 255) * image[y, x] + level * 6.4 * np.array(colour)

    return pixel


def star(y, x, centre, rays, exponent):
    dy, dx = y - centre[0], x - centre[1]
    turn = (math.atan2(dx, dy) + math.pi) / (2 * math.pi) * len(rays)
    i, f = int(turn), turn - int(turn)
    length = rays[i % len(rays)] * (1 - f) + rays[(i + 1) % len(rays)] * f
    return min((1 - (f - 0.5) ** 2) * (length**2 / (dy * dy + dx * dx + 1e-4)) ** exponent, 1)


def bar_sparkles(image, rng, level, size):
    radius, stars = level * 0.01 * size, []
    for centre in rng.uniform(0, 1, (5, 2)) * size:
        count = int(rng.integers(50, 200))
        stars.append((centre, [max(1, radius + 0.25 * radius * r) for r in rng.standard_normal(count)]))

    def pixel(y, x):
        value = image[y, x]
        for centre, rays in stars:
            value = value + star(y, x, centre, rays, (100 - 50) / 50) * (255 - value)
        return value

    return pixel


def bar_inverse_sparkles(image, rng, level, size):
    centre = rng.uniform(0.25, 0.75, 2) * size
    count = int(rng.integers(50, 200))
    rays = [0.25 * size * (1 + 0.25 * r) for r in rng.standard_normal(count)]
    return lambda y, x: 255 + star(y, x, centre, rays, level * 6.5 / 50) * (image[y, x] - 255)


def bar_checkerboard_cutout(image, rng, level, size):
    angle, scale = rng.uniform(0, 2 * math.pi), max(rng.uniform(0.1, 0.25) * size, 1)
    grid = rng.uniform(size=(int(4 * size // scale),) * 2) < level / 10

    def pixel(y, x):
        u = (math.cos(angle) * y + math.sin(angle) * x) / scale
        v = (math.cos(angle) * x - math.sin(angle) * y) / scale
        kept = int(u % 2) != int(v % 2) or not grid[int(u), int(v)]
        return image[y, x] if kept else np.full(3, 128.0)

    return pixel


def spectral(rng, size, power):
    """Phases: the flat array of our draws and the same backwards, so that both halves are point mirrors."""
    half = rng.uniform(0, 2 * np.pi, size * size // 2).astype(np.float32).astype(float)
    phases = np.concatenate([half, half[::-1]]).reshape(size, size)
    strength = np.array([[power(math.hypot(x - size / 2, y - size / 2)) for x in range(size)] for y in range(size)])
    noise = np.fft.ifft2(np.roll(strength * np.exp(1j * phases), (size // 2, size // 2), axis=(0, 1))).real
    return noise / noise.std()


def bar_blue_noise_sample(image, rng, level, size):
    noise = spectral(rng, size, lambda d: d)
    return lambda y, x: image[y, x] if noise[y, x] > level * 0.3 - 2.5 else np.zeros(3)


def bar_brownish_noise(image, rng, level, size):
    noise = np.stack([spectral(rng, size, lambda d: 1 / (d * d + 1)) for _ in range(3)], axis=2)
    return lambda y, x: image[y, x] + level * 6.4 * noise[y, x]


def bar_perlin_noise(image, rng, level, size):
    drawn = rng.integers(-256, 256, (256, 2)).astype(float)
    gradients, order = [d / np.linalg.norm(d) for d in drawn], rng.permutation(256)

    def dot(cy, cx, y, x):
        g = gradients[order[(order[cy % 256] + cx) % 256]]
        return g[0] * (y - cy) + g[1] * (x - cx)

    def noise(y, x):
        cy, cx = math.floor(y), math.floor(x)
        fy, fx = y - cy, x - cx
        sy, sx = fy * fy * (3 - 2 * fy), fx * fx * (3 - 2 * fx)
        near = dot(cy, cx, y, x) * (1 - sy) + dot(cy + 1, cx, y, x) * sy
        far = dot(cy, cx + 1, y, x) * (1 - sy) + dot(cy + 1, cx + 1, y, x) * sy
        return 1.5 * (near * (1 - sx) + far * sx)

    def pixel(y, x):
        u, v = y * 7 / size, x * 7 / size
        folded = sum(abs(noise(f * u, f * v)) / f for f in (1, 2, 4, 8, 16))
        return (1 - level * 0.05) * image[y, x] + 255 * level * 0.05 * min(max(0.5 * folded + 0.5, 0), 1)

    return pixel


def bar_caustic_refraction(image, rng, level, size):
    time = rng.uniform(0.5, 2)
    period = rng.uniform(0.75, 1.25) * size
    lens, light = level * 0.05 * size, level * 0.2

    def caustic(y, x):
        p = [((c / period) % 1) * 2 * math.pi - 250 for c in (y, x)]
        i, c = list(p), 1.0
        for n in range(5):
            t = time * (1 - 3.5 / (n + 1))
            i = [
                p[0] + math.cos(t - i[0]) + math.sin(t + i[1]),
                p[1] + math.sin(t - i[1]) + math.cos(t + i[0]),
            ]
            c += 1 / math.hypot(p[0] * 0.005 / math.sin(i[0] + t), p[1] * 0.005 / math.cos(i[1] + t))
        return min(abs(1.17 - (c / 5) ** 1.4) ** 8, 1)

    field = scipy.ndimage.gaussian_filter([[caustic(y, x) for x in range(size)] for y in range(size)], 1)
    framed = np.pad(field, 1)
    black = np.pad(image / 255, ((size, size), (size, size), (0, 0)))

    def pixel(y, x):
        slope = framed[y + 2, x + 1] - framed[y, x + 1], framed[y + 1, x + 2] - framed[y + 1, x]
        normal = np.array([*slope, 1.0]) / math.hypot(*slope, 1)
        move = np.zeros(2)
        if normal[2] < 1 - 1e-3:
            leaving = math.asin(math.sin(math.acos(normal[2])) / 4)
            aside = np.cross([0.0, 0.0, 1.0], normal)
            upward = np.cross(normal, aside / np.linalg.norm(aside))
            move = np.round((math.cos(leaving) * normal + math.sin(leaving) * upward) * lens, 3)[:2]
        v, u = y + move[0] + size, x + move[1] + size
        if not (0 <= v < 3 * size - 1 and 0 <= u < 3 * size - 1):
            value = np.zeros(3)
        else:
            r, c = int(v), int(u)
            top = black[r, c] * (1 - u + c) + black[r, c + 1] * (u - c)
            low = black[r + 1, c] * (1 - u + c) + black[r + 1, c + 1] * (u - c)
            value = top * (1 - v + r) + low * (v - r)
        return 255 * np.clip(value - slope[1] * light + slope[0] * light, 0, 1)

    return pixel


def main(path: str, frost: str) -> None:
    global SIZE
    arrays: dict = {}
    written = {"source": __doc__, "seed": SEED, "constants": {}, "noise": {}}
    for SIZE in (32, 64, 224):
        image = picture(SIZE, SIZE)
        arrays[f"picture/{SIZE}"] = np.ascontiguousarray(image.transpose(2, 0, 1))
        arrays[f"places/{SIZE}"] = places(SIZE, SIZE).astype(np.uint8)
        y, x = places(SIZE, SIZE).T
        space, published = load(path, frost)
        written["constants"][SIZE] = {
            name: [np.atleast_1d(row).tolist() for row in rows] for name, rows in published.items() if name != "fgsm"
        }
        for name in DETERMINISTIC + RANDOM:
            severities = (1, 2, 3, 4, 5) if SIZE != 64 else (1, 5)
            rows = [np.rint(run(space, name, severity, image)[y, x]) for severity in severities]
            arrays[f"{name}/{SIZE}"] = np.array(rows, dtype=np.uint8)
        for name in NOISE:
            written["noise"][f"{name}/{SIZE}"] = [
                [round(v, 6) for v in noise_statistics(space, name, severity, picture(224, 224))]
                for severity in (1, 2, 3, 4, 5)
            ]
        print(SIZE, "done", flush=True)
    for SIZE in (32, 224):
        image = picture(SIZE, SIZE)
        y, x = places(SIZE, SIZE).T
        for name, levels in BAR_LEVELS.items():
            rows = [np.rint(bar(name, levels[severity - 1], image)[y, x]) for severity in (1, 5)]
            arrays[f"{name}/{SIZE}"] = np.array(rows, dtype=np.uint8)
    here = Path(__file__).parent
    np.savez_compressed(here / "corruptions.npz", **arrays)
    (here / "corruptions.json").write_text(as_lines(written) + "\n")


def as_lines(value: dict, indent: int = 1) -> str:
    """JSON with one line for each corruption."""
    rows = [
        f"{json.dumps(str(key))}: {as_lines(entry, indent + 1) if isinstance(entry, dict) else json.dumps(entry)}"
        for key, entry in value.items()
    ]
    return "{\n" + ",\n".join(" " * indent + row for row in rows) + "\n" + " " * (indent - 1) + "}"


SIZE = 224
if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
