"""Removing, renaming and checking what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from testbed.errors import StoreError, UnknownName, near_names
from testbed.store import files, queries, schema
from testbed.store.database import Store

_NAMED = 5  # results that are told by name where many go


def remove_model(store: Store, name: str, override: bool) -> str:
    """What was removed with it, in words; so do the other two."""
    return _remove_named(store, schema.models, "model", name, override)


def remove_eval_setting(store: Store, name: str, override: bool) -> str:
    return _remove_named(store, schema.eval_settings, "eval setting", name, override)


def remove_evaluation(store: Store, model: str, eval_setting: str, override: bool) -> str:
    """Remove a pair in all its versions and variants."""
    found = queries.evaluations(store, model, eval_setting)
    if not found:
        queries.completed(store, model, eval_setting)  # says what is missing
    counted = _ask(store, found, f"{model} on {eval_setting}", override)
    with store.writing() as connection:
        _refuse_running(store, connection, found)
        ids = [e.id for e in found]
        connection.execute(schema.evaluations.delete().where(schema.evaluations.c.id.in_(ids)))
    _remove_files(store, found)
    return counted


def _remove_named(store: Store, table: sa.Table, kind: str, name: str, override: bool) -> str:
    _must_exist(store, table, kind, name)
    model, setting = (name, None) if table is schema.models else (None, name)
    found = queries.evaluations(store, model, setting, source=None)  # published results go too, so they count
    counted = _ask(store, found, f"{kind} {name}", override)
    with store.writing() as connection:
        _refuse_running(store, connection, found)
        connection.execute(table.delete().where(table.c.name == name))  # its evaluations go with it
    _remove_files(store, found)
    return counted


def _ask(store: Store, found: list[queries.Evaluation], what: str, override: bool) -> str:
    """How many evaluations go, and which go with them; an error that says so where the user has not agreed."""
    counted = f"{len(found)} evaluation(s)"
    if derived := _derived_from(store, found):
        names = ", ".join(f"{e.model} on {e.eval_setting}" for e in derived[:_NAMED])
        more = f" and {len(derived) - _NAMED} more" if len(derived) > _NAMED else ""
        counted += f", {len(derived)} derived from them ({names}{more})"
    if found and not override:
        raise StoreError(f"this removes {what} with {counted} and their logits: repeat with --override")
    return counted


def _derived_from(store: Store, found: list[queries.Evaluation]) -> list[queries.Evaluation]:
    """Results made from the logits of these, or from one another, that are not among these."""
    children: dict[int, list[queries.Evaluation]] = {}
    for evaluation in queries.evaluations(store):
        children.setdefault(evaluation.row["derived_from_id"], []).append(evaluation)
    ids, derived = {e.id for e in found}, []
    parents = list(ids)
    while parents:
        further = [e for e in children.get(parents.pop(), ()) if e.id not in ids]
        derived += further
        parents += [e.id for e in further]
    return derived


def _refuse_running(store: Store, connection: sa.Connection, found: list[queries.Evaluation]) -> None:
    for evaluation in found:
        if evaluation.status == "running":
            store.refuse_if_alive(connection, evaluation.row["run_id"])


def _remove_files(store: Store, removed: list[queries.Evaluation]) -> None:
    for evaluation in removed:
        if evaluation.row["logits_path"]:
            files.remove_logits(store.folder, evaluation.row["logits_path"])


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
    known = queries.model_names(store) if table is schema.models else queries.eval_setting_names(store)
    if name not in known:
        raise UnknownName(f"no {kind} '{name}' in the {store.where}{near_names(name, known)}")


def verify(store: Store) -> Iterator[tuple[queries.Evaluation, str]]:
    """(evaluation, problem) for each completed evaluation; the problem is empty where its files are whole."""
    for evaluation in queries.evaluations(store):
        if evaluation.status == "completed" and evaluation.row["logits_path"]:
            yield evaluation, _problem(store, evaluation)


def _problem(store: Store, evaluation: queries.Evaluation) -> str:
    path = store.folder / evaluation.row["logits_path"]
    expected = {
        "logits": evaluation.row["logits_sha256"],
        **(evaluation.row["provenance"] or {}).get("arrays_sha256", {}),
    }
    for name, sha256 in expected.items():
        array = files.array_path(path, name)
        if not array.is_file():
            return f"{array} is missing"
        if files.sha256_of(array) != sha256:
            return f"{array} has changed since it was written"
    if not (store.folder / evaluation.row["samples_path"]).is_file():
        return f"{store.folder / evaluation.row['samples_path']} is missing"
    return ""
