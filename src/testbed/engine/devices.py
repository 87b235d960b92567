"""Which devices a run may use."""

from __future__ import annotations

import os
from collections.abc import Sequence

from testbed.engine.processes import gpu_count
from testbed.errors import TestbedError


def chosen_devices(gpus: Sequence[str] = ()) -> list[str]:
    """`--gpus 0 1` -> cuda:0, cuda:1; `--gpus cpu cpu` -> two CPU workers; nothing -> all GPUs, else the CPU."""
    if not gpus:
        return [f"cuda:{i}" for i in range(gpu_count())] or ["cpu"]
    devices = []
    for word in gpus:
        if word == "cpu":
            devices.append("cpu")
        elif word.isdecimal():
            if int(word) >= gpu_count():
                there = gpu_count()
                way_out = "take a lower number or --gpus cpu" if there else "take --gpus cpu"
                raise TestbedError(f"--gpus {word}: this machine has {there} GPU(s) that torch can use; {way_out}")
            devices.append(f"cuda:{word}")
        else:
            raise TestbedError(f"--gpus: expected GPU numbers or cpu, got '{word}'")
    return devices


def usable_device(device: object) -> str:
    """A device that was named in Python (`"cuda"`, `"cuda:1"`, `"cpu"`, a torch.device), if torch can use it here."""
    import torch

    try:
        named = torch.device(str(device))
    except RuntimeError:
        raise TestbedError(f"device: expected cpu, cuda or cuda:NUMBER, got {str(device)!r}") from None
    if named.type == "cuda" and (named.index or 0) >= gpu_count():
        raise TestbedError(
            f"device {str(device)!r}: this machine has {gpu_count()} GPU(s) that torch can use; take device='cpu'"
        )
    return f"cuda:{named.index or 0}" if named.type == "cuda" else str(named)


def threads_per_worker(devices: Sequence[str], asked: int | None) -> int:
    """Torch threads for each CPU worker: the cores shared out, unless told."""
    if asked:
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // max(1, sum(d == "cpu" for d in devices)))
