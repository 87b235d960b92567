"""`onnx:FILE,mean=0.485,0.456,0.406,std=0.229,0.224,0.225`: a network in an ONNX file.

Options follow the file, as `,word=value`: `mean` and `std` (one number, or one for each channel), `resize`, `crop`,
`interpolation`, `layout` (nchw or nhwc), `output` (the name of one of several). A file may say the same words in its
own metadata. `mean` and `std` must be said in one of the two places: a graph does not tell how its pictures are
normalised.
"""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from pathlib import Path
from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import EntryError, UnknownName, near_names
from testbed.models.strings.onnx_file import OPAQUE, OnnxFile, Tensor, read_onnx

_WORDS = ("mean", "std", "resize", "crop", "interpolation", "layout", "output")
_OPTION = re.compile(r",([A-Za-z_]+)=")
_CHANNELS = 3
_ITSELF = "mean=0,std=1 if the graph normalises by itself"


def resolve(name: str, rest: str) -> Model:
    if importlib.util.find_spec("onnxruntime") is None:
        raise UnknownName("'onnx:' needs the package onnxruntime: pip install 'robustness-testbed[onnx]'")
    path, told = _parted(name, rest)
    file = read_onnx(path)
    said = {word: value for word, value in file.metadata.items() if word in _WORDS} | told
    layout, size, output = _layout(name, file, said), _size(name, file, said), _output(name, file, said)
    transform = _transform(size, said)
    return Model(
        name=name,
        transform=transform,
        normalization=_normalization(name, said),
        classifier_loader=partial(_load, file, layout, size, output),
        eval_batch_size=64,
        arch=path.stem,
        tags=("onnx",),
        weights_paths={each.name: each for each in file.files},
        own_weights=False,
        opaque=OPAQUE,
        input_note=_note(transform, said, told, layout),
    )


def _load(file: OnnxFile, layout: str, size: tuple[int, int], output: Tensor) -> Any:
    from testbed.models.strings.onnx_network import OnnxNetwork
    from testbed.models.weights import note_file

    for path in file.files:
        note_file(path)
    return OnnxNetwork(file, layout, size, output)


def _parted(name: str, rest: str) -> tuple[Path, dict[str, str]]:
    """The file, and what was said of it. A value goes on until the next `,word=`."""
    path, *pairs = _OPTION.split(rest)
    told = dict(zip(pairs[::2], pairs[1::2], strict=True))
    for word in told:
        if word not in _WORDS:
            raise EntryError(f"'{name}': no option '{word}'{near_names(word, _WORDS) or f'; there are {_WORDS}'}")
    if not path:
        raise EntryError(f"'{name}': expected onnx:FILE,mean=...,std=...")
    return Path(path).expanduser(), told


def _input(name: str, file: OnnxFile) -> Tensor:
    """The picture's input, checked for what any layout must have."""
    if len(file.inputs) != 1:
        listed = ", ".join(tensor.name for tensor in file.inputs)
        raise EntryError(f"'{name}': expected one input, the pictures, got {listed}")
    (tensor,) = file.inputs
    if tensor.kind not in ("float32", "float16", "float64"):
        raise EntryError(f"'{name}': expected an input of floating numbers, '{tensor.name}' is of {tensor.kind}")
    if len(tensor.shape) != 4:
        raise EntryError(f"'{name}': expected an input of four axes, '{tensor.name}' has {_sides(tensor)}")
    return tensor


def _layout(name: str, file: OnnxFile, said: dict[str, str]) -> str:
    tensor = _input(name, file)
    second, last = tensor.shape[1], tensor.shape[3]
    possible = [w for w, side in (("nchw", second), ("nhwc", last)) if side in (None, _CHANNELS)]
    if not possible:
        raise EntryError(f"'{name}': expected pictures of 3 channels, the input '{tensor.name}' has {_sides(tensor)}")
    layout = said.get("layout", "").lower()
    if layout and layout not in possible:
        raise EntryError(f"'{name}': expected layout {' or '.join(possible)} for {_sides(tensor)}, got '{layout}'")
    certain = [w for w, side in (("nchw", second), ("nhwc", last)) if side == _CHANNELS]
    if not layout and not certain:
        raise EntryError(f"'{name}': the input {_sides(tensor)} does not tell its channels: add ,layout=nchw or nhwc")
    return layout or certain[0]


def _size(name: str, file: OnnxFile, said: dict[str, str]) -> tuple[int, int]:
    """Height and width of the input: the graph's, else those of `crop`, which must not contradict it."""
    (tensor,) = file.inputs
    places = (2, 3) if _layout(name, file, said) == "nchw" else (1, 2)
    height, width = (tensor.shape[place] for place in places)
    crop = _sizes("crop", said["crop"]) if "crop" in said else None
    if crop is None:
        if height is None or width is None:
            raise EntryError(f"'{name}': the input {_sides(tensor)} does not tell its size: add ,crop=224 or such")
        return height, width
    if (height or crop[0], width or crop[1]) != crop:
        raise EntryError(f"'{name}': expected crop={height}x{width}, the size of the input, got crop={said['crop']}")
    return crop


def _output(name: str, file: OnnxFile, said: dict[str, str]) -> Tensor:
    names = [tensor.name for tensor in file.outputs]
    if "output" not in said and len(names) > 1:
        raise EntryError(f"'{name}': the file has the outputs {', '.join(names)}: add ,output=NAME")
    wanted = said.get("output", names[0])
    if wanted not in names:
        raise EntryError(f"'{name}': no output '{wanted}', the file has {', '.join(names)}")
    return file.outputs[names.index(wanted)]


def _transform(size: tuple[int, int], said: dict[str, str]) -> StandardTransform:
    """Resize and crop as they were said; else the usual ones for the input's size."""
    crop: int | tuple[int, int] = size[0] if size[0] == size[1] else size
    interpolation = said.get("interpolation", "bilinear")
    if "resize" not in said:
        usual = StandardTransform(crop, crop, interpolation).usual()
        return StandardTransform(usual.img_resize_size, crop, interpolation)
    text = said["resize"]
    height, width = _sizes("resize", text)
    return StandardTransform((height, width) if "x" in text else height, crop, interpolation)


def _sizes(word: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,5})(?:x([0-9]{1,5}))?", text)
    if not match or int(match[1]) < 1:
        raise EntryError(f"onnx: expected {word}=224 or {word}=HEIGHTxWIDTH, got {word}={text}")
    return int(match[1]), int(match[2] or match[1])


def _normalization(name: str, said: dict[str, str]) -> StandardNormalization:
    missing = [f",{word}=..." for word in ("mean", "std") if word not in said]
    if missing:
        raise EntryError(
            f"'{name}': an ONNX file does not tell how its pictures are normalised: add {', '.join(missing)}, such as "
            f",mean=0.485,0.456,0.406,std=0.229,0.224,0.225, or {_ITSELF}"
        )
    mean, std = (_three(word, said[word]) for word in ("mean", "std"))
    return StandardNormalization(mean=mean, std=std)


def _three(word: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.strip("[]() ").split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, _CHANNELS):
        raise EntryError(f"onnx: expected {word}=NUMBER or three numbers with commas between them, got {word}={text}")
    return numbers * (_CHANNELS // len(numbers))


def _sides(tensor: Tensor) -> str:
    return "(" + ", ".join("?" if side is None else str(side) for side in tensor.shape) + ")"


def _note(transform: StandardTransform, said: dict[str, str], told: dict[str, str], layout: str) -> str:
    """How pictures are prepared, and where that comes from."""

    def of(word: str) -> str:
        return "" if word in told else " (by the file)" if word in said else " (assumed)"

    size = "x".join(map(str, _both(transform.img_crop_size)))
    return (
        f"pictures are resized to {transform.img_resize_size}{of('resize')}, cropped to {size}, "
        f"{transform.interpolation}{of('interpolation')}, normalised by mean {said['mean']}{of('mean')} and std "
        f"{said['std']}{of('std')}, {layout.upper()}"
    )


def _both(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
