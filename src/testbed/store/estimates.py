"""Accuracies estimated without labels: kept beside the evaluations they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from testbed.store import schema
from testbed.store.database import Store, now

_KEYS = ("evaluation_id", "method", "source", "fit", "assumes")
_COLUMNS = (*_KEYS, "set_group", "value", "accuracy", "extrapolates", "r2", "notes")


def save_estimates(store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of everything but the time; what stood in their place goes."""
    if not rows:
        return
    table = schema.estimates
    same = sa.and_(*(table.c[key] == sa.bindparam(f"old_{key}") for key in _KEYS))
    with store.writing() as connection:
        connection.execute(table.delete().where(same), [{f"old_{key}": row[key] for key in _KEYS} for row in rows])
        made_at = now()
        connection.execute(table.insert(), [{**{c: row[c] for c in _COLUMNS}, "made_at": made_at} for row in rows])


def estimates(store: Store) -> list[dict[str, Any]]:
    """The rows of the view `label_free`: an estimate, the true accuracy, and what tells one estimate from another."""
    with store.reading() as connection:
        query = sa.text("SELECT * FROM label_free ORDER BY model, eval_setting, method")
        return [dict(row) for row in connection.execute(query).mappings()]
