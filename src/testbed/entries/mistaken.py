"""What a name without an entry may be instead: a file of weights, or the path of one's own pictures."""

from __future__ import annotations

from pathlib import Path

_WEIGHTS = (".pth", ".pt", ".th", ".bin", ".ckpt", ".safetensors", ".pth.tar")
_ARRAYS = (".npy", ".npz")
_ARCHIVES = (".tar", ".zip")
# The beginnings of settings by string, with what is to follow.
_EMPTY = {
    "folder:": "PATH",
    "manifest:": "FILE.csv",
    "array:": "FILE.npz",
    "autoeval:": "DIR",
    "under:": "fog.3@SETTING",
}


def weights_as_model(name: str) -> str:
    """The error for a file of weights in the place of a model; empty for another name."""
    if name.lower().endswith(".onnx"):
        return f"'{name}' is an ONNX file, expected a model: onnx:{name},mean=...,std=... runs it"
    if not name.lower().endswith(_WEIGHTS):
        return ""
    return (
        f"'{name}' is a file of weights, expected a model: name the architecture with --models and the file with "
        f"--checkpoint, such as --models resnet50 --checkpoint {name}"
    )


def path_as_setting(name: str) -> str:
    """The error for a path in the place of an eval setting; empty for another name."""
    if name in _EMPTY:
        return f"'{name}': nothing stands after the colon, expected an eval setting such as {name}{_EMPTY[name]}"
    path = Path(name)
    if path.is_dir():
        return f"'{name}' is a folder, expected an eval setting: folder:{name} takes the pictures in it"
    if path.suffix.lower() == ".csv":
        return f"'{name}' is a CSV file, expected an eval setting: manifest:{name} takes the pictures that it lists"
    if path.suffix.lower() in _ARRAYS:
        return f"'{name}' is a file of arrays, expected an eval setting: array:{name} takes the pictures in it"
    if path.suffix.lower() == ".parquet":
        return f"'{name}' is a parquet file, expected an eval setting: parquet:{name} takes the pictures in it"
    if path.suffix.lower() in _ARCHIVES:
        kind = path.suffix.lower().removeprefix(".")
        return f"'{name}' is a {kind} file, expected an eval setting: {kind}:{name} takes the pictures in it"
    if path.is_file():
        return (
            f"'{name}' is a file, expected an eval setting: pictures are given as folder:DIR, manifest:FILE.csv or "
            "array:FILE.npz"
        )
    return ""
