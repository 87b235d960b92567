"""How a model of transformers wants its pictures: its processor as data, compared with the processor itself.

Reading a processor imports transformers and torch, which takes seconds in every process. So what was read is kept in
the user's cache folder, under a key of the configuration and of the versions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.transforms import StandardTransform
from testbed.data.user_cache import keep, user_cache
from testbed.entries.model import StandardNormalization
from testbed.errors import ModelError
from testbed.models import processors
from testbed.models.strings.hub_files import ModelFolder, read_json

_CLOSE = 1e-3  # grey levels of 255 between data and processor: what rounding to float32 may leave
# (height, width) of the pictures that both are tried on: sides whose crop falls between pixels, either way round.
_TRIED = ((251, 333), (334, 500), (97, 64))
_SWITCHES = {"do_normalize": False, "do_rescale": True, "rescale_factor": 1 / 255, "return_tensors": "np"}
_FURTHER_SWITCHES = ("rescale_offset", "include_top", "do_flip_channel_order")
# Keys of preprocessor_config.json that say what the file is, not what is done.
_NO_STEPS = {"image_processor_type", "feature_extractor_type", "processor_class", "auto_map", "_valid_processor_keys"}


@dataclass(frozen=True)
class Preparation:
    """Transform and normalisation, and what is to be told of them."""

    transform: Callable[[Any], Any]
    normalization: StandardNormalization | None
    note: str = ""


@dataclass(frozen=True)
class ProcessorTransform:
    """The processor itself, up to its normalisation: a picture to an array (3, height, width) in [0, 1]."""

    processor: str  # its class
    backend: str
    folder: str

    def __call__(self, image: Any) -> np.ndarray:
        processor = _processor(Path(self.folder), self.backend)
        switches = {**_SWITCHES, **{name: False for name in _FURTHER_SWITCHES if hasattr(processor, name)}}
        return _pixels(processor, image, **switches)


def preparation_of(folder: ModelFolder) -> Preparation:
    """What was read before, or what is read now and kept."""
    folder.add_file("preprocessor_config.json")
    configs = [folder.path / name for name in ("preprocessor_config.json", "processor_config.json")]
    if not any(config.is_file() for config in configs):
        raise ModelError(
            f"{folder.origin} has no preprocessor_config.json, which says how pictures are prepared: "
            "processor.save_pretrained(FOLDER) writes it"
        )
    if (raw := read_json(next(c for c in configs if c.is_file()))) and not isinstance(raw, dict):
        raise ModelError(f"{folder.origin}/preprocessor_config.json: expected an object, got {type(raw).__name__}")
    path = user_cache("hf-processors") / f"{_key(folder.path)}.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent or damaged: read again
        kept = _read(folder)
        keep(path, json.dumps(kept).encode())
    norm = kept["normalization"]
    words = kept["transform"]
    transform: Callable[[Any], Any] = (
        ProcessorTransform(**words, folder=str(folder.path))
        if "processor" in words
        else StandardTransform(**_tuples(words))
    )
    return Preparation(transform, StandardNormalization(**norm) if norm else None, kept["note"])


def _key(folder: Path) -> str:
    """Of all that the reading depends on."""
    digest = hashlib.sha256(version("transformers").encode())
    for file in (*sorted(folder.glob("*config.json")), Path(__file__), Path(processors.__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _tuples(words: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in words.items()}


def _read(folder: ModelFolder) -> dict[str, Any]:
    """The preparation as plain data."""
    # transformers' default resizes with torchvision on tensors, which differs by grey levels from the pictures that
    # models were trained on and published with; PIL's is the one that data can say exactly.
    processor = _loaded(folder, "pil")
    name = type(processor).__name__.removesuffix("Pil")
    notes = _without_effect(folder, processor, name)
    read = processors.read_processor(processor)
    norm = read.normalization if read is not None else _normalization_of(folder, processor)
    if read is not None and _difference(processor, read.transform, norm) <= _CLOSE:
        transform = asdict(read.transform)
    else:
        backend = str(getattr(processor, "backend", "pil"))
        if not _difference(processor, ProcessorTransform(name, backend, str(folder.path)), norm) <= _CLOSE:
            raise ModelError(f"{folder.origin}: {name} cannot be taken apart into a picture and its normalisation")
        notes.append(f"pictures are prepared by {name} of transformers itself ({backend}), and not kept in the cache")
        transform = {"processor": name, "backend": backend}
    return {"transform": transform, "normalization": asdict(norm) if norm else None, "note": "; ".join(notes)}


def _normalization_of(folder: ModelFolder, processor: Any) -> StandardNormalization | None:
    if not (hasattr(processor, "image_mean") and hasattr(processor, "image_std")):
        raise ModelError(f"{folder.origin}: {type(processor).__name__} has no image_mean and image_std")
    return processors.read_normalization(processor)


def _difference(processor: Any, transform: Callable[[Any], Any], norm: StandardNormalization | None) -> float:
    """The largest difference in grey levels between a processor and its translation, over random pictures."""
    from PIL import Image

    mean, std = (np.array(norm.mean), np.array(norm.std)) if norm else (np.zeros(3), np.ones(3))
    largest = 0.0
    for place, shape in enumerate(_TRIED):
        pixels = np.random.default_rng(place).integers(0, 256, (*shape, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        expected = _pixels(processor, image, return_tensors="np").astype(np.float64)
        ours = np.asarray(transform(image))
        ours = ours.transpose(2, 0, 1) / 255 if ours.dtype == np.uint8 else ours
        ours = ours[::-1] if norm and norm.input_space == "BGR" else ours
        if ours.shape != expected.shape:
            return np.inf
        restored = expected * std[:, None, None] + mean[:, None, None]
        largest = max(largest, float(np.abs(restored - ours).max()) * 255)
    return largest


def _pixels(processor: Any, image: Any, **switches: Any) -> np.ndarray:
    try:
        return np.asarray(processor(image, **switches)["pixel_values"][0], dtype=np.float32)
    except Exception as error:  # a class that expects more than a picture, or gives something else than pixels
        raise ModelError(f"{type(processor).__name__} gives no pixels: {type(error).__name__}: {error}") from error


def _without_effect(folder: ModelFolder, processor: Any, name: str) -> list[str]:
    """What the file says and transformers passes over without a word: another class, keys that no step reads."""
    from transformers.processing_utils import ImagesKwargs

    path = folder.path / "preprocessor_config.json"
    told = read_json(path) if path.is_file() else {}
    notes = []
    declared = str(told.get("image_processor_type") or told.get("feature_extractor_type") or name)
    if declared.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor") != name:
        notes.append(f"preprocessor_config.json names {declared}, for which transformers takes {name}")
    known = {*_NO_STEPS, *getattr(getattr(processor, "valid_kwargs", None), "__annotations__", {})}
    known |= set(ImagesKwargs.__annotations__)
    keys = sorted(key for key in told if key not in known and not hasattr(type(processor), key))
    if keys:
        notes.append(f"{name} does not know {', '.join(keys)} of preprocessor_config.json, which has no effect")
    return notes


def _loaded(folder: ModelFolder, backend: str) -> Any:
    try:
        return _processor(folder.path, backend)
    except Exception as error:  # transformers raises errors of any kind for a file that it does not understand
        first, *_ = str(error).splitlines() or [""]
        raise ModelError(
            f"{folder.origin}/preprocessor_config.json: transformers {version('transformers')} cannot use it: "
            f"{type(error).__name__}: {first}"
        ) from error


@lru_cache(maxsize=16)
def _processor(folder: Path, backend: str) -> Any:
    from transformers import AutoConfig, AutoImageProcessor

    with quiet_transformers():
        # Without the configuration files of some older names are not recognised.
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        return AutoImageProcessor.from_pretrained(folder, config=config, backend=backend, local_files_only=True)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Inside the block transformers prints no tables, bars or advice."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
