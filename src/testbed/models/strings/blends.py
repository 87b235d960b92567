"""`blend:A+B@0.5`: weights interpolated between two models of one architecture, or averaged over several.

blend:A+B@0.5               (1 - 0.5) * A + 0.5 * B over all entries of the state dicts (WiSE-FT)
blend:A+B@0:1:11            eleven models from A to B
blend:A+B+C                 the mean of all members (a uniform soup)
blend:A+A@tuned.pth@0.5     a member may be NAME@FILE: the model with the weights of a file
blend:A+B@0.5,bn=SETTING    the statistics of batch normalisation recomputed on the pictures of a setting
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.data.transforms import StandardTransform
from testbed.entries.checks import shortened
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import EntryError, ModelError
from testbed.models.weights.places import SUFFIXES

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_SHARE = re.compile(_NUMBER)
_GRID = re.compile(rf"({_NUMBER}):({_NUMBER}):([0-9]{{1,6}})")
_FORM = "expected blend:A+B@SHARE, blend:A+B@FIRST:LAST:COUNT or blend:A+B+C"
_MOST_POINTS = 101
# What must be equal for one preparation and one set of classes to serve all members.
_SHARED = ("transform", "normalization", "classify", "classes", "columns", "missing_classes")


@dataclass(frozen=True)
class _Parts:
    """A string taken apart."""

    members: tuple[str, ...]
    shares: tuple[float, ...]  # of the second of two members: one for each model; none for the mean of all
    bn: str

    def name(self, share: float) -> str:
        return f"blend:{'+'.join(self.members)}@{share:g}{f',bn={self.bn}' if self.bn else ''}"


@dataclass(frozen=True)
class Place:
    """Where a blend of two lies on the way from the first to the second."""

    members: tuple[str, str]
    share: float
    bn: str  # the setting on whose pictures statistics were recomputed; empty where they were not


def place_of(name: str) -> Place | None:
    """The place of a blend of two; None for any other model, and for the mean of several."""
    if not name.startswith("blend:"):
        return None
    try:
        parts = _parted(name)
    except EntryError:
        return None
    if len(parts.shares) != 1:
        return None
    first, second = parts.members
    return Place((first, second), parts.shares[0], parts.bn)


def expand(name: str, rest: str, registry: Registry | None) -> list[str]:
    """The models that a string stands for: of a grid one for each share."""
    parts = _parted(name)
    return [parts.name(share) for share in parts.shares] if len(parts.shares) > 1 else [name]


def resolve(name: str, rest: str, registry: Registry) -> Model:
    parts = _parted(name)
    if len(parts.shares) > 1:
        raise EntryError(
            f"'{name}' stands for {len(parts.shares)} models, expected one such as {parts.name(parts.shares[0])}"
        )
    members = [_member(name, word, registry) for word in parts.members]
    first = members[0]
    _refuse_unlike(name, parts.members, members)
    share = parts.shares[0] if parts.shares else None
    shares = (1 - share, share) if share is not None else (1 / len(members),) * len(members)
    statistics = _plain_setting(name, parts.bn, registry) if parts.bn else None
    files = [Path(m.checkpoint).expanduser() for m in members if m.checkpoint]
    return replace(
        first,
        name=name,
        classifier_loader=partial(_load, parts.members, members, shares, parts.bn),
        eval_batch_size=min(m.eval_batch_size for m in members),
        tags=("blend",),
        checkpoint=None,
        # At the ends the blend is a member, as it is.
        statistics_from=None if 1 in shares else statistics,
        weights_paths={path.name: path for path in reversed(files)} | {str(path): path for path in files},
        own_weights=False,
    )


def _parted(name: str) -> _Parts:
    rest, bn_given, bn = name.partition(":")[2].partition(",bn=")
    body, _, end = rest.rpartition("@")
    grid, share = _GRID.fullmatch(end), _SHARE.fullmatch(end)
    members = tuple((body if grid or share else rest).split("+"))
    if not all(members) or len(members) < 2:
        raise EntryError(f"'{name}': a blend has at least two members, {_FORM}")
    if bn_given and not bn:
        raise EntryError(f"'{name}': expected the name of an eval setting after bn=")
    if not (grid or share):
        return _Parts(members, (), bn)
    if len(members) > 2:
        raise EntryError(f"'{name}': a share is for two members, got {len(members)}: without one they are averaged")
    shares = _grid(name, *grid.groups()) if grid else (float(end),)
    if not all(0 <= s <= 1 for s in shares):
        raise EntryError(
            f"'{name}': expected shares from 0 to 1, got {end}: beyond its members a blend may have variances below 0"
        )
    return _Parts(members, shares, bn)


def _grid(name: str, first: str, last: str, count: str) -> tuple[float, ...]:
    low, high, points = float(first), float(last), int(count)
    if not 2 <= points <= _MOST_POINTS or low >= high:
        raise EntryError(
            f"'{name}': expected FIRST:LAST:COUNT such as 0:1:11, with 2 to {_MOST_POINTS} models, "
            f"got {first}:{last}:{count}"
        )
    return tuple(low + (high - low) * i / (points - 1) for i in range(points))


def _member(name: str, word: str, registry: Registry) -> Model:
    """The entry of a member, with the file that follows its name."""
    model, at, file = word.rpartition("@")
    path = Path(file).expanduser()
    if not at or not (file.lower().endswith((*SUFFIXES, ".ckpt")) or path.is_file()):
        if at and word not in registry.models.entries and model in registry.models.entries:
            raise EntryError(f"'{name}': expected a share from 0 to 1 or a file of weights after @, got '{file}'")
        entry = registry.model(word)
    elif not path.is_file():
        raise ModelError(f"'{name}': no file {file}, the weights of '{model}'")
    else:
        entry = replace(registry.model(model), checkpoint=str(path))
    if not entry.own_weights:
        raise EntryError(f"'{name}': '{word}' has no weights of its own that could be averaged")
    return entry


def _refuse_unlike(name: str, words: tuple[str, ...], members: list[Model]) -> None:
    for word, member in zip(words[1:], members[1:], strict=True):
        for label in _SHARED:
            own, other = getattr(members[0], label), getattr(member, label)
            if own != other:
                raise EntryError(
                    f"'{name}': members must agree in their {label}, {words[0]} has {shortened(own, 80)} and {word} "
                    f"{shortened(other, 80)}"
                )


def _plain_setting(name: str, bn: str, registry: Registry) -> EvalSetting:
    """The setting whose pictures give the statistics. They must be as they are: noise would be averaged in."""
    setting = registry.runnable(bn)
    if setting.perturbation_fn_cpu or setting.perturbation_fn_gpu:
        raise EntryError(f"'{name}': expected a setting of plain pictures after bn=, those of '{bn}' are perturbed")
    return setting


def _load(words: tuple[str, ...], members: list[Model], shares: tuple[float, ...], bn: str) -> Any:
    """The averaged network, with what is to be recorded of it."""
    from testbed.models.classifier import load_network
    from testbed.models.weights.blending import Member, blended
    from testbed.options import RunOptions

    parts = [
        Member(word, partial(load_network, entry, RunOptions()), share)
        for word, entry, share in zip(words, members, shares, strict=True)
    ]
    made = blended(parts, _input_size(members[0]))
    facts: dict[str, Any] = {
        "shares": {word: f"{share:g}" for word, share in zip(words, shares, strict=True)},
        "members_sha256": made.members,
    }
    if made.averaged_statistics and not bn:
        facts["batch_norm"] = "statistics averaged"
        made.network.recorded_warning = (
            f"the statistics of its {made.averaged_statistics} batch-normalisation layers are averages of those of its "
            "members, which can cost much accuracy: ,bn=SETTING recomputes them"
        )
    made.network.recorded_facts = {"blend": facts}
    made.network.recorded_head = made.head
    return made.network


def _input_size(model: Model) -> tuple[int, int] | None:
    """The size of the network's input, where its entry tells it and the network is called on pictures alone."""
    crop = model.transform.img_crop_size if isinstance(model.transform, StandardTransform) else None
    if crop is None or model.classify is not None:
        return None
    return (crop, crop) if isinstance(crop, int) else crop
