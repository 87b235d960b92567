"""timm's own loop (create_loader with two processes, forward passes) against eval.py, on clean photographs, cold.

python benchmarks/timm_loop.py [--images 1000] [--models NAME ...] [--gpus 0]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import CORRUPTED, evaluate, photographs, registry
from sweep import NETWORKS

MODELS = ("mobilenetv3_small_100", "mobilenetv2_050", "tf_efficientnet_lite0")


def timm_loop(folder: str, name: str, device: str) -> None:
    import timm
    import torch
    from timm.data import create_dataset, create_loader

    model = timm.create_model(name, num_classes=4).eval().to(device)
    loader = create_loader(
        create_dataset("", root=folder),
        input_size=(3, 224, 224),
        batch_size=64,
        use_prefetcher=device != "cpu",
        interpolation="bilinear",
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        num_workers=2,
        crop_pct=0.875,
        device=torch.device(device),
    )
    right = 0
    with torch.no_grad():
        for images, targets in loader:
            right += int((model(images.to(device)).argmax(1).cpu() == targets.cpu()).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--gpus", nargs="*", default=["cpu"])
    parser.add_argument("--loop", nargs=3, metavar=("FOLDER", "NAME", "DEVICE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        timm_loop(*options.loop)
        return
    device = "cpu" if options.gpus == ["cpu"] else f"cuda:{options.gpus[0]}"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pictures = str(photographs(folder, options.images))
        entries = registry(
            folder,
            models=NETWORKS.format(names=tuple(options.models)),
            eval_settings=CORRUPTED.format(folder=pictures, names=(), severity=1),
        )
        words = ["--eval-settings", "clean", "--gpus", *options.gpus]
        print(f"{'models':>8}{'timm, s':>10}{'eval.py, s':>12}{'ratio':>8}")
        for names in (options.models[:1], options.models):
            began = time.perf_counter()
            for name in names:
                subprocess.run([sys.executable, __file__, "--loop", pictures, name, device], check=True)
            theirs = time.perf_counter() - began
            ours = evaluate(folder / f"{len(names)}/results.db", entries, "--models", *names, *words)
            print(f"{len(names):8}{theirs:10.1f}{ours:12.1f}{theirs / ours:8.2f}", flush=True)


if __name__ == "__main__":
    main()
