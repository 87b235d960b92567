"""Throughput of every corruption at 224 pixels on one core, next to a plain port of the published algorithm.

    python benchmarks/corruptions.py [--images N]

The ports below are what one would write first: double precision, numpy's global generator, scipy and PIL for
what the published programs take from scikit-image, OpenCV and ImageMagick, a loop where the published one
loops and whole arrays where that is the obvious way. Both sides take and return a float CHW tensor; severities
go round from 1 to 5; ours and the port take turns on the same pictures, and the median counts. What is measured
is processor time of one thread, so that other work on the machine disturbs it little.
"""

# ruff: noqa: E402  (the number of threads must be set before numpy is loaded)
from __future__ import annotations

import argparse
import io
import os
import statistics
import time
from collections.abc import Callable

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
import torch
from PIL import Image
from scipy import ndimage

from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS, corruption
from testbed.perturb.corruptions.weather import frost_folder

random = np.random


# ---- the ports: x is a float64 HWC array in [0, 1] made from bytes ----


def gaussian_noise(x, sigma):
    return np.clip(x + random.normal(size=x.shape, scale=sigma), 0, 1)


def shot_noise(x, photons):
    return np.clip(random.poisson(x * photons) / photons, 0, 1)


def impulse_noise(x, amount):
    out = x.copy()
    flipped = random.uniform(size=x.shape) < amount
    salted = random.uniform(size=x.shape) < 0.5
    out[flipped & salted], out[flipped & ~salted] = 1, 0
    return out


def speckle_noise(x, sigma):
    return np.clip(x + x * random.normal(size=x.shape, scale=sigma), 0, 1)


def smoothed(x, sigma, **options):
    sigmas = (sigma, sigma, 0) if x.ndim == 3 else sigma
    return ndimage.gaussian_filter(x, sigmas, **{"mode": "nearest", **options})


def gaussian_blur(x, sigma):
    return np.clip(smoothed(x, sigma), 0, 1)


def glass_blur(x, sigma, reach, rounds):
    x = np.uint8(smoothed(x, sigma) * 255)
    height, width = x.shape[:2]
    for _ in range(rounds):
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                dx, dy = random.randint(-reach, reach, size=2)
                x[h, w] = x[h + dy, w + dx]
    return np.clip(smoothed(x / 255, sigma), 0, 1)


def defocus_blur(x, radius, alias_sigma):
    line = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    kernel = (line[:, None] ** 2 + line**2 <= radius**2).astype(float)
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    soft = np.exp(-(taps**2) / (2 * alias_sigma**2))
    kernel = ndimage.convolve(kernel / kernel.sum(), np.outer(soft, soft) / soft.sum() ** 2, mode="mirror")
    planes = [ndimage.convolve(x[..., c], kernel, mode="mirror") for c in range(3)]
    return np.clip(np.stack(planes, axis=2), 0, 1)


def line_smear(x, radius, sigma, angle):
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    rows, columns = np.arange(x.shape[0]), np.arange(x.shape[1])
    out = np.zeros_like(x)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        down = int(np.ceil(step * np.sin(np.deg2rad(angle)) - 0.5))
        right = int(np.ceil(step * np.cos(np.deg2rad(angle)) - 0.5))
        shifted = x[np.clip(rows + down, 0, len(rows) - 1)][:, np.clip(columns + right, 0, len(columns) - 1)]
        out += weight * shifted
    return out


def motion_blur(x, radius, sigma):
    return np.clip(line_smear(x, radius, sigma, random.uniform(-45, 45)), 0, 1)


def zoomed(x, factor):
    side = x.shape[0]
    middle = int(np.ceil(side / factor))
    start = (side - middle) // 2
    crop = x[start : start + middle, start : start + middle]
    x = ndimage.zoom(crop, (factor, factor, 1)[: x.ndim], order=1)
    trim = (x.shape[0] - side) // 2
    return x[trim : trim + side, trim : trim + side]


def zoom_blur(x, end, step):
    factors = np.arange(1, end, step)
    x = x.astype(np.float32)
    return np.clip((x + sum(zoomed(x, factor) for factor in factors)) / (len(factors) + 1), 0, 1)


def snow(x, mean, sigma, zoom, threshold, blur_radius, blur_sigma, keep):
    layer = zoomed(random.normal(size=x.shape[:2], loc=mean, scale=sigma), zoom)
    layer[layer < threshold] = 0
    layer = np.uint8(np.clip(layer, 0, 1) * 255) / 255
    layer = line_smear(layer, int(blur_radius), blur_sigma, random.uniform(-135, -45))[..., None]
    grey = (x @ [0.299, 0.587, 0.114])[..., None]
    x = keep * x + (1 - keep) * np.maximum(x, grey * 1.5 + 0.5)
    return np.clip(x + layer + np.rot90(layer, 2), 0, 1)


def frost(x, keep, weight, texture_scale):
    names = ["frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"]
    texture = np.asarray(Image.open(frost_folder() / names[random.randint(5)]).convert("RGB"))
    top, left = (random.randint(0, texture.shape[axis] - x.shape[axis]) for axis in (0, 1))
    crop = texture[top : top + x.shape[0], left : left + x.shape[1]]
    return np.clip(keep * x * 255 + weight * crop, 0, 255) / 255


def fog(x, amount, decay):
    side, wibble = 256, 100.0
    clouds, step = np.zeros((side, side)), side

    def shaken(total):
        return total / 4 + wibble * random.uniform(-wibble, wibble, total.shape)

    while step >= 2:
        half = step // 2
        corner = clouds[::step, ::step]
        right, below = np.roll(corner, -1, 1), np.roll(corner, -1, 0)
        centre = shaken(corner + right + below + np.roll(right, -1, 0))
        clouds[half::step, half::step] = centre
        clouds[::step, half::step] = shaken(corner + right + centre + np.roll(centre, 1, 0))
        clouds[half::step, ::step] = shaken(corner + below + centre + np.roll(centre, 1, 1))
        step, wibble = half, wibble / decay
    clouds -= clouds.min()
    brightest = x.max()
    x = x + amount * (clouds / clouds.max())[: x.shape[0], : x.shape[1], None]
    return np.clip(x * brightest / (brightest + amount), 0, 1)


def to_hsv(x):
    value, low = x.max(2), x.min(2)
    spread = value - low
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = np.where(value > 0, spread / value, 0)
        red, green, blue = np.moveaxis(x, 2, 0)
        hue = np.select(
            [red == value, green == value],
            [(green - blue) / spread, 2 + (blue - red) / spread],
            4 + (red - green) / spread,
        )
    return np.where(spread > 0, hue / 6 % 1, 0), saturation, value


def from_hsv(hue, saturation, value):
    sector = np.floor(hue * 6)
    f = hue * 6 - sector
    p, q, t = value * (1 - saturation), value * (1 - f * saturation), value * (1 - (1 - f) * saturation)
    sector = np.stack([sector.astype(int) % 6] * 3, axis=2)
    rows = [(value, t, p), (q, value, p), (p, value, t), (p, q, value), (t, p, value), (value, p, q)]
    return np.choose(sector, [np.stack(row, axis=2) for row in rows])


def brightness(x, shift):
    hue, saturation, value = to_hsv(x)
    return np.clip(from_hsv(hue, saturation, np.clip(value + shift, 0, 1)), 0, 1)


def saturate(x, factor, shift):
    hue, saturation, value = to_hsv(x)
    return np.clip(from_hsv(hue, np.clip(saturation * factor + shift, 0, 1), value), 0, 1)


def contrast(x, factor):
    means = x.mean(axis=(0, 1), keepdims=True)
    return np.clip((x - means) * factor + means, 0, 1)


def as_picture(x):
    return Image.fromarray(np.uint8(np.round(x * 255)))


def jpeg_compression(x, quality):
    file = io.BytesIO()
    as_picture(x).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file)) / 255


def pixelate(x, scale):
    side = x.shape[0]
    small = as_picture(x).resize((int(side * scale), int(side * scale)), Image.Resampling.BOX)
    return np.array(small.resize((side, side), Image.Resampling.BOX)) / 255


def elastic_transform(x, alpha, sigma, affine):
    side = x.shape[0]
    points = side // 2 + side // 3 * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + random.uniform(-affine, affine, size=(3, 2))
    back = np.linalg.solve(np.column_stack([moved, np.ones(3)]), points).T
    matrix, offset = back[:, :2][::-1, ::-1], back[::-1, 2]
    planes = [ndimage.affine_transform(x[..., c], matrix, offset, order=1, mode="mirror") for c in range(3)]
    x = np.stack(planes, axis=2)
    fields = [random.uniform(-1, 1, size=(side, side)) for _ in range(2)]
    dx, dy = (alpha * smoothed(field, sigma, mode="reflect", truncate=3) for field in fields)
    row, column, channel = np.meshgrid(np.arange(side), np.arange(side), np.arange(3), indexing="ij")
    where = row + dy[..., None], column + dx[..., None], channel
    return np.clip(ndimage.map_coordinates(x, where, order=1, mode="reflect"), 0, 1)


def spatter(x, mean, sigma, blur_sigma, threshold, strength, mud):
    layer = smoothed(random.normal(size=x.shape[:2], loc=mean, scale=sigma), blur_sigma)
    layer[layer < threshold] = 0
    if mud:
        cover = smoothed((layer > threshold).astype(float), strength)
        cover[cover < 0.8] = 0
        return np.clip(x * (1 - cover[..., None]) + cover[..., None] * np.array([63, 42, 20]) / 255, 0, 1)
    layer = np.uint8(layer * 255).astype(float)
    distance = np.minimum(ndimage.distance_transform_edt(~edges(layer)), 20)
    distance = np.uint8(ndimage.uniform_filter(distance, 3, mode="mirror"))
    counts, _ = np.histogram(distance, np.arange(257))
    ranks = np.cumsum(counts) - counts[counts > 0][0]
    distance = np.round(255 * ranks / ranks[-1])[distance]
    distance = ndimage.correlate(distance, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror")
    light = layer * np.round(ndimage.uniform_filter(np.clip(distance, 0, 255), 3, mode="mirror"))
    light *= strength / light.max()
    return np.clip(x + light[..., None] * np.array([175, 238, 238]) / 255, 0, 1)


def edges(layer):
    dy, dx = (ndimage.sobel(layer, axis, mode="nearest") for axis in (0, 1))
    strength = np.pad(np.abs(dx) + np.abs(dy), 1)
    steps = np.round(np.arctan2(dy, dx) / (np.pi / 4)).astype(int) % 4
    down, right = np.array([0, 1, 1, 1])[steps], np.array([1, 1, 0, -1])[steps]
    row, column = np.mgrid[1 : layer.shape[0] + 1, 1 : layer.shape[1] + 1]
    here = strength[1:-1, 1:-1]
    ridge = (here > strength[row - down, column - right]) & (here >= strength[row + down, column + right])
    parts, _ = ndimage.label(ridge & (here > 50), np.ones((3, 3)))
    return np.isin(parts, np.unique(parts[ridge & (here > 150)]))


def single_frequency_greyscale(x, level):
    row, column = np.mgrid[: x.shape[0], : x.shape[1]]
    first = random.uniform(-np.pi, np.pi)
    fx, fy = random.permutation([first, random.uniform(-abs(first), abs(first))])
    wave = np.sin(column * fx + row * fy + random.uniform(0, 2 * np.pi))
    return np.clip(x + level * 19.6 / 255 * wave[..., None], 0, 1)


def cocentric_sine_waves(x, level):
    size = x.shape[0]
    row, column = np.mgrid[:size, :size]
    dx, dy = (place - random.uniform(0, size) for place in (column, row))
    frequency, amplitude, ring = random.uniform(0, [10, size / 10, size / 10])
    distance = np.sqrt(dx**2 + dy**2) + amplitude * np.sin(np.arctan2(dx, dy) * frequency)
    return np.clip(x + level * 12.8 / 255 * ((distance % ring) / ring - 0.5)[..., None], 0, 1)


def plasma_noise(x, level):
    size = x.shape[0]
    v, u = np.mgrid[:size, :size] / (random.uniform(0.075, 0.2) * size)
    now, sharpness = random.uniform(0, 6 * np.pi), random.uniform(0.5, 1)
    i = np.ones(3)
    for _ in range(random.randint(4, 7)):
        r, s = np.cos(v * i[0] + now / i[1]) / i[2], np.sin(u * i[0] + now / i[1]) / i[2]
        u, v = u + r - 0.3 * s, v + s + 0.3 * r
        i = i * [1.93, 1.15, 2.25 - sharpness]
    colours = np.stack([np.sin(u - now), np.sin((u + v + np.sin(now)) / 2), np.sin(v + now)], axis=2)
    return np.clip((1 - level * 6.4 / 255) * x + level * 6.4 / 255 * colours, 0, 1)


def star(size, centre, rays, exponent):
    row, column = np.mgrid[:size, :size]
    dy, dx = row - centre[0], column - centre[1]
    turn = (np.arctan2(dx, dy) + np.pi) / (2 * np.pi) * len(rays)
    i = turn.astype(int)
    f = turn - i
    length = rays[i % len(rays)] + f * (rays[(i + 1) % len(rays)] - rays[i % len(rays)])
    return np.clip((1 - (f - 0.5) ** 2) * (length**2 / (dx**2 + dy**2 + 1e-4)) ** exponent, 0, 1)[..., None]


def sparkles(x, level):
    size = x.shape[0]
    for centre in random.uniform(0, size, size=(5, 2)):
        rays = level * 0.01 * size * (1 + 0.25 * random.randn(random.randint(50, 200)))
        x = x + star(size, centre, np.maximum(rays, 1), 1.0) * (1 - x)
    return np.clip(x, 0, 1)


def inverse_sparkles(x, level):
    size = x.shape[0]
    rays = 0.25 * size * (1 + 0.25 * random.randn(random.randint(50, 200)))
    return np.clip(1 + star(size, random.uniform(0.25, 0.75, 2) * size, rays, level * 0.13) * (x - 1), 0, 1)


def checkerboard_cutout(x, level):
    size = x.shape[0]
    row, column = np.mgrid[:size, :size]
    angle, square = random.uniform(0, 2 * np.pi), random.uniform(0.1, 0.25) * size
    grid = random.uniform(size=(int(4 * size // square),) * 2) < level / 10
    u = (np.cos(angle) * row + np.sin(angle) * column) / square
    v = (np.cos(angle) * column - np.sin(angle) * row) / square
    kept = ((u % 2).astype(int) != (v % 2).astype(int)) | ~grid[u.astype(int), v.astype(int)]
    return np.where(kept[..., None], x, 128 / 255)


def spectral(size, strength):
    row, column = np.mgrid[:size, :size]
    power = strength(np.sqrt((row - size / 2) ** 2 + (column - size / 2) ** 2))
    phases = random.uniform(0, 2 * np.pi, size=(size, size // 2))
    phases = np.concatenate([phases, phases[::-1, ::-1]], axis=1)
    noise = np.fft.ifft2(np.fft.ifftshift(power * np.exp(1j * phases))).real
    return noise / noise.std()


def blue_noise_sample(x, level):
    return x * (spectral(x.shape[0], lambda d: d) > level * 0.3 - 2.5)[..., None]


def brownish_noise(x, level):
    noise = np.stack([spectral(x.shape[0], lambda d: 1 / (d**2 + 1)) for _ in range(3)], axis=2)
    return np.clip(x + level * 6.4 / 255 * noise, 0, 1)


def perlin_noise(x, level):
    size = x.shape[0]
    gradients = random.randint(-256, 256, size=(256, 2)) / 256
    gradients /= np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1e-9)
    order = random.permutation(256)

    def noise(y, x):
        row, column = y.astype(int), x.astype(int)
        fy, fx = y - row, x - column

        def corner(down, right):
            g = gradients[order[(order[(row + down) % 256] + column + right) % 256]]
            return g[..., 0] * (fy - down) + g[..., 1] * (fx - right)

        sy, sx = fy**2 * (3 - 2 * fy), fx**2 * (3 - 2 * fx)
        near = corner(0, 0) + sy * (corner(1, 0) - corner(0, 0))
        far = corner(0, 1) + sy * (corner(1, 1) - corner(0, 1))
        return 1.5 * (near + sx * (far - near))

    row, column = np.mgrid[:size, :size] / (32 * size / 224)
    folded = sum(np.abs(noise(f * row, f * column)) / f for f in (1, 2, 4, 8, 16))
    return np.clip((1 - level * 0.05) * x + level * 0.05 * np.clip(0.5 * folded + 0.5, 0, 1)[..., None], 0, 1)


def caustic_refraction(x, level):
    size = x.shape[0]
    now, period = random.uniform(0.5, 2), random.uniform(0.75, 1.25) * size
    p = (np.mgrid[:size, :size] / period % 1) * 2 * np.pi - 250
    i, c = p, 1.0
    for n in range(5):
        t = now * (1 - 3.5 / (n + 1))
        i = p + np.stack([np.cos(t - i[0]) + np.sin(t + i[1]), np.sin(t - i[1]) + np.cos(t + i[0])])
        c = c + 1 / np.sqrt((p[0] * 0.005 / np.sin(i[0] + t)) ** 2 + (p[1] * 0.005 / np.cos(i[1] + t)) ** 2)
    field = np.pad(ndimage.gaussian_filter(np.clip(np.abs(1.17 - (c / 5) ** 1.4) ** 8, 0, 1), 1), 1)
    dy, dx = field[2:, 1:-1] - field[:-2, 1:-1], field[1:-1, 2:] - field[1:-1, :-2]
    normal = np.stack([dy, dx, np.ones_like(dx)]) / np.sqrt(dy**2 + dx**2 + 1)
    leaving = np.arcsin(np.sin(np.arccos(normal[2])) / 4)
    aside = np.cross([0.0, 0.0, 1.0], normal, axisb=0)
    aside /= np.maximum(np.linalg.norm(aside, axis=-1, keepdims=True), 1e-12)
    upward = np.cross(normal, aside, axisa=0, axisc=0)
    move = np.round((np.cos(leaving) * normal + np.sin(leaving) * upward) * level * 0.05 * size, 3)[:2]
    move[:, normal[2] >= 1 - 1e-3] = 0
    where = np.mgrid[:size, :size] + move
    planes = [ndimage.map_coordinates(x[..., channel], where, order=1) for channel in range(3)]
    return np.clip(np.stack(planes, axis=2) + ((dy - dx) * level * 0.2)[..., None], 0, 1)


# ---- the measurement ----


def ported(name: str, severity: int) -> Callable[[torch.Tensor], torch.Tensor]:
    _, parameters = corruption(name, severity).constants_for(224)
    whole = {key: int(value) if float(value).is_integer() else value for key, value in parameters.items()}

    def run(image: torch.Tensor) -> torch.Tensor:
        pixels = np.uint8(np.round(image.numpy().transpose(1, 2, 0) * 255))
        out = globals()[name](pixels / 255, **whole)
        return torch.from_numpy(np.ascontiguousarray(out.transpose(2, 0, 1), dtype=np.float32))

    return run


def pictures(count: int) -> list[torch.Tensor]:
    """Smooth random colours with detail on top, as bytes."""
    rng = np.random.default_rng(0)
    out = []
    for _ in range(count):
        coarse = np.uint8(rng.integers(0, 256, (7, 7, 3)))
        large = np.asarray(Image.fromarray(coarse).resize((224, 224), Image.Resampling.BICUBIC), dtype=float)
        pixels = np.clip(large + rng.normal(0, 12, large.shape), 0, 255).astype(np.uint8)
        out.append(torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)).astype(np.float32) / 255))
    return out


def seconds(function: Callable[[torch.Tensor], torch.Tensor], image: torch.Tensor) -> float:
    start = time.thread_time()
    function(image)
    return time.thread_time() - start


def measure(name: str, images: list[torch.Tensor]) -> tuple[float, float]:
    """Median seconds per image: ours, the port's; the first five of each (one per severity) only warm up."""
    times: tuple[list[float], list[float]] = ([], [])
    for index, image in enumerate(images[:5] + images):
        severity = index % 5 + 1
        ours = corruption(name, severity)
        rng = np.random.default_rng(index)
        plain = ported(name, severity)
        times[0].append(seconds(lambda x, ours=ours, rng=rng: ours(image=x, rng=rng), image))
        times[1].append(seconds(plain, image))
    by_severity = [[t[5 + s :: 5] for s in range(5)] for t in times]
    return tuple(statistics.mean(statistics.median(t) for t in side if t) for side in by_severity)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=25, help="pictures per corruption (default 25)")
    count = max(parser.parse_args().images, 1)
    torch.set_num_threads(1)
    images = pictures(count)
    print(f"{count} pictures of 224 x 224, one core, images/s (mean over severities of the median)")
    print(f"{'corruption':28}{'ours':>9}{'port':>9}{'ratio':>8}")
    for name in CORRUPTIONS + BAR_CORRUPTIONS:
        try:
            ours, port = measure(name, images)
        except FileNotFoundError as error:
            print(f"{name:28}skipped: {error}")
            continue
        print(f"{name:28}{1 / ours:9.1f}{1 / port:9.1f}{port / ours:8.2f}", flush=True)


if __name__ == "__main__":
    main()
