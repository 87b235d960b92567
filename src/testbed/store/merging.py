"""Merging: results of another database are taken into one that has some.

Every evaluation gets a new number. What is unfinished stays where it is, and the command that began it finishes it
there; what has failed is taken without its chunks, so that it is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from testbed.store import damage, schema
from testbed.store.database import Store
from testbed.store.transfer import Row, Taken, Transfer, refuse_itself, rows_of


def merge(target: Store, source: Store, override: bool = False) -> Taken:
    """Take in what is completed, and what has failed, of another database.

    Of a pair that both have the target keeps its own; with `override` the newer one stands.
    """
    refuse_itself(target, source)
    return _Merge(target, source, override).run()


class _Merge(Transfer):
    def __init__(self, target: Store, source: Store, override: bool) -> None:
        super().__init__(target, source)
        self._override = override
        self._here = {(row.key, row.complete): row for row in rows_of(target)}

    def names(self) -> None:
        with self.source.reading() as connection:
            models = connection.execute(sa.select(schema.models)).mappings().all()
            settings = connection.execute(sa.select(schema.eval_settings)).mappings().all()
        with self.target.reading() as connection:
            m = schema.models.c
            known = {row.name: row for row in connection.execute(sa.select(m.id, m.name, m.arch, m.tags))}
        for row in models:
            here = known.get(row["name"])
            if here is not None and (here.arch or not row["arch"]) and set(row["tags"]) <= set(here.tags):
                self.models[row["id"]] = here.id
            else:
                self.models[row["id"]] = self.target.ensure_model(row["name"], row["arch"], row["tags"])
        for row in settings:
            values = {name: value for name, value in row.items() if name not in ("id", "name", "version")}
            self.settings[row["id"]] = self.target.ensure_eval_setting(row["name"], row["version"], **values)

    def wanted(self, row: Row) -> bool:
        if not row.complete and row.status != "failed":
            self.taken.unfinished += 1
            return False
        if row.derived_from is not None and row.derived_from not in self.ids:
            self.taken.followers += 1
            return False
        if row.status == damage.DAMAGED:
            self.taken.damaged.append(f"{row.label} is damaged")
            return False
        here = self._here.get((row.key, True))
        if here is None or here.id in self.gone:
            return row.complete or (row.key, False) not in self._here
        if not row.complete:
            return False  # it has been made here
        if self._same(row, here):
            self.ids[row.id] = here.id
            self.taken.stored += 1
            return False
        older = (row.finished_at or "") < (here.finished_at or "")  # both are told to the second
        taken = self._override and not older
        if not taken:
            self.taken.differing.append(row.label)
        return taken

    def at_end(self) -> None:
        stand = {row.key for row in rows_of(self.target) if row.complete} if self.gone else set()
        lost = (row for row in self._here.values() if row.complete and row.id in self.gone and row.key not in stand)
        self.taken.removed = [row.label for row in lost]

    def _same(self, row: Row, here: Row) -> bool:
        """Whether both are one result: of the same logits, or derived from one; of published ones the numbers tell."""
        if row.sha256 is not None or here.sha256 is not None:
            return row.sha256 == here.sha256
        if row.derived_from is not None or here.derived_from is not None:
            return self.ids.get(row.derived_from or 0) == here.derived_from
        return _values(self.source, row.id) == _values(self.target, here.id)

    def with_paths(self, row: Row, values: dict[str, Any]) -> dict[str, Any]:
        if not row.complete:  # its chunks stay, so it begins anew
            return {**values, "logits_path": None, "samples_path": None}
        return super().with_paths(row, values)

    def enter_evaluation(self, connection: sa.Connection, values: dict[str, Any]) -> int:
        values["provenance"] = _with_numbers(values.get("provenance"), self.ids)
        inserted = connection.execute(
            schema.evaluations.insert().values(**{name: value for name, value in values.items() if name != "id"})
        ).inserted_primary_key
        assert inserted is not None
        return int(inserted[0])

    def takes_chunks(self, row: Row) -> bool:
        return row.complete

    def on_damage(self, row: Row, problem: str) -> list[tuple[Row, dict[str, Any]]]:
        self.taken.damaged.append(f"{row.label} is damaged: {problem}")
        return []

    def replaces(self, connection: sa.Connection, row: Row, values: Mapping[str, Any]) -> list[int] | None:
        """Asked in the transaction that enters it: another command may have entered the same in the meantime."""
        e = schema.evaluations
        same = (
            e.c.model_id == self.models[values["model_id"]],
            e.c.eval_setting_id == self.settings[values["eval_setting_id"]],
            e.c.variant == row.variant,
            e.c.source == row.source,
        )
        there = connection.execute(sa.select(e.c.id, e.c.complete, e.c.status).where(*same)).all()
        seen = self._here.get((row.key, True))
        if any(r.complete and (seen is None or r.id != seen.id) for r in there):
            return None
        if not row.complete:
            self.taken.failed += not there
            return None if there else []
        self.taken.completed += 1
        return [r.id for r in there if r.complete or r.status == "failed"]


def _with_numbers(provenance: Any, ids: Mapping[int, int]) -> Any:
    """The provenance with the numbers that the members of an ensemble have here; none for those that are not."""
    members = ((provenance or {}).get("ensemble") or {}).get("members")
    if not members:
        return provenance
    told = {name: {**member, "evaluation": ids.get(member["evaluation"])} for name, member in members.items()}
    return {**provenance, "ensemble": {**provenance["ensemble"], "members": told}}


def _values(store: Store, evaluation_id: int) -> dict[str, float | None]:
    table = schema.metrics
    with store.reading() as connection:
        query = sa.select(table.c.name, table.c.value).where(table.c.evaluation_id == evaluation_id)
        return {row.name: row.value for row in connection.execute(query)}
