"""Networks of one architecture averaged in their weights: WiSE-FT, uniform soups.

Every floating entry of the state dicts is averaged in float64 and cast back. Whole numbers are no weights: they are
copied, and must be equal but for the counters of batch normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from testbed.errors import ModelError
from testbed.models.weights.checkpoints import state_sha256
from testbed.models.weights.heads import Head

if TYPE_CHECKING:
    import torch

_COUNTER = "num_batches_tracked"
_LISTED = 3  # entries of one kind in a message
_SEED = 0


@dataclass(frozen=True)
class Member:
    """A network that goes into the average: where it comes from, and its share."""

    name: str
    load: Callable[[], tuple[Any, Head | None]]
    share: float


@dataclass
class Blended:
    """The averaged network, and what is to be recorded of it."""

    network: Any
    head: Head | None
    members: dict[str, str | None]  # name -> checksum of its weights
    averaged_statistics: int = 0  # layers of batch normalisation whose statistics are an average
    _sums: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)


def blended(members: Sequence[Member], size: tuple[int, int] | None) -> Blended:
    """The members' average. A member whose share is 1 comes back itself, and so with its own logits to the bit.

    Members are loaded one after the other: beside the sums there are never more than two networks in memory.
    `size`, where it is given, is the input at which members of other names must compute the same function of the same
    weights: equal names and shapes do not tell a stride from another, or one activation from another.
    """
    first, *others = members
    network, head = _loaded(first)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    made = Blended(network, head, {first.name: state_sha256(network)})
    whole = network if first.share == 1 else None
    _add(made, state, first.share)
    for member in others:
        other, its_head = _loaded(member)
        theirs = dict(other.state_dict())
        _refuse_differences(first.name, state, member.name, theirs)
        if its_head != head:
            raise ModelError(f"{first.name} and {member.name} name the classes of their outputs differently")
        if size is not None and member.name.partition("@")[0] != first.name.partition("@")[0]:
            _refuse_another_function(first.name, network, state, member.name, other, size)
        made.members[member.name] = state_sha256(other)
        _add(made, theirs, member.share)
        whole = other if member.share == 1 else whole
    if whole is not None:
        made.network = whole
        return made
    averages = {name: made._sums[name].to(t.dtype) if name in made._sums else t for name, t in state.items()}
    network.load_state_dict(averages)
    made.averaged_statistics = len(batch_norms(network))
    return made


def batch_norms(network: Any) -> list[Any]:
    """The layers that keep running statistics."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return [part for part in network.modules() if isinstance(part, _BatchNorm) and part.running_mean is not None]


def _loaded(member: Member) -> tuple[Any, Head | None]:
    from torch import nn

    network, head = member.load()
    if not isinstance(network, nn.Module) or not network.state_dict():
        raise ModelError(f"{member.name} has no weights that could be averaged")
    return network.eval(), head


def _add(made: Blended, state: Mapping[str, torch.Tensor], share: float) -> None:
    import torch

    for name, tensor in state.items():
        if tensor.is_floating_point() or tensor.is_complex():
            wide = tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64) * share
            made._sums[name] = made._sums[name] + wide if name in made._sums else wide


def _refuse_differences(
    first: str, state: Mapping[str, torch.Tensor], other: str, theirs: Mapping[str, torch.Tensor]
) -> None:
    """An error that lists the entries in which two state dicts differ; nothing where they can be averaged."""
    both = [name for name in state if name in theirs]
    shapes = [f"{n} {tuple(state[n].shape)} and {tuple(theirs[n].shape)}" for n in both if _shape(state, theirs, n)]
    numbers = [n for n in both if not _shape(state, theirs, n) and _other_numbers(n, state[n], theirs[n])]
    problems = [
        _some(f"only in {first}", [name for name in state if name not in theirs]),
        _some(f"only in {other}", [name for name in theirs if name not in state]),
        _some("of two shapes", shapes),
        _some("of other whole numbers, which cannot be averaged", numbers),
    ]
    if any(problems):
        raise ModelError(f"{first} and {other} are of different architectures; {'; '.join(filter(None, problems))}")


def _shape(state: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], name: str) -> bool:
    return bool(state[name].shape != theirs[name].shape)


def _other_numbers(name: str, own: torch.Tensor, their: torch.Tensor) -> bool:
    averaged = own.is_floating_point() or own.is_complex()
    return not averaged and not name.endswith(_COUNTER) and not bool((own == their).all())


def _some(label: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{label}: {', '.join(names[:_LISTED])}{more}" if names else ""


def _refuse_another_function(
    first: str, network: Any, state: Mapping[str, torch.Tensor], other: str, theirs: Any, size: tuple[int, int]
) -> None:
    """An error where the other's weights give other answers in the first network than in its own."""
    import torch

    images = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(_SEED)) * 4 - 2
    images = images.to(next((p.dtype for p in network.parameters()), images.dtype))
    with torch.no_grad():
        network.load_state_dict(dict(theirs.state_dict()))
        here, there = (getattr(out, "logits", out) for out in (network(images), theirs(images)))
        network.load_state_dict(dict(state))
    if here.shape != there.shape or not torch.allclose(here, there, rtol=1e-3, atol=1e-3 * float(there.abs().max())):
        raise ModelError(
            f"{first} and {other} are of different architectures: the weights of {other} give other answers in the "
            f"network of {first}, though their names and shapes are the same"
        )
