"""The door to stored results: which evaluations, and which numbers, the user's words mean.

Every reader (print-eval, tables, figures, autoeval, export, save-logits, Python, the explorer) asks here, so the same
words mean the same results everywhere. An evaluation is told from others of its model and setting by three things.
Words that leave one of them out mean:

variant   the whole setting ("" in the database). Where no evaluation that matches is whole, the partial variant that
          most of them have, such as limit=500. Two variants are never mixed.
version   the newest version of a setting that has a completed evaluation of that variant and source. A model that was
          run on an older version only has no result, until the version is named.
source    own results; of a model and setting that have none, the published ones.

EVERY in place of a variant, version or source leaves the choice out and finds all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from testbed.errors import StoreError, UnknownName, counted, near_or_some
from testbed.store import schema
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation, Number
from testbed.store.names import eval_setting_names, matches, model_names
from testbed.store.transactions import repeated

EVERY = "*"
_MOST_MARKS = 6  # kinds of results named in one message
_IN_ONE_QUERY = 10_000  # names in one condition; SQLite takes 32,766
_COLUMNS = tuple("provenance" if f.name == "stored_provenance" else f.name for f in fields(Evaluation))
_evaluations = sa.table("all_evaluations", *(sa.column(name) for name in (*_COLUMNS, "complete")))
_selected = [_evaluations.c[name] for name in _COLUMNS]
_ORDER = attrgetter("model", "eval_setting", "version", "evaluation_id", "position")
_numbers = sa.table("all_results", *(sa.column(name) for name in (*Number._fields, "superseded", "shadowed")))


@dataclass(frozen=True)
class _Words:
    """What the user said: names or globs of models and settings, and what tells results apart. None: not said."""

    models: Sequence[str] | None
    eval_settings: Sequence[str] | None
    variant: str | None
    version: int | str | None
    source: str | None


@repeated
def find(
    store: Store,
    models: Sequence[str] | None = None,
    eval_settings: Sequence[str] | None = None,
    variant: str | None = None,
    version: int | str | None = None,
    source: str | None = None,
) -> list[Evaluation]:
    """The completed evaluations that the words mean, in the order of model, setting and version.

    Names may be globs; None means all. The top of this module says what a variant, version or source that is left out
    means.
    """
    view = _evaluations
    words = _Words(models, eval_settings, variant, version, source)
    with store.reading() as connection:
        conditions = [view.c.complete, *_meant(connection, view, words)]
        return _as_evaluations(connection.execute(sa.select(*_selected).where(*conditions)).all())


def find_one(
    store: Store,
    model: str,
    eval_setting: str,
    variant: str | None = None,
    version: int | str | None = None,
    source: str | None = None,
) -> Evaluation:
    """The one evaluation that a model and a setting mean, or an error that says what there is instead.

    Of several published ones it is the last that was imported.
    """
    if EVERY in (variant, version, source):
        raise StoreError(f"{model} on {eval_setting}: expected one variant, version and source, got {EVERY}")
    words = ([model], [eval_setting], variant, version, source)
    candidates = find(store, *words)
    if not candidates:
        raise nothing_found(store, *words)
    return max(candidates, key=lambda e: (e.version, e.id))


@repeated
def numbers(
    store: Store,
    models: Sequence[str] | None = None,
    eval_settings: Sequence[str] | None = None,
    metric: str | Sequence[str] | None = None,
    variant: str | None = None,
    version: int | str | None = None,
    source: str | None = None,
) -> list[Number]:
    """The numbers of the evaluations that the words mean: of all metrics, of one or of several."""
    view = _numbers
    words = _Words(models, eval_settings, variant, version, source)
    with store.reading() as connection:
        conditions = _meant(connection, view, words)
        if metric is not None:
            conditions.append(view.c.metric.in_([metric] if isinstance(metric, str) else metric))
        query = sa.select(*(view.c[name] for name in Number._fields)).where(*conditions)
        with many_objects():
            rows = connection.execute(query).all()
            # Sorted here: databases differ in how they order text.
            return sorted(map(Number._make, rows), key=_ORDER)


def numbers_of(store: Store, evaluation: Evaluation) -> list[Number]:
    """All numbers of one evaluation, in the order its metrics function gave them."""
    view = _numbers
    query = sa.select(*(view.c[name] for name in Number._fields)).where(view.c.evaluation_id == evaluation.id)
    with store.reading() as connection:
        return sorted(map(Number._make, connection.execute(query)), key=lambda n: n.position)


class State(NamedTuple):
    """How far an own evaluation is."""

    model: str
    eval_setting: str
    variant: str
    status: str  # completed, damaged, running or failed
    run_id: str | None
    error: str | None
    id: int
    derived_from_id: int | None
    logits_path: str | None
    logits_bytes: int | None


def states(store: Store) -> list[State]:
    """The state of every own evaluation, whatever its version and variant."""
    view = _evaluations
    query = sa.select(*(view.c[name] for name in State._fields)).where(view.c.source == OWN).order_by(view.c.id)
    with store.reading() as connection:
        return [State._make(row) for row in connection.execute(query)]


@repeated
def every_evaluation(store: Store, model: str | None = None, eval_setting: str | None = None) -> list[Evaluation]:
    """All own and published evaluations of exact names, whatever their state: for plans, states and removals."""
    view = _evaluations
    query = sa.select(*_selected)
    for column, name in ((view.c.model, model), (view.c.eval_setting, eval_setting)):
        if name is not None:
            query = query.where(column == name)
    with store.reading() as connection:
        return _as_evaluations(connection.execute(query).all())


@repeated
def evaluation_by_id(store: Store, evaluation_id: int) -> Evaluation:
    view = _evaluations
    with store.reading() as connection:
        rows = connection.execute(sa.select(*_selected).where(view.c.id == evaluation_id)).all()
    if not rows:
        raise StoreError(f"the {store.where} has no evaluation {evaluation_id}")
    return _as_evaluations(rows)[0]


def origin_of(store: Store, evaluation: Evaluation) -> Evaluation:
    """The evaluation whose logits it reads: itself, or the one at the root of what it is derived from."""
    return root_of(evaluation, lambda id_: evaluation_by_id(store, id_))


def root_of(evaluation: Evaluation, parent_of: Callable[[int], Evaluation | None]) -> Evaluation:
    """As origin_of, where the others are at hand; as far as they are there. Raises StoreError for a circle."""
    seen = {evaluation.id}
    while evaluation.derived_from_id is not None and (parent := parent_of(evaluation.derived_from_id)) is not None:
        if parent.id in seen:
            raise StoreError(f"{evaluation.label} is derived from itself: no testbed wrote this database")
        seen.add(parent.id)
        evaluation = parent
    return evaluation


@contextmanager
def many_objects() -> Iterator[None]:
    """Hundreds of thousands of small values are made, none of them garbage: looking for some costs a third more."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _as_evaluations(rows: Iterable[Any]) -> list[Evaluation]:
    made = [Evaluation(*row) for row in rows]
    return sorted(made, key=lambda e: (e.model, e.eval_setting, e.version, e.id))


# ---- what words mean -------------------------------------------------------------------------------------


def _meant(connection: sa.Connection, view: sa.TableClause, words: _Words) -> list[Any]:
    """The conditions on a view that the words stand for. The one place where their meaning is written."""
    conditions = _named(connection, view, words)
    if words.source is None:
        conditions.append(view.c.shadowed == 0)
    elif words.source != EVERY:
        conditions.append(view.c.source == words.source)
    if words.version is None:
        conditions.append(view.c.superseded == 0)
    elif words.version != EVERY:
        conditions.append(view.c.version == words.version)
    variant = words.variant if words.variant is not None else _meant_variant(connection, words)
    if variant != EVERY:
        conditions.append(view.c.variant == variant)
    return conditions


def _named(connection: sa.Connection, view: sa.TableClause, words: _Words) -> list[Any]:
    conditions = []
    for column, table, patterns in (
        (view.c.model, schema.models, words.models),
        (view.c.eval_setting, schema.eval_settings, words.eval_settings),
    ):
        if patterns is None:
            continue
        if any(c in p for p in patterns for c in "*?[") or len(patterns) > _IN_ONE_QUERY:
            # Globs are matched here: databases differ in theirs. A glob that is a name means that name alone.
            known = set(connection.execute(sa.select(table.c.name).distinct()).scalars())
            globs = [p for p in patterns if p not in known]
            patterns = [name for name in known if name in patterns or matches(name, globs)]
        conditions.append(column == patterns[0] if len(patterns) == 1 else column.in_(patterns))
    return conditions


def meant_variant(
    store: Store,
    models: Sequence[str] | None = None,
    eval_settings: Sequence[str] | None = None,
    source: str | None = None,
) -> str:
    """The variant that words without one mean: for readers that ask several times and must not mix two."""
    with store.reading() as connection:
        return _meant_variant(connection, _Words(models, eval_settings, None, None, source))


def _meant_variant(connection: sa.Connection, words: _Words) -> str:
    """Whole settings where there is one; else the partial variant that most of the evaluations have."""
    view = _evaluations
    conditions = [view.c.complete, *_named(connection, view, words)]
    if words.source not in (None, EVERY):
        conditions.append(view.c.source == words.source)
    whole = sa.select(view.c.id).where(*conditions, view.c.variant == "").limit(1)
    if connection.execute(whole).first():
        return ""
    counted = sa.select(view.c.variant, sa.func.count()).where(*conditions).group_by(view.c.variant)
    counts: dict[str, int] = {row[0]: row[1] for row in connection.execute(counted)}
    return max(sorted(counts), key=lambda variant: counts[variant]) if counts else ""


def stored_variants(store: Store) -> list[str]:
    """All variants of which there is a completed evaluation, of any model, setting and source."""
    view = _evaluations
    with store.reading() as connection:
        return sorted(connection.execute(sa.select(view.c.variant).where(view.c.complete).distinct()).scalars())


def nothing_found(
    store: Store,
    models: Sequence[str] | None = None,
    eval_settings: Sequence[str] | None = None,
    variant: str | None = None,
    version: int | str | None = None,
    source: str | None = None,
) -> StoreError | UnknownName:
    """Why these words found no result, and what there is instead, in one line."""
    words = _Words(models, eval_settings, variant, version, source)
    known_models, known_settings = model_names(store), eval_setting_names(store)
    for kind, patterns, known, others in (
        ("a model", models, known_models, known_settings),
        ("an eval setting", eval_settings, known_settings, known_models),
    ):
        for pattern in patterns or ():
            if not any(matches(name, [pattern]) for name in known):
                if pattern in others:
                    other = "an eval setting" if kind == "a model" else "a model"
                    return UnknownName(f"'{pattern}' is {other}, expected {kind}: are the two swapped?")
                kind = kind.partition(" ")[2]
                return UnknownName(f"no {kind} '{pattern}' in the {store.where}{near_or_some(pattern, known)}")
    asked = f"{_listed(models, 'any model')} on {_listed(eval_settings, 'any eval setting')}"
    there = find(store, models, eval_settings, EVERY, EVERY, EVERY)
    if there:
        marks = list(dict.fromkeys(_told_apart(e, of_use=source != OWN) for e in there))
        more = f" and {len(marks) - _MOST_MARKS} more" if len(marks) > _MOST_MARKS else ""
        return StoreError(f"{asked}: no {_as_said(words)}; stored: {', '.join(marks[:_MOST_MARKS])}{more}")
    with store.reading() as connection:
        view = _evaluations
        query = sa.select(view.c.status, view.c.variant, view.c.error).where(*_named(connection, view, words))
        begun = connection.execute(query.order_by(view.c.id.desc())).first()
    if begun is None:
        return StoreError(f"{asked} has not been run")
    state = f"{begun.status} ({begun.variant})" if begun.variant else begun.status
    return StoreError(f"{asked} {state}: {begun.error}" if begun.error else f"{asked} is {state}")


def published_in_words(store: Store) -> str:
    """'; published: a (300 models), b (2 models)' to end a message that nothing of one's own was found; or nothing."""
    view = _evaluations
    models = sa.func.count(sa.distinct(view.c.model))
    query = sa.select(view.c.source, models).where(view.c.source != OWN).group_by(view.c.source)
    with store.reading() as connection:
        counts = sorted(connection.execute(query.order_by(view.c.source)).all())
    told = ", ".join(f"{source} ({counted(n, 'model')})" for source, n in counts)
    return f"; published results: {told}" if told else ""


def _listed(names: Sequence[str] | None, otherwise: str) -> str:
    return ", ".join(names) if names else otherwise


def _as_said(words: _Words) -> str:
    """What was asked for, such as: own result of limit=5 of version 2."""
    unsaid = (None, EVERY)
    source = "own " if words.source == OWN else f"published ({words.source}) "
    variant = f" of {words.variant}" if words.variant else " on the whole setting"
    version = " of the newest version" if words.version is None else f" of version {words.version}"
    return "".join(
        (
            "" if words.source in unsaid else source,
            "result",
            "" if words.variant in unsaid else variant,
            "" if words.version == EVERY else version,
        )
    )


def _told_apart(evaluation: Evaluation, of_use: bool) -> str:
    """What an evaluation is, and the options that find it; of published numbers only where they are `of_use`."""
    if evaluation.published:
        source = evaluation.source
        return f"published by {source} ({f'--source {source}' if of_use else 'numbers without logits'})"
    if evaluation.variant:
        return f"{evaluation.variant} of version {evaluation.version} (--variant {evaluation.variant})"
    return f"version {evaluation.version}"
