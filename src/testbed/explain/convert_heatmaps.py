"""Turns a pickled dictionary of heatmaps, as the published program saves them, into an .npz. Imports no torch.

    python -m testbed.explain.convert_heatmaps cello.npy

Loading a pickle calls whatever functions it names. Here it may name only those that numpy pickles arrays with, and even
these are not called: stand-ins take their arguments, check them, and make arrays from the bytes.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

from testbed.data.regular import regular
from testbed.data.writing import write_aside, writing_to
from testbed.errors import DataError, TestbedError

_NUMBERS = re.compile(r"[biuf][1248]")
_OBJECTS = re.compile(r"O8?")
_HIGHEST = 2**31 - 1


class _Type:
    """Stands for numpy.dtype."""

    def __init__(self, code: str, *_: Any) -> None:
        self.code, self.order = str(code), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = str(state[1])

    def numbers(self, content: Any) -> np.ndarray:
        """The numbers in these bytes."""
        if not _NUMBERS.fullmatch(self.code) or self.order not in ("<", ">", "|", "="):
            raise DataError(f"expected numbers, got values of the type {self.code!r}")
        return np.frombuffer(bytes(content), np.dtype(self.order.replace("|", "=") + self.code))


class _Array:
    """Stands for the function that makes an empty array, and for the array, which is filled afterwards."""

    def __init__(self, *_: Any) -> None:
        self.value: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        if _OBJECTS.fullmatch(kind.code):
            self.value = list(content)
        else:
            self.value = kind.numbers(content).reshape(shape, order="F" if fortran else "C")


class _Scalar:
    """Stands for the function that makes one number of numpy, such as the keys of the published dictionary."""

    def __init__(self, kind: _Type, content: bytes) -> None:
        self.value = kind.numbers(content)[0].item()


# What a pickle with arrays names; numpy 2 renamed the module.
_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): "an argument of _reconstruct, never called",
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Scalar for core in ("core", "_core")},
}


class _ArraysOnly(pickle._Unpickler):  # in Python: the one in C makes a table as long as the file says
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise DataError(f"it names {module}.{name}, and only arrays of numbers are taken; nothing of it was run")
        return _STAND_INS[module, name]


def read_pickled_heatmaps(path: Path) -> dict[int, np.ndarray]:
    """Class -> heatmap (H, W) from an .npy with a pickled dictionary, without running code of the file."""
    try:
        with regular(path).open("rb") as file:
            _skip_header(file)
            return _by_class(_ArraysOnly(file).load())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # whatever a damaged pickle makes the unpickler do
        raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _skip_header(file: IO[bytes]) -> None:
    """Read up to the pickle. Raises a DataError if there is none."""
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = reader(file)
    except ValueError as error:
        raise DataError(f"expected an .npy file: {error}") from error
    if not dtype.hasobject:
        raise DataError("expected a pickled dictionary, got an array of numbers, which needs no conversion")


def _by_class(content: Any) -> dict[int, np.ndarray]:
    """The dictionary, which numpy has pickled as the only item of an array without dimensions."""
    items = content.value if isinstance(content, _Array) else None
    if not isinstance(items, list) or len(items) != 1 or not isinstance(items[0], dict) or not items[0]:
        raise DataError("expected a pickled dictionary of class and heatmap, got something else")
    return dict(_heatmap(key, value) for key, value in items[0].items())


def _heatmap(key: Any, value: Any) -> tuple[int, np.ndarray]:
    number = key.value if isinstance(key, _Scalar) else key
    if type(number) is not int or not 0 <= number <= _HIGHEST:
        raise DataError(f"expected class numbers as keys, got {number!r:.40}")
    heatmap = value.value if isinstance(value, _Array) else None
    if not isinstance(heatmap, np.ndarray) or heatmap.ndim != 2:
        got = f"an array of shape {heatmap.shape}" if isinstance(heatmap, np.ndarray) else "something else"
        raise DataError(f"class {number}: expected a heatmap with one number per pixel, got {got}")
    return number, heatmap


def _write(path: Path, heatmaps: Mapping[int, np.ndarray]) -> None:
    with path.open("wb") as file:  # given a name, numpy would add .npz to it
        np.savez(file, allow_pickle=False, **{str(number): heatmap for number, heatmap in heatmaps.items()})


@click.command()
@click.argument("pickled", type=click.Path(path_type=Path), metavar="FILE.npy")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.npz", help="Written.  [default: beside FILE.npy]")
def main(pickled: Path, out: Path | None) -> None:
    """Turn heatmaps pickled in FILE.npy, a dictionary by class number, into an .npz for explanations:MANIFEST.csv."""
    out = out or pickled.with_suffix(".npz")
    try:
        heatmaps = read_pickled_heatmaps(pickled)
        with writing_to(out):
            write_aside(out, lambda aside: _write(aside, heatmaps))
    except TestbedError as error:
        raise click.ClickException(str(error)) from error
    click.echo(
        f"warning: {pickled} is a pickle: np.load(..., allow_pickle=True) runs any code in such\n"
        "a file. Only numbers were read here; the .npz holds nothing else.",
        err=True,
    )
    sizes = sorted({f"{h.shape[0]} x {h.shape[1]}" for h in heatmaps.values()})
    click.echo(f"wrote {out}: {len(heatmaps)} heatmaps, {', '.join(sizes)}")
    click.echo(f"classes {', '.join(map(str, sorted(heatmaps)))}")


if __name__ == "__main__":
    main()
