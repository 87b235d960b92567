"""The functions of an entry are called by keyword, each with those of the known arguments that it declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from testbed.errors import EntryError

# Kind of function -> the arguments it may declare. They are passed by these names.
KNOWN_ARGUMENTS = {
    "classify": ("images", "model", "class_sublist", "adversarial_attack", "rng"),
    "metrics_fn": ("logits", "targets", "image_paths", "model", "extras"),
    "perturbation_fn_cpu": ("image", "rng", "data_roots"),
    "perturbation_fn_gpu": ("images", "model", "targets", "rng"),
    "probe": ("images", "model", "targets", "logits", "image_paths", "rng"),
}


def argument_names(function: Callable[..., Any], kind: str, owner: str) -> frozenset[str]:
    """The known arguments that `function` declares. A required argument that is not known is an error."""
    known = KNOWN_ARGUMENTS[kind]
    if not callable(function):
        raise EntryError(f"{owner}: {kind} must be a function, got {function!r}")
    try:
        parameters = _parameters(function) if _is_hashable(function) else _parameters.__wrapped__(function)
    except ValueError:  # a builtin without a signature takes its first argument by position only
        raise EntryError(f"{owner}: {kind} has no readable signature; wrap it in a function") from None
    names: set[str] = set()
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            names.update(known)
        elif parameter.name in known and parameter.kind is not parameter.VAR_POSITIONAL:
            names.add(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise EntryError(
                f"{owner}: {kind} takes '{parameter.name}', which is not passed to it; it may take {', '.join(known)}"
            )
    return frozenset(names)


@lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The signature of a function, cached: every command makes all settings, and hundreds of them share a function."""
    call = type(function).__call__
    if inspect.isfunction(call) and not hasattr(function, "__signature__"):
        # A callable object: its class is asked, without `self`, so that all objects of a class share one cache entry.
        return _parameters(call)[1:]
    return tuple(inspect.signature(function).parameters.values())


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def call_by_name(function: Callable[..., Any], names: frozenset[str], **offered: Any) -> Any:
    """Call `function` with those of the offered arguments that are in `names`."""
    with exits_refused(getattr(function, "__name__", None) or type(function).__name__):
        return function(**{name: value for name, value in offered.items() if name in names})


@contextmanager
def exits_refused(name: str) -> Iterator[None]:
    """Around a function of a registry file: `sys.exit` in it fails its entry, and does not end the command."""
    try:
        yield
    except SystemExit as error:
        told = f"{name} called sys.exit({error.code!r}): expected it to return or raise an error"
        raise EntryError(told) from error
