"""The tables of the results database, the view outsiders read, and the steps from older schemas."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from testbed.errors import StoreError

SCHEMA_VERSION = 6

tables = sa.MetaData()

schema_version = sa.Table("schema_version", tables, sa.Column("version", sa.Integer, nullable=False))

# One row per running command: who holds the evaluations it has begun, and whether it still lives.
runs = sa.Table(
    "runs",
    tables,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("heartbeat_at", sa.Double, nullable=False),  # seconds since 1970 by the clock of the database
    sa.Column("ended_at", sa.String(32)),
    sa.Column("machine", sa.String(8)),  # whose process the pid is: hosts of one name may be different machines
    sa.Column("begun_at", sa.Double),  # as heartbeat_at
    sa.Column("progress", sa.JSON(none_as_null=True)),  # told with each heartbeat: testbed.engine.telling
)

models = sa.Table(
    "models",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("arch", sa.String(255)),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
)

eval_settings = sa.Table(
    "eval_settings",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("size", sa.Integer),
    sa.Column("dataset", sa.Text),
    sa.Column("logits_from", sa.String(255)),  # the setting whose stored logits it reads
    sa.Column("images_from", sa.String(255)),  # the setting whose images it shows to the model again
    sa.Column("parent", sa.String(255)),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.UniqueConstraint("name", "version"),
)

# At most two rows per (model, setting, variant, source): the completed one, and one that is running or has failed.
evaluations = sa.Table(
    "evaluations",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("model_id", sa.ForeignKey("models.id", ondelete="CASCADE"), nullable=False),
    sa.Column("eval_setting_id", sa.ForeignKey("eval_settings.id", ondelete="CASCADE"), nullable=False),
    # "" for the whole setting; "limit=500" or "seed=3" for results that must not be mixed with it
    sa.Column("variant", sa.String(64), nullable=False, default=""),
    # "own" for what was run here; otherwise where the numbers were published, which have no logits
    sa.Column("source", sa.String(64), nullable=False, default="own"),
    sa.Column("complete", sa.Boolean, nullable=False),
    # running, failed, completed; damaged: completed, but its files are no longer those that were written
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("run_id", sa.ForeignKey("runs.id")),
    sa.Column("error", sa.Text),
    sa.Column("warning", sa.Text),
    sa.Column("n_images", sa.Integer, nullable=False),
    sa.Column("n_bad", sa.Integer, nullable=False, default=0),
    sa.Column("chunk_size", sa.Integer),
    sa.Column("logits_path", sa.Text),  # below the results folder, or a URL; empty for derived evaluations
    sa.Column("logits_sha256", sa.String(64)),
    sa.Column("logits_bytes", sa.BigInteger),  # size of the file: what `db.py --status` can check at once
    sa.Column("samples_path", sa.Text),
    sa.Column("derived_from_id", sa.ForeignKey("evaluations.id", ondelete="CASCADE"), index=True),
    sa.Column("weights_sha256", sa.String(64)),
    sa.Column("dataset_fingerprint", sa.String(64)),
    sa.Column("device", sa.String(64)),
    sa.Column("dtype", sa.String(16)),
    sa.Column("seed", sa.Integer),
    sa.Column("seconds", sa.Double),
    sa.Column("images_per_second", sa.Double),
    sa.Column("provenance", sa.JSON),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("finished_at", sa.String(32)),
    sa.UniqueConstraint("model_id", "eval_setting_id", "variant", "source", "complete"),
    sqlite_autoincrement=True,  # ids name logits files: none is ever given twice
)
# What finds the newest version of a setting, and all models of one setting.
by_setting = sa.Index(
    "evaluations_by_setting",
    evaluations.c.eval_setting_id,
    evaluations.c.variant,
    evaluations.c.source,
    evaluations.c.complete,
    evaluations.c.model_id,
)

# What finds the pairs that a run has brought to their end, has under way, or has left behind.
by_state = sa.Index("evaluations_by_state", evaluations.c.status, evaluations.c.run_id)

chunks = sa.Table(
    "chunks",
    tables,
    sa.Column("evaluation_id", sa.ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("start", sa.Integer, primary_key=True),
    sa.Column("stop", sa.Integer, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("device", sa.String(64), nullable=False),
    sa.Column("bad_rows", sa.JSON, nullable=False),
    sa.Column("weights_sha256", sa.String(64)),  # chunks of different weights are never joined
    sa.Column("content", sa.String(64)),  # digest of its images' bytes: testbed.data.content
)

metrics = sa.Table(
    "metrics",
    tables,
    sa.Column("evaluation_id", sa.ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("ci_low", sa.Double),
    sa.Column("ci_high", sa.Double),
    sa.Column("n", sa.Integer),
    # What the metric declares of itself (testbed.metrics.estimate.MetricKind); empty where it declares nothing.
    sa.Column("unit", sa.String(32)),
    sa.Column("better", sa.String(8)),  # higher or lower
    sa.Column("lowest", sa.Double),
    sa.Column("highest", sa.Double),
)

# Accuracies estimated without labels, in percent. They go with the evaluation whose outputs they were made from.
estimates = sa.Table(
    "estimates",
    tables,
    sa.Column("evaluation_id", sa.ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("method", sa.String(64), primary_key=True),
    sa.Column("source", sa.String(255), primary_key=True),  # the labelled setting it starts from
    sa.Column("fit", sa.String(255), primary_key=True),  # the settings a line was fitted on; "" where none was
    sa.Column("assumes", sa.String(255), primary_key=True),  # the class prior or the models compared; "" mostly
    sa.Column("set_group", sa.String(255), nullable=False, default=""),  # the sets its error is told with
    sa.Column("value", sa.Double),
    sa.Column("accuracy", sa.Double),  # the true one, where the setting has labels
    sa.Column("extrapolates", sa.Boolean),  # the score lies outside those of the fit sets
    sa.Column("r2", sa.Double),  # of the line behind it
    sa.Column("notes", sa.JSON, nullable=False),
    sa.Column("made_at", sa.String(32), nullable=False),
)

_NAMES = """
JOIN models m ON m.id = e.model_id
JOIN eval_settings s ON s.id = e.eval_setting_id"""
# Whether a newer version of the setting has a completed evaluation of the same variant and source.
_SUPERSEDED = """CASE WHEN EXISTS (
    SELECT 1 FROM eval_settings t JOIN evaluations f ON f.eval_setting_id = t.id
    WHERE t.name = s.name AND t.version > s.version AND f.variant = e.variant AND f.source = e.source AND f.complete
) THEN 1 ELSE 0 END"""
# Whether a published result stands beside an own one of the same model, setting and variant.
_SHADOWED = """CASE WHEN e.source = 'own' THEN 0 WHEN EXISTS (
    SELECT 1 FROM eval_settings t JOIN evaluations f ON f.eval_setting_id = t.id
    WHERE t.name = s.name AND f.variant = e.variant AND f.source = 'own' AND f.complete AND f.model_id = e.model_id
) THEN 1 ELSE 0 END"""
_WHICH = f"""e.variant AS variant, s.version AS version, e.source AS source,
       {_SUPERSEDED} AS superseded, {_SHADOWED} AS shadowed"""
_NUMBERS = """m.name AS model, s.name AS eval_setting, x.name AS metric,
       x.value AS value, x.ci_low AS ci_low, x.ci_high AS ci_high, x.n AS n,
       x.unit AS unit, x.better AS better, x.lowest AS lowest, x.highest AS highest"""

# What everybody reads: store/find.py, and outsiders such as notebooks and R. docs/finding-results.md says what the
# columns mean.
VIEWS = {
    # Own results on whole settings, newest version of each.
    "results": f"""
SELECT {_NUMBERS}
FROM metrics x JOIN evaluations e ON e.id = x.evaluation_id{_NAMES}
WHERE e.complete AND e.variant = '' AND e.source = 'own' AND {_SUPERSEDED} = 0
""",
    # Every number, with what tells the rows apart.
    "all_results": f"""
SELECT {_NUMBERS}, {_WHICH}, x.position AS position, e.id AS evaluation_id, e.finished_at AS finished_at
FROM metrics x JOIN evaluations e ON e.id = x.evaluation_id{_NAMES}
WHERE e.complete
""",
    # Every evaluation, whole or not.
    "all_evaluations": f"""
SELECT e.id AS id, m.name AS model, s.name AS eval_setting, {_WHICH}, e.status AS status, e.complete AS complete,
       e.error AS error, e.warning AS warning, e.n_images AS n_images, e.n_bad AS n_bad, e.run_id AS run_id,
       e.logits_path AS logits_path, e.logits_sha256 AS logits_sha256, e.logits_bytes AS logits_bytes,
       e.samples_path AS samples_path, e.derived_from_id AS derived_from_id,
       e.weights_sha256 AS weights_sha256, e.dataset_fingerprint AS dataset_fingerprint,
       e.device AS device, e.dtype AS dtype, e.seed AS seed, e.seconds AS seconds,
       e.images_per_second AS images_per_second, e.created_at AS created_at, e.finished_at AS finished_at,
       e.provenance AS provenance
FROM evaluations e{_NAMES}
""",
    # Accuracies without labels, beside the true ones where there are labels.
    "label_free": f"""
SELECT m.name AS model, s.name AS eval_setting, x.set_group AS set_group, x.method AS method, x.value AS estimate,
       x.accuracy AS accuracy, x.source AS source, x.fit AS fit, x.assumes AS assumes,
       x.extrapolates AS extrapolates, x.r2 AS r2, e.variant AS variant
FROM estimates x JOIN evaluations e ON e.id = x.evaluation_id{_NAMES}
WHERE e.complete
""",
}


def _add_estimates(connection: sa.Connection) -> None:
    estimates.create(connection)


def _declare_metrics(connection: sa.Connection) -> None:
    """Whose logits and whose images become two columns, metrics say what they are, and results are found by setting.

    Numbers that were stored before declare nothing, but for accuracies, whose names tell; `db.py --recompute-metrics`
    declares the rest.
    """
    for statement in (
        "ALTER TABLE eval_settings RENAME COLUMN derived_from TO logits_from",
        "ALTER TABLE eval_settings ADD COLUMN images_from VARCHAR(255)",
        "ALTER TABLE metrics ADD COLUMN unit VARCHAR(32)",
        "ALTER TABLE metrics ADD COLUMN better VARCHAR(8)",
        "ALTER TABLE metrics ADD COLUMN lowest DOUBLE PRECISION",
        "ALTER TABLE metrics ADD COLUMN highest DOUBLE PRECISION",
        "UPDATE metrics SET unit = '%', better = 'higher', lowest = 0, highest = 100"
        " WHERE name IN ('top1', 'top5', 'accuracy16', 'pm0', 'pm10', 'top1_full1000')",
        "UPDATE eval_settings SET images_from = logits_from, logits_from = NULL"
        " WHERE logits_from IS NOT NULL AND CAST(tags AS TEXT) LIKE '%explanations%'",
    ):
        connection.execute(sa.text(statement))
    by_setting.create(connection)


def _add_checks(connection: sa.Connection) -> None:
    """The size of logits files, and digests of images. Results that were stored before have neither."""
    connection.execute(sa.text("ALTER TABLE evaluations ADD COLUMN logits_bytes BIGINT"))
    connection.execute(sa.text("ALTER TABLE chunks ADD COLUMN content VARCHAR(64)"))


def _add_machines(connection: sa.Connection) -> None:
    """Which machine a run is on. Of runs that were begun before, heartbeats alone tell whether they live."""
    connection.execute(sa.text("ALTER TABLE runs ADD COLUMN machine VARCHAR(8)"))


def _add_progress(connection: sa.Connection) -> None:
    """How far a run is, which earlier ones did not tell."""
    connection.execute(sa.text("ALTER TABLE runs ADD COLUMN begun_at DOUBLE PRECISION"))
    connection.execute(sa.text("ALTER TABLE runs ADD COLUMN progress JSON"))
    by_state.create(connection)


# Step i takes a database from schema i to i + 1. Steps are only ever appended.
MIGRATIONS: dict[int, Callable[[sa.Connection], None]] = {
    1: _add_estimates,
    2: _declare_metrics,
    3: _add_checks,
    4: _add_machines,
    5: _add_progress,
}


def stored_version(connection: sa.Connection, where: str) -> int | None:
    """The database's schema, None where it is empty; refuses one that is newer than this program."""
    if not sa.inspect(connection).has_table("schema_version"):
        return None
    version = connection.execute(sa.select(schema_version.c.version)).scalars().first()
    if not isinstance(version, int) or version < 1:
        raise StoreError(f"{where} tells no version of its schema: expected a results database of the testbed")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{where} has schema {version}, this program knows up to {SCHEMA_VERSION}: "
            "update the program, or use another database with --db"
        )
    return version


def create_or_upgrade(connection: sa.Connection, where: str) -> None:
    """Bring the database to the schema this program knows."""
    version = stored_version(connection, where)
    if version is None:
        tables.create_all(connection)
        connection.execute(schema_version.insert().values(version=SCHEMA_VERSION))
        _make_views(connection)
    elif version < SCHEMA_VERSION:
        _drop_views(connection)  # no database lets a column change that a view shows
        for step in range(version, SCHEMA_VERSION):
            MIGRATIONS[step](connection)
        connection.execute(schema_version.update().values(version=SCHEMA_VERSION))
        _make_views(connection)


def _make_views(connection: sa.Connection) -> None:
    for name, query in VIEWS.items():
        connection.execute(sa.text(f"CREATE VIEW {name} AS {query}"))


def _drop_views(connection: sa.Connection) -> None:
    for name in VIEWS:
        connection.execute(sa.text(f"DROP VIEW IF EXISTS {name}"))  # one of them may be newer than the database
