"""Throughput of every corruption at 224 pixels on one core, next to the NumPy form that it replaced.

    python benchmarks/corruptions.py [--images N] [--size 224] [NAME ...]

Both sides take and return float pictures (3, height, width); severities go round from 1 to 5; ours and the NumPy form
take turns on the same pictures, and the median of each counts. What is measured is processor time of one thread, so
that other work on the machine disturbs it little. Frost needs its textures (TESTBED_FROST).
"""

# ruff: noqa: E402  (the number of threads must be set before numpy is loaded)
from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
import torch
from numpy_corruptions import apply

from testbed.engine.processes import keep_freed_memory
from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS, corruption
from testbed.perturb.seeding import BatchRandom, image_generator


def picture(side: int, number: int) -> torch.Tensor:
    """Smooth shapes with edges and some noise, as bytes: what a decoded photograph gives."""
    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:side, :side]
    waves = [0.5 + 0.4 * np.sin(rows / rng.uniform(5, 30) + columns / rng.uniform(5, 30)) for _ in range(3)]
    pixels = np.stack(waves) + 0.05 * rng.normal(size=(3, side, side))
    return torch.from_numpy(np.rint(pixels.clip(0, 1) * 255).astype(np.float32) / 255)


def numpy_form(name: str, severity: int, image: torch.Tensor, number: int) -> torch.Tensor:
    """As perturbation_fn_cpu was: a tensor in, a tensor out, one generator per picture."""
    _, parameters = corruption(name, severity).constants_for(min(image.shape[-2:]))
    planes = np.ascontiguousarray(image.numpy(), dtype=np.float32)
    out = apply(name, planes.transpose(1, 2, 0), image_generator(0, name, str(number)), parameters)
    return torch.from_numpy(np.ascontiguousarray(out.transpose(2, 0, 1), dtype=np.float32))


def ours(name: str, severity: int, image: torch.Tensor, number: int) -> torch.Tensor:
    return corruption(name, severity).on_batch(image[None], BatchRandom(0, name, [str(number)], "cpu"))


def seconds(form: Callable[..., object], *what: object) -> float:
    began = time.process_time()
    form(*what)
    return time.process_time() - began


def measured(name: str, images: list[torch.Tensor]) -> tuple[float, float]:
    """Seconds a picture: ours, the NumPy form. Medians by severity, then their mean."""
    found: dict[tuple[str, int], list[float]] = {}
    for form in (ours, numpy_form):
        for severity in range(1, 6):  # matrices and tables are made once
            form(name, severity, images[0], 0)
    for number, image in enumerate(images):
        severity = number % 5 + 1
        for form in (ours, numpy_form) if number % 2 else (numpy_form, ours):
            taken = seconds(form, name, severity, image, number)
            found.setdefault((form.__name__, severity), []).append(taken)
    new, old = (
        statistics.mean(statistics.median(taken) for (kind, _), taken in found.items() if kind == form.__name__)
        for form in (ours, numpy_form)
    )
    return new, old


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as in the processes of a run; for both sides
    images = [picture(options.size, number) for number in range(options.images)]
    print(f"{'corruption':28}{'images/s':>10}{'NumPy form':>12}{'ratio':>8}")
    for name in options.names or CORRUPTIONS + BAR_CORRUPTIONS:
        new, old = measured(name, images)
        print(f"{name:28}{1 / new:10.0f}{1 / old:12.0f}{old / new:8.2f}", flush=True)


if __name__ == "__main__":
    main()
