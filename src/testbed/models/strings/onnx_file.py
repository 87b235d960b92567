"""What an ONNX file says of itself: inputs, outputs, metadata, files with weights. Needs no package of ONNX.

Planning asks for this, and opening a session would read all weights. An ONNX file is a protocol buffer; the numbers of
its fields are those of onnx.proto. Tensors are skipped, not read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import ModelError

OPAQUE = "an ONNX file gives neither gradients nor layers, and computes as it was exported"

_VARINT, _LENGTH = 0, 2
_FIXED = {1: 8, 5: 4}  # wire type -> bytes
_MOST_BITS = 63
# Fields of the messages that are read, by the name of the message in onnx.proto.
_MODEL_GRAPH, _MODEL_METADATA = 7, 14
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_NODE_OUTPUT, _NODE_OPERATOR = 2, 4
_VALUE_NAME, _VALUE_TYPE, _TYPE_TENSOR, _TENSOR_KIND, _TENSOR_SHAPE, _SHAPE_DIMENSION = 1, 2, 1, 1, 2, 1
_DIMENSION_VALUE = 1
_INITIALIZER_NAME, _INITIALIZER_EXTERNAL = 8, 13
_KINDS = {1: "float32", 2: "uint8", 10: "float16", 11: "float64"}  # as NumPy calls them

Message = dict[int, list["memoryview | int"]]


@dataclass(frozen=True)
class Tensor:
    """An input or output of the graph. A side is None where it is symbolic or unknown."""

    name: str
    kind: str  # of NumPy; a number for others
    shape: tuple[int | None, ...]


@dataclass
class OnnxFile:
    """What is read of a file."""

    path: Path
    inputs: list[Tensor]
    outputs: list[Tensor]
    last_operators: dict[str, str]  # name of an output -> the operator that makes it
    metadata: dict[str, str] = field(default_factory=dict)
    external: tuple[Path, ...] = ()  # further files that hold its weights

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path, *self.external)


def read_onnx(path: Path) -> OnnxFile:
    """A file's own words. What is no ONNX model, or lacks the files with its weights, is refused."""
    if not path.is_file():
        raise ModelError(f"no file {path}")
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        read = _model(path, _fields(memoryview(content)))
    except (ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{path} is truncated, or no ONNX model") from error
    missing = [file.name for file in read.external if not file.is_file()]
    if missing:
        raise ModelError(f"{path} has its weights in {', '.join(missing)}, which is not beside it")
    return read


def _model(path: Path, model: Message) -> OnnxFile:
    graph = _fields(_view(model[_MODEL_GRAPH][0])) if _MODEL_GRAPH in model else {}
    initializers = [_fields(_view(tensor)) for tensor in graph.get(_GRAPH_INITIALIZER, ())]
    weights = {_text(tensor[_INITIALIZER_NAME][0]) for tensor in initializers if _INITIALIZER_NAME in tensor}
    # Files of old versions list their weights among the inputs.
    inputs = [tensor for value in graph.get(_GRAPH_INPUT, ()) if (tensor := _tensor(value)).name not in weights]
    outputs = [_tensor(value) for value in graph.get(_GRAPH_OUTPUT, ())]
    if not inputs or not outputs:
        raise ValueError("no graph with inputs and outputs")
    operators: dict[str, str] = {}
    for node in (_fields(_view(node)) for node in graph.get(_GRAPH_NODE, ())):
        made = [_text(output) for output in node.get(_NODE_OUTPUT, ())]
        operators |= dict.fromkeys(made, _text(node[_NODE_OPERATOR][0]))
    places = (_pairs(tensor.get(_INITIALIZER_EXTERNAL, ())).get("location") for tensor in initializers)
    external = tuple(path.parent / place for place in dict.fromkeys(places) if place)
    last = {tensor.name: operators.get(tensor.name, "") for tensor in outputs}
    return OnnxFile(path, inputs, outputs, last, _pairs(model.get(_MODEL_METADATA, ())), external)


def _tensor(value: memoryview | int) -> Tensor:
    fields = _fields(_view(value))
    kind = _fields(_view(fields[_VALUE_TYPE][0])) if _VALUE_TYPE in fields else {}
    tensor = _fields(_view(kind[_TYPE_TENSOR][0])) if _TYPE_TENSOR in kind else {}
    number = int(tensor[_TENSOR_KIND][0]) if _TENSOR_KIND in tensor else 0
    shape = _fields(_view(tensor[_TENSOR_SHAPE][0])) if _TENSOR_SHAPE in tensor else {}
    sides = [_fields(_view(side)).get(_DIMENSION_VALUE) for side in shape.get(_SHAPE_DIMENSION, ())]
    known = tuple(side[0] if side and isinstance(side[0], int) and side[0] > 0 else None for side in sides)
    return Tensor(_text(fields[_VALUE_NAME][0]), _KINDS.get(number, str(number)), known)


def _pairs(entries: Iterable[memoryview | int]) -> dict[str, str]:
    """StringStringEntryProto: 1 is the key, 2 the value."""
    read = (_fields(_view(entry)) for entry in entries)
    return {_text(entry[1][0]): _text(entry[2][0]) for entry in read if 1 in entry and 2 in entry}


# ---- protocol buffers ------------------------------------------------------------------------------------


def _fields(view: memoryview) -> Message:
    """The fields of a message by number: whole numbers, or views of what is inside."""
    fields: Message = {}
    place = 0
    while place < len(view):
        key, place = _varint(view, place)
        number, wire = key >> 3, key & 7
        value: memoryview | int
        if wire == _VARINT:
            value, place = _varint(view, place)
        else:
            if wire == _LENGTH:
                length, place = _varint(view, place)
            elif wire in _FIXED:
                length = _FIXED[wire]
            else:
                raise ValueError(f"no wire type {wire}")
            if place + length > len(view):
                raise ValueError("the message ends before its field")
            value, place = view[place : place + length], place + length
        fields.setdefault(number, []).append(value)
    return fields


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, the lowest first; and the place after it."""
    number = shift = 0
    while True:
        byte = view[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
        if shift > _MOST_BITS:
            raise ValueError("a number has more than 64 bits")


def _view(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise ValueError("expected a message, got a number")
    return value


def _text(value: memoryview | int) -> str:
    return bytes(_view(value)).decode("utf-8")
