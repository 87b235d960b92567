"""A sweep of models over settings: eval.py, a plain loop, and the forward passes alone, in turns in one run.

    python benchmarks/sweep.py [--models tiny|cheap|real] [--images 1000] [--rounds 1] [--gpus 0 1] [--least]

The plain loop is what one writes first: for every pair build the model, ImageFolder and DataLoader with two processes
(the corruption is part of the transform), forward passes, accuracy. The forward passes alone run on tensors in memory,
in as many processes as eval.py has workers. `cheap` models cost nothing; `real` are EfficientNet-Lite0/1/2 and
MobileNetV2. `--gpus` names the devices, two CPU workers otherwise. Beside the time there is the processor time of all
processes of each side, which says more where the machine has other work. `--least` adds a run on 8 photographs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from common import CHEAP, CORRUPTED, Taken, evaluated, measured, photographs, registry

SETTINGS = ("clean", "gaussian_noise", "defocus_blur")
SEVERITY = 3
TINY = ("mobilenetv3_small_050", "lcnet_050", "tinynet_e", "mobilenetv3_small_075")
REAL = ("tf_efficientnet_lite0", "tf_efficientnet_lite1", "tf_efficientnet_lite2", "mobilenetv2_100")
BATCH = 64
NETWORKS = """
from testbed import Model, StandardNormalization, StandardTransform
from testbed.entries import registry


def loader(name):
    def load():
        import timm

        return timm.create_model(name, num_classes=4)

    return load


for name in {names!r}:
    registry.add_model(
        Model(
            name,
            StandardTransform(256, 224),
            loader(name),
            eval_batch_size=64,
            normalization=StandardNormalization(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
        )
    )
"""


def network(name: str):
    if name.startswith("cheap"):
        return lambda images: images[:, :, 0, 0].repeat(1, 2)[:, :4]
    import timm
    import torch

    torch.manual_seed(0)
    return timm.create_model(name, num_classes=4).eval()


def plain_loop(folder: str, names: list[str], device: str) -> None:
    """Every pair by itself."""
    import torch
    from torchvision import datasets, transforms

    from testbed.perturb.corruptions import corruption
    from testbed.perturb.seeding import image_generator

    for name in names:
        for setting in SETTINGS:
            steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()]
            if setting != "clean":
                change = corruption(setting, SEVERITY)
                steps.append(lambda image, change=change: change(image, rng=image_generator(0, "x", "y")))
            steps.append(transforms.Normalize([0.5] * 3, [0.5] * 3))
            data = datasets.ImageFolder(folder, transforms.Compose(steps))
            model = network(name)
            model = model.to(device) if hasattr(model, "to") else model
            right = 0
            with torch.no_grad():
                for images, targets in torch.utils.data.DataLoader(data, BATCH, num_workers=2):
                    logits = model(images.to(device))
                    right += int((logits.argmax(1).cpu() == targets).sum())


def forward_alone(names: list[str], images: int, device: str, threads: int) -> None:
    """The share of one worker: every model on the pictures of all settings, which are in memory already."""
    import torch

    from testbed.engine.processes import keep_freed_memory

    keep_freed_memory()
    if device == "cpu":
        torch.set_num_threads(threads)
    # In the layout that eval.py gives them.
    layout = torch.channels_last if device == "cpu" else torch.contiguous_format
    batch = torch.rand(BATCH, 3, 224, 224, device=device).contiguous(memory_format=layout)
    with torch.no_grad():
        for name in names:
            model = network(name)
            model = model.to(device, memory_format=layout) if hasattr(model, "to") else model
            for first in range(0, images * len(SETTINGS), BATCH):
                model((batch[: min(BATCH, images * len(SETTINGS) - first)] - 0.5) / 0.5)


def forward_in_processes(names: list[str], images: int, devices: list[str]) -> None:
    """In a fresh process for each device."""
    share = -(-images // len(devices))
    code = "import sys, sweep; sweep.forward_alone(sys.argv[4:], int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))"
    commands = [[sys.executable, "-c", code, str(share), device, "1", *names] for device in devices]
    processes = [subprocess.Popen(command, cwd=Path(__file__).parent) for command in commands]
    if any(process.wait() for process in processes):
        raise SystemExit("forward passes failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", choices=("tiny", "cheap", "real"), default="tiny")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--gpus", nargs="*", default=["cpu", "cpu"])
    parser.add_argument("--least", action="store_true", help="also eval.py on 8 photographs: starting up")
    parser.add_argument("--forward-alone", type=int, nargs="?", metavar="IMAGES", help=argparse.SUPPRESS)
    parser.add_argument("--plain-loop", nargs=2, metavar=("FOLDER", "DEVICE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = {"tiny": TINY, "real": REAL, "cheap": tuple(f"cheap_{i}" for i in range(4))}[options.models]
    devices = ["cpu" if g == "cpu" else f"cuda:{g}" for g in options.gpus]
    if options.plain_loop:
        plain_loop(options.plain_loop[0], list(names), options.plain_loop[1])
        return
    if options.forward_alone:
        forward_in_processes(list(names), options.forward_alone, devices)
        return
    models = CHEAP.format(count=4) if options.models == "cheap" else NETWORKS.format(names=names)
    taken: dict[str, list[Taken]] = {}
    with tempfile.TemporaryDirectory() as place:
        for count in (options.images, *([8] if options.least else [])):
            folder = Path(place) / str(count)
            folder.mkdir()
            pictures = str(photographs(folder, count))
            corrupted = CORRUPTED.format(folder=pictures, names=SETTINGS[1:], severity=SEVERITY)
            entries = registry(folder, models=models, eval_settings=corrupted)
            words = ["--models", *names, "--eval-settings", *SETTINGS, "--gpus", *options.gpus]
            words += ["--threads", "1"] if options.gpus == ["cpu", "cpu"] else []
            me = [sys.executable, __file__, "--models", options.models, "--gpus", *options.gpus]
            for turn in range(options.rounds):
                which = "eval.py" if count == options.images else f"{count} photographs"
                taken.setdefault(which, []).append(evaluated(folder / str(turn) / "results.db", entries, *words))
                if count == options.images:
                    plain = measured([*me, "--plain-loop", pictures, devices[0]])
                    taken.setdefault("plain loop", []).append(plain)
                    forward = measured([*me, "--forward-alone", str(count)])
                    taken.setdefault("forward alone", []).append(forward)
    report(
        f"{len(names)} {options.models} models x {len(SETTINGS)} settings, {options.images} photographs, cold", taken
    )


def report(title: str, taken: dict[str, list[Taken]]) -> None:
    """The least of every side, and its ratio to that of eval.py."""
    least = {what: Taken(*map(min, zip(*rounds, strict=True))) for what, rounds in taken.items()}
    ours = least["eval.py"]
    print(title)
    print(f"{'':16}{'time':>10}{'':>18}{'processor time':>18}")
    for what, (seconds, processor_s) in least.items():
        ratio, by_processor = seconds / ours.seconds, processor_s / ours.processor_s
        print(f"{what:16}{seconds:8.1f} s{ratio:8.2f} x eval.py{processor_s:8.1f} s{by_processor:8.2f} x eval.py")


if __name__ == "__main__":
    main()
