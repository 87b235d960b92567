"""Removing, renaming and checking what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from testbed.errors import StoreError, UnknownName, near_or_some
from testbed.store import damage, schema
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import EVERY, every_evaluation, find, nothing_found
from testbed.store.names import eval_setting_names, model_names
from testbed.store.places import remove_all

_NAMED = 5  # results that are told by name where many go


def remove_model(store: Store, name: str, override: bool) -> str:
    """What was removed with it, in words; so do the other two."""
    return _remove_named(store, schema.models, "model", name, override)


def remove_eval_setting(store: Store, name: str, override: bool) -> str:
    return _remove_named(store, schema.eval_settings, "eval setting", name, override)


def remove_evaluation(store: Store, model: str, eval_setting: str, override: bool) -> str:
    """Remove the own results of a pair, in all its versions and variants."""
    own = [e for e in every_evaluation(store, model, eval_setting) if not e.published]
    if not own:
        raise nothing_found(store, [model], [eval_setting], source=OWN)
    counted = _ask(store, own, f"{model} on {eval_setting}", override)
    with store.writing() as connection:
        _refuse_running(store, connection, own)
        ids = [e.id for e in own]
        connection.execute(schema.evaluations.delete().where(schema.evaluations.c.id.in_(ids)))
    _remove_files(store, own)
    return counted


def _remove_named(store: Store, table: sa.Table, kind: str, name: str, override: bool) -> str:
    _must_exist(store, table, kind, name)
    model, setting = (name, None) if table is schema.models else (None, name)
    removed = every_evaluation(store, model, setting)  # published results go too, so they count
    counted = _ask(store, removed, f"{kind} {name}", override)
    with store.writing() as connection:
        _refuse_running(store, connection, removed)
        connection.execute(table.delete().where(table.c.name == name))  # its evaluations go with it
    _remove_files(store, removed)
    return counted


def _ask(store: Store, removed: list[Evaluation], what: str, override: bool) -> str:
    """How many evaluations go, and which go with them; an error that says so where the user has not agreed."""
    counted = f"{len(removed)} evaluation(s)"
    if derived := _derived_from(store, removed):
        names = ", ".join(f"{e.model} on {e.eval_setting}" for e in derived[:_NAMED])
        more = f" and {len(derived) - _NAMED} more" if len(derived) > _NAMED else ""
        counted += f", {len(derived)} derived from them ({names}{more})"
    if removed and not override:
        raise StoreError(f"this removes {what} with {counted} and their logits: repeat with --override")
    return counted


def _derived_from(store: Store, removed: list[Evaluation]) -> list[Evaluation]:
    """Results made from the logits of these, or from one another, that are not among these."""
    children: dict[int, list[Evaluation]] = {}
    for evaluation in every_evaluation(store):
        if evaluation.derived_from_id is not None:
            children.setdefault(evaluation.derived_from_id, []).append(evaluation)
    ids, derived = {e.id for e in removed}, []
    parents = list(ids)
    while parents:
        further = [e for e in children.get(parents.pop(), ()) if e.id not in ids]
        derived += further
        parents += [e.id for e in further]
    return derived


def _refuse_running(store: Store, connection: sa.Connection, removed: list[Evaluation]) -> None:
    for evaluation in removed:
        if evaluation.status == "running":
            store.refuse_if_alive(connection, evaluation.run_id)


def _remove_files(store: Store, removed: list[Evaluation]) -> None:
    problems = remove_all(store.folder, (e.logits_path for e in removed if e.logits_path))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise StoreError(f"removed from the {store.where}, but not all of its files: {problems[0]}{more}")


def rename_model(store: Store, old: str, new: str) -> None:
    _rename(store, schema.models, "model", old, new)


def rename_eval_setting(store: Store, old: str, new: str) -> None:
    _rename(store, schema.eval_settings, "eval setting", old, new)


def _rename(store: Store, table: sa.Table, kind: str, old: str, new: str) -> None:
    _must_exist(store, table, kind, old)
    with store.writing() as connection:
        if connection.execute(sa.select(table.c.id).where(table.c.name == new)).first():
            raise StoreError(f"there is a {kind} '{new}' already: remove it first, or choose another name")
        connection.execute(table.update().where(table.c.name == old).values(name=new))


def _must_exist(store: Store, table: sa.Table, kind: str, name: str) -> None:
    known = model_names(store) if table is schema.models else eval_setting_names(store)
    if name not in known:
        raise UnknownName(f"no {kind} '{name}' in the {store.where}{near_or_some(name, known)}")


def verify(store: Store) -> Iterator[tuple[Evaluation, str]]:
    """(evaluation, problem) for each completed evaluation; the problem is empty where its files are whole.

    What is not whole is marked as damaged, and what is whole again no longer is.
    """
    for evaluation in find(store, variant=EVERY, version=EVERY, source=OWN):
        if evaluation.logits_path:
            problem = damage.problem_of(store.folder, evaluation, again=True)
            damage.mark(store, evaluation, problem)
            yield evaluation, problem
