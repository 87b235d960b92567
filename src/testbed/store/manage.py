"""Removing, renaming and checking what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from testbed.errors import StoreError, UnknownName, near_names
from testbed.store import files, queries, schema
from testbed.store.database import Store


def remove_model(store: Store, name: str, override: bool) -> int:
    return _remove_named(store, schema.models, "model", name, override)


def remove_eval_setting(store: Store, name: str, override: bool) -> int:
    return _remove_named(store, schema.eval_settings, "eval setting", name, override)


def remove_evaluation(store: Store, model: str, eval_setting: str, override: bool) -> int:
    """Remove a pair in all its versions and variants."""
    found = queries.evaluations(store, model, eval_setting)
    if not found:
        queries.completed(store, model, eval_setting)  # says what is missing
    _ask(found, f"{model} on {eval_setting}", override)
    with store.writing() as connection:
        _refuse_running(store, connection, found)
        ids = [e.id for e in found]
        connection.execute(schema.evaluations.delete().where(schema.evaluations.c.id.in_(ids)))
    _remove_files(store, found)
    return len(found)


def _remove_named(store: Store, table: sa.Table, kind: str, name: str, override: bool) -> int:
    _must_exist(store, table, kind, name)
    model, setting = (name, None) if table is schema.models else (None, name)
    found = queries.evaluations(store, model, setting, source=None)  # published results go too, so they count
    _ask(found, f"{kind} {name}", override)
    with store.writing() as connection:
        _refuse_running(store, connection, found)
        connection.execute(table.delete().where(table.c.name == name))  # its evaluations go with it
    _remove_files(store, found)
    return len(found)


def _ask(found: list[queries.Evaluation], what: str, override: bool) -> None:
    if found and not override:
        raise StoreError(
            f"this removes {what} with {len(found)} evaluation(s) and their logits: repeat with --override"
        )


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
