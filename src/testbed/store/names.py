"""Names of models and settings in the database, and what is known of models beside their results."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import sqlalchemy as sa

from testbed.store import schema
from testbed.store.database import Store


def matches(name: str, patterns: Iterable[str] | None) -> bool:
    """Whether a name is one of the patterns (globs); no patterns at all match everything."""
    return patterns is None or any(name == p or fnmatchcase(name, p) for p in patterns)


def model_names(store: Store, pattern: str | None = None) -> list[str]:
    return _names(store, schema.models, pattern)


def eval_setting_names(store: Store, pattern: str | None = None) -> list[str]:
    return _names(store, schema.eval_settings, pattern)


def _names(store: Store, table: sa.Table, pattern: str | None) -> list[str]:
    with store.reading() as connection:
        names = set(connection.execute(sa.select(table.c.name)).scalars())
    return sorted(n for n in names if matches(n, [pattern] if pattern else None))


def model_tags(store: Store) -> dict[str, list[str]]:
    """The tags of every model, by its name."""
    m = schema.models.c
    with store.reading() as connection:
        return {row.name: list(row.tags) for row in connection.execute(sa.select(m.name, m.tags))}


def throughputs(store: Store) -> dict[str, float]:
    """Images per second of each model's latest evaluation, for estimates of time."""
    e, m = schema.evaluations, schema.models
    query = sa.select(m.c.name, e.c.images_per_second).join(m, m.c.id == e.c.model_id)
    query = query.where(e.c.images_per_second.is_not(None)).order_by(e.c.id)
    with store.reading() as connection:
        return {name: float(speed) for name, speed in connection.execute(query)}
