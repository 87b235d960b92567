"""`ensemble:A+B`: the mean of the probabilities that stored logits of A and B give; `,mean=logits` that of logits.

A member is a name, glob, group or tag of models. One whose name holds a plus stands in parentheses:
`ensemble:(blend:A+B@0.5)+C`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from testbed.entries.made_of import MEANS, Ensemble
from testbed.entries.model import Model
from testbed.errors import ModelError, UnknownName
from testbed.models.strings.composed import in_parentheses, options_at_end, split_outside

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

_KIND = "ensemble:"
_SIGNS = "+("


def expand(name: str, rest: str, registry: Registry) -> list[str]:
    """The one ensemble of all models that the words stand for, by the names of its members."""
    text, options = _parted(name, rest)
    words = split_outside(text, "+", name)
    if not all(words):
        raise UnknownName(f"'{name}': expected ensemble:A+B, models with a plus between them")
    if inner := next((word for word in words if word.startswith(_KIND)), None):
        raise UnknownName(f"'{name}': an ensemble of ensembles is refused, got '{inner}': name the models themselves")
    if any(word.startswith("blend:") and "+" not in word for word in words):
        raise UnknownName(f"'{name}': the plus may belong to the blend: write ensemble:(blend:A+B@0.5)+C")
    members = registry.expand_models(words)
    if len(members) < 2:
        raise UnknownName(f"'{name}': expected two models or more, got only {members[0]}")
    listed = "+".join(in_parentheses(member, _SIGNS) for member in members)
    return [f"{_KIND}{listed}{''.join(f',{key}={value}' for key, value in options.items())}"]


def resolve(name: str, rest: str, registry: Registry) -> Model:
    text, options = _parted(name, rest)
    members = tuple(split_outside(text, "+", name))
    if len(members) < 2:
        raise UnknownName(f"'{name}': expected two models or more, as in ensemble:A+B")
    for member in members:
        if registry.model(member).made_of is not None and member.startswith(_KIND):
            raise UnknownName(f"'{name}': an ensemble of ensembles is refused: name the models themselves")

    def load() -> NoReturn:
        raise ModelError(
            "an ensemble has no network: eval.py and testbed.evaluate compute its results from the stored logits of "
            "its members, testbed.outputs reads them"
        )

    return Model(
        name=name,
        transform=None,
        classifier_loader=load,
        eval_batch_size=1,
        tags=("ensemble",),
        made_of=Ensemble(members, options.get("mean", MEANS[0])),
    )


def _parted(name: str, rest: str) -> tuple[str, dict[str, str]]:
    text, options = options_at_end(rest, ("mean",))
    if options.get("mean", MEANS[0]) not in MEANS:
        raise UnknownName(f"'{name}': expected mean={' or mean='.join(MEANS)}, got mean={options['mean']}")
    return text, options
