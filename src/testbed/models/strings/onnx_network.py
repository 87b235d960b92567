"""An ONNX file as a network: pictures in, logits out, computed by onnxruntime. It has no layers and no gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from testbed.data.fetch import digest_of
from testbed.errors import ModelError
from testbed.models.strings.onnx_file import OPAQUE, OnnxFile, Tensor

_BACKGROUND = 1001  # outputs of ImageNet classifiers of TensorFlow: the first stands for none of the 1000 classes
_LEAST = 1e-30  # probabilities below count as this: their logarithm must be finite
_SUM_TO_ONE = 1e-3


class OnnxNetwork(nn.Module):
    """Normalised images (N, 3, H, W) -> logits. The session is opened when the network is moved to its device."""

    def __init__(self, file: OnnxFile, layout: str, size: tuple[int, int], output: Tensor) -> None:
        super().__init__()
        self._file, self._layout, self._size, self._output = file, layout, size, output
        self._session: Any = None
        self._opened_on: torch.device | None = None
        self._batch = file.inputs[0].shape[0]
        # Buffers are part of the state: files of other content have another checksum.
        digests = b"".join(bytes.fromhex(digest_of(path)) for path in file.files)
        self.register_buffer("files_sha256", torch.tensor(list(digests), dtype=torch.uint8))
        self.bytes_elsewhere = sum(
            path.stat().st_size for path in file.files
        )  # of the weights, which torch does not see
        self._probabilities = self._drops_background = False
        self.recorded_facts: dict[str, Any] = {}

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        moved = super()._apply(fn, recurse)
        device = torch.device(str(self.files_sha256.device))
        if self._opened_on != device:
            self._session, self._opened_on = _session(self._file, device), device
            self._look()
        return moved

    def _look(self) -> None:
        """What the outputs are, from a first pass over grey noise: whether it runs at all is then known too."""
        noise = torch.rand(2, 3, *self._size, generator=torch.Generator().manual_seed(0)) * 4 - 2
        outputs = self._run(noise)
        if outputs.ndim != 2 or len(outputs) != len(noise):
            raise ModelError(
                f"{self._file.path}: expected outputs of shape (pictures, classes), '{self._output.name}' of "
                f"{len(noise)} pictures has {tuple(outputs.shape)}"
            )
        shares = bool((outputs >= 0).all() and (np.abs(outputs.sum(axis=1) - 1) < _SUM_TO_ONE).all())
        self._probabilities = self._file.last_operators.get(self._output.name) == "Softmax" or shares
        self._drops_background = outputs.shape[1] == _BACKGROUND
        self.recorded_facts = {
            "onnx": {
                "providers": ", ".join(self._session.get_providers()),
                "outputs": "logarithm of its probabilities" if self._probabilities else "as they are",
                **({"left_out": "the first of 1001 outputs, background"} if self._drops_background else {}),
            }
        }

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.requires_grad:  # without this every attack would look harmless
            raise ModelError(f"{self._file.path}: {OPAQUE}")
        if self._session is None:
            self.to(images.device)
        outputs = self._run(images)
        if self._probabilities:
            outputs = np.log(np.maximum(outputs, _LEAST))
        if self._drops_background:
            outputs = outputs[:, 1:]
        return torch.from_numpy(np.ascontiguousarray(outputs)).to(images.device)

    def _run(self, images: torch.Tensor) -> np.ndarray:
        """The outputs of all images; a file of a fixed batch gets full ones, the last filled up with its last image."""
        array = images.detach().cpu().numpy().astype(self._file.inputs[0].kind)
        if self._layout == "nhwc":
            array = array.transpose(0, 2, 3, 1)
        size = self._batch or len(array)
        parts = []
        for start in range(0, len(array), size):
            part = array[start : start + size]
            lacking = size - len(part)
            filled = np.concatenate([part, np.repeat(part[-1:], lacking, axis=0)]) if lacking else part
            parts.append(self._call(np.ascontiguousarray(filled))[: len(part)])
        return np.concatenate(parts).astype(np.float32)

    def _call(self, batch: np.ndarray) -> np.ndarray:
        try:
            (outputs,) = self._session.run([self._output.name], {self._file.inputs[0].name: batch})
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise ModelError(f"{self._file.path} on pictures {batch.shape}: {_first_line(error)}") from error
        # Some exports keep the two axes of a last pooling.
        return np.asarray(outputs.reshape(outputs.shape[:2]) if outputs.shape[2:] == (1, 1) else outputs)


def _session(file: OnnxFile, device: torch.device) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()  # as many as this worker may use
    options.log_severity_level = 3  # errors alone: what matters is checked below
    if device.type == "cuda":
        provider: Any = ("CUDAExecutionProvider", {"device_id": device.index or 0})
    else:
        provider = ("CPUExecutionProvider", {})
    if provider[0] not in onnxruntime.get_available_providers():
        raise ModelError(
            f"this onnxruntime has no {provider[0]}: pip install onnxruntime-gpu in its place, or give --gpus cpu"
        )
    try:
        session = onnxruntime.InferenceSession(str(file.path), options, providers=[provider])
    except Exception as error:
        raise ModelError(f"{file.path}: onnxruntime cannot open it: {_first_line(error)}") from error
    if session.get_providers()[0] != provider[0]:  # where a driver is missing it only warns
        raise ModelError(f"{file.path}: expected {provider[0]}, onnxruntime took {session.get_providers()[0]}")
    return session


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
