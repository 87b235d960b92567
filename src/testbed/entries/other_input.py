"""`NAME@resize=256,crop=224,mean=0.5,std=0.5,interpolation=bicubic`: a model with its pictures prepared otherwise.

It is a name like any other: results stand under it, beside those of NAME, and workers find the model by it. What is not
said stays as the model has it. `eval.py --transform` puts the words behind every model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from testbed.data.transforms import INTERPOLATIONS, StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import EntryError

_FORM = "resize=256 or 256x320 or none, crop=224, mean=0.485,0.456,0.406 or 0.5, std=..., interpolation=bicubic"
_WORDS = ("resize", "crop", "mean", "std", "interpolation")
_NAMED = re.compile(rf"(?P<base>.+)@(?P<words>(?:{'|'.join(_WORDS)})=.*)", re.DOTALL)
# Of a model that is made of others the words stand behind one of these.
_SAID_INSIDE = ("ensemble:", "probe:")
_UNCHANGED = StandardTransform(None, None)
_AS_THEY_ARE = StandardNormalization((0, 0, 0), (1, 1, 1))


def split(name: str) -> tuple[str, str]:
    """(model, words in their usual order); the words are empty where the name has none."""
    match = None if name.startswith(_SAID_INSIDE) else _NAMED.fullmatch(name)
    return (match["base"], in_order(match["words"])) if match else (name, "")


def named(model: str, words: str) -> str:
    """The name of a model with its pictures prepared as the words say."""
    if model.startswith(_SAID_INSIDE):
        raise EntryError(
            f"'{model}' prepares no pictures of its own: say it of the models inside, such as "
            f"ensemble:A@{in_order(words)}+B or probe:(A@{in_order(words)})@SETTING"
        )
    return f"{model}@{in_order(words)}"


def in_order(words: str) -> str:
    """The words as they stand in a name: the same input, the same name."""
    return ",".join(f"{key}={_written(value)}" for key, value in read(words).items())


def read(words: str) -> dict[str, Any]:
    """What the words say. A size is a number, (height, width) or None; a mean three numbers."""
    texts: dict[str, str] = {}
    key = ""
    for part in words.split(","):
        word, equals, value = part.partition("=")
        if equals:
            key = word.strip()
            if key not in _WORDS or key in texts:
                raise _not_understood(words, part)
            texts[key] = value.strip()
        elif key in ("mean", "std"):  # its further numbers
            texts[key] += f",{part.strip()}"
        else:
            raise _not_understood(words, part)
    readers: dict[str, Callable[[str], Any]] = dict(
        resize=_size, crop=_size, mean=_numbers, std=_numbers, interpolation=_interpolation
    )
    try:
        return {key: readers[key](texts[key]) for key in _WORDS if key in texts}
    except ValueError as error:
        raise _not_understood(words, str(error)) from None


def prepared(model: Model, words: str) -> Model:
    """The model under its longer name, its pictures prepared as the words say."""
    said, owner = read(words), f"model '{model.name}'"
    own, norm = model.transform or _UNCHANGED, model.normalization or _AS_THEY_ARE
    if {"resize", "crop", "interpolation"} & set(said):
        if not isinstance(own, StandardTransform):
            raise EntryError(f"{owner} prepares pictures with a function of its own: it takes no resize or crop")
        own = StandardTransform(
            said.get("resize", own.img_resize_size),
            said.get("crop", own.img_crop_size),
            said.get("interpolation", own.interpolation),
            fit="stretch" if "resize" in said else own.fit,
            fill=own.fill,
            crop_rounding=own.crop_rounding,
        )
    if {"mean", "std"} & set(said):
        if not isinstance(norm, StandardNormalization):
            raise EntryError(f"{owner} normalises with a function of its own: it takes no mean or std")
        norm = replace(norm, mean=said.get("mean", norm.mean), std=said.get("std", norm.std))
    return replace(
        model,
        name=f"{model.name}@{in_order(words)}",
        transform=None if own is _UNCHANGED else own,
        normalization=None if norm is _AS_THEY_ARE else norm,
        input_note="",
    )


def _size(text: str) -> int | tuple[int, int] | None:
    if text == "none":
        return None
    sides = [int(side) if side.isdecimal() else None for side in text.split("x")]
    if None in sides or len(sides) > 2:
        raise ValueError(text)
    return sides[0] if len(sides) == 1 else (sides[0] or 0, sides[1] or 0)


def _numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(float(part) for part in text.split(","))
    if len(numbers) not in (1, 3):
        raise ValueError(text)
    return numbers * 3 if len(numbers) == 1 else numbers


def _interpolation(text: str) -> str:
    if text not in INTERPOLATIONS:
        raise ValueError(text)
    return text


def _written(value: Any) -> str:
    if isinstance(value, tuple) and isinstance(value[0], float):
        return ",".join(f"{number:.10g}" for number in (value[:1] if len(set(value)) == 1 else value))
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return "none" if value is None else str(value)


def _not_understood(words: str, part: str) -> EntryError:
    return EntryError(f"transform '{words}': expected {_FORM}, got '{part}'")
