"""Whether the functions of models and settings are those that stored results were made with.

A result keeps digests of them (testbed.entries.code_digest). A difference is said and changes nothing: whether the
numbers change with the code is for its author to know, and `version` is how a setting says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.entries.code_digest import digest_of
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.store.claims import METRIC
from testbed.store.evaluation import Evaluation

_OF_SETTING = ("transform", "perturbation_fn_cpu", "perturbation_fn_gpu", "probe")
_OF_MODEL = ("transform", "normalization", "classify")
_MODEL = "model "  # before the kinds of a model, whose transform is not the setting's
_NAMED = 3  # results that are named in one line


def functions_of(registry: Registry, model: Model, name: str) -> dict[str, str]:
    """Digests of everything that computes a result, by kind."""
    runnable, declared = registry.runnable(name), registry.eval_setting(name)
    of_setting = {**_digests(runnable, _OF_SETTING), **_digests(declared, (METRIC,))}
    return {**of_setting, **{f"{_MODEL}{kind}": digest for kind, digest in _digests(model, _OF_MODEL).items()}}


def _digests(entry: Model | EvalSetting, kinds: tuple[str, ...]) -> dict[str, str]:
    digests = {}
    for kind in kinds:
        value: Any = getattr(entry, kind)
        if value is not None:
            try:
                digests[kind] = digest_of(value)
            except Exception:  # anybody's objects, asked for all their attributes: no digest is no harm
                continue
    return digests


class FunctionsToday:
    """Collects which functions have changed since results were stored, and says so in a line for each."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._changed: dict[tuple[str, str, bool], list[str]] = {}  # (kind, owner, whether of a model) -> results
        self._today: dict[tuple[str, str], Mapping[str, str]] = {}

    def compare(self, model: Model, evaluation: Evaluation, origin: Evaluation) -> None:
        """Look at a result that stands. One that is derived has its own metric; the rest is its origin's."""
        stored = {**origin.provenance.functions, **evaluation.provenance.functions}
        if evaluation.id != origin.id:
            stored.pop(METRIC, None)
            stored |= {k: v for k, v in evaluation.provenance.functions.items() if k == METRIC}
        if not stored:
            return
        today = self._functions(model, evaluation.eval_setting)
        for kind, digest in stored.items():
            if today.get(kind) != digest:
                of_model = kind.startswith(_MODEL)
                owner = model.name if of_model else evaluation.eval_setting
                results = self._changed.setdefault((kind.removeprefix(_MODEL), owner, of_model), [])
                results.append(evaluation.eval_setting if of_model else evaluation.model)

    def _functions(self, model: Model, name: str) -> Mapping[str, str]:
        if (model.name, name) not in self._today:
            self._today[model.name, name] = functions_of(self._registry, model, name)
        return self._today[model.name, name]

    def notes(self) -> list[str]:
        return [_line(*what, results) for what, results in self._changed.items()]


def _line(kind: str, owner: str, of_model: bool, results: list[str]) -> str:
    more = f" and {len(results) - _NAMED} more" if len(results) > _NAMED else ""
    listed = ", ".join(results[:_NAMED]) + more
    what = f"{kind} of {'model' if of_model else 'eval setting'} '{owner}' has changed since its results were stored"
    stay = f"{what} ({listed}), which stay as they are"
    if of_model:
        return f"{stay}: --overwrite runs them again"
    if kind == METRIC:
        return f"{stay}: db.py --recompute-metrics measures them again; raise `version` to keep old and new apart"
    return f"{stay}: raise `version` of the setting where its images change, or --overwrite runs them again"
