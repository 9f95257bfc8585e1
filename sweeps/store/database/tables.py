"""The tables of the store, the same for both databases. Times are microseconds since 1970, UTC.

``sweeps`` 1 - n ``points`` and ``trials``; a trial 1 - n ``attempts``; an attempt 1 - n ``metrics``
and ``series``. Every sort key of a page is a column with an index.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

#: SQLite autoincrements only a column whose type is spelled INTEGER.
GrowingId = BigInteger().with_variant(Integer(), "sqlite")


def _sweep_fk() -> Column[str]:
    return Column(
        "sweep_id", String(12), ForeignKey("sweeps.id", ondelete="CASCADE"), nullable=False
    )


sweeps = Table(
    "sweeps",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("name", Text, nullable=False),
    Column("state", String(10), nullable=False),
    Column("reason", Text, nullable=False, default=""),
    Column("requested", String(8), nullable=False, default="none"),
    Column("spec", JSON, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("notes", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("queued_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("num_trials", BigInteger),
    Column("objective_metric", Text),
    Column("maximize", Boolean, nullable=False, default=False),
    Column("idempotency_key", Text, unique=True),
    Column("body_hash", String(64), nullable=False),
    # The driver's right to write.
    Column("owner", Text),
    Column("token", BigInteger, nullable=False, default=0),
    Column("lease_until", BigInteger),
    # Whose sweep it is; "" where nobody was asked for a name.
    Column("submitted_by", Text, nullable=False, default="", server_default=""),
    # Kept current so that a listing reads one row per sweep.
    Column("next_trial", Integer, nullable=False, default=0),
    Column("n_waiting", Integer, nullable=False, default=0),
    Column("n_running", Integer, nullable=False, default=0),
    Column("n_complete", Integer, nullable=False, default=0),
    Column("n_pruned", Integer, nullable=False, default=0),
    Column("n_diverged", Integer, nullable=False, default=0),
    Column("n_failed", Integer, nullable=False, default=0),
    Column("n_cancelled", Integer, nullable=False, default=0),
    Column("trial_seconds", Double, nullable=False, default=0.0),
    # What its trials used of their machines together: see ``MachineUse``.
    Column("usage", JSON(none_as_null=True)),
    Column("best", JSON(none_as_null=True)),
    Column("result", JSON(none_as_null=True)),
    # For the mirror: what changed, and how much of it was sent.
    Column("revision", BigInteger, nullable=False, default=1),
    Column("mirrored_revision", BigInteger, nullable=False, default=0),
    Column("mirror", JSON(none_as_null=True)),
    Index("ix_sweeps_created", "created_at", "id"),
    Index("ix_sweeps_started", "started_at", "id"),
    Index("ix_sweeps_finished", "finished_at", "id"),
    Index("ix_sweeps_name", "name", "id"),
    Index("ix_sweeps_state", "state", "id"),
    Index("ix_sweeps_queue", "state", "queued_at"),
    Index("ix_sweeps_submitted_by", "submitted_by", "created_at", "id"),
    Index(
        "ix_sweeps_unmirrored",
        "id",
        sqlite_where=text("revision > mirrored_revision"),
        postgresql_where=text("revision > mirrored_revision"),
    ),
)

sweep_tags = Table(
    "sweep_tags",
    metadata,
    Column("sweep_id", String(12), ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index("ix_sweep_tags_tag", "tag", "sweep_id"),
)

points = Table(
    "points",
    metadata,
    Column("sweep_id", String(12), ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("params", JSON, nullable=False),
    Column("mean", Double),
    Column("sd", Double),
    Column("n", Integer, nullable=False, default=0),
    Column("state", String(10), nullable=False, default="waiting"),
    # No replicate waits or runs: the mean is final.
    Column("settled", Boolean, nullable=False, default=False),
    Index("ix_points_mean", "sweep_id", "mean", "number"),
    Index("ix_points_sd", "sweep_id", "sd", "number"),
    Index("ix_points_n", "sweep_id", "n", "number"),
    Index("ix_points_state", "sweep_id", "state", "number"),
    Index("ix_points_best", "sweep_id", "settled", "mean", "number"),
)

param_values = Table(
    "param_values",
    metadata,
    Column("sweep_id", String(12), ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    # "trial" or "point", and its number: a listing of either uses its own part of an index.
    Column("owner", String(5), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("owner_number", Integer, primary_key=True, autoincrement=False),
    # One of the two, or neither if the value is none.
    Column("as_number", Double),
    Column("as_text", Text),
    Index("ix_param_values_number", "sweep_id", "owner", "name", "as_number", "owner_number"),
    Index("ix_param_values_text", "sweep_id", "owner", "name", "as_text", "owner_number"),
)

trials = Table(
    "trials",
    metadata,
    Column("sweep_id", String(12), ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("point", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("params", JSON, nullable=False),
    Column("config", JSON, nullable=False),
    Column("config_key", String(64), nullable=False),
    Column("role", Text, nullable=False),
    Column("measurement", JSON(none_as_null=True)),
    Column("objective", Double),
    Column("metrics", JSON, nullable=False),
    Column("step", BigInteger, nullable=False, default=0),
    Column("num_steps", BigInteger),
    Column("diverged_at_step", BigInteger),
    # Of all its attempts.
    Column("usage", JSON(none_as_null=True)),
    Column("exit_cause", Text, nullable=False, default=""),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    UniqueConstraint("sweep_id", "config_key", "seed", name="uq_trials_configuration"),
    Index("ix_trials_objective", "sweep_id", "objective", "number"),
    Index("ix_trials_state", "sweep_id", "state", "number"),
    Index("ix_trials_point", "sweep_id", "point", "number"),
    Index("ix_trials_seed", "sweep_id", "seed", "number"),
    Index("ix_trials_step", "sweep_id", "step", "number"),
    Index("ix_trials_started", "sweep_id", "started_at", "number"),
    Index("ix_trials_finished", "sweep_id", "finished_at", "number"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", GrowingId, primary_key=True, autoincrement=True),
    Column("sweep_id", String(12), nullable=False),
    Column("trial", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    # Key given by its driver, which finds a start whose commit was uncertain.
    Column("key", String(32)),
    Column("token", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("exit_cause", Text, nullable=False, default=""),
    Column("provenance", JSON, nullable=False),
    Column("usage", JSON(none_as_null=True)),
    Column("last_seq", BigInteger, nullable=False, default=0),
    # Of an attempt outside: who has it, the key of the question that it answered, until when it
    # may be silent. ``key`` is then the token of the lease.
    Column("agent", Text),
    Column("ask_key", Text),
    Column("lease_seconds", Double),
    Column("lease_until", BigInteger),
    Column("last_step", BigInteger),
    # For the mirror: sent up to this metric, in this state, to this run.
    Column("mlflow_run_id", Text),
    Column("mirror_seq", BigInteger, nullable=False, default=0),
    # Start of the last part of its usage that was sent; None = nothing.
    Column("mirror_usage", BigInteger),
    Column("mirror_state", String(10), nullable=False, default=""),
    Column("unmirrored", Boolean, nullable=False, default=True),
    ForeignKeyConstraint(
        ["sweep_id", "trial"], ["trials.sweep_id", "trials.number"], ondelete="CASCADE"
    ),
    UniqueConstraint("sweep_id", "trial", "number", name="uq_attempts_number"),
    Index("ix_attempts_key", "sweep_id", "key", unique=True),
    Index("ix_attempts_state", "sweep_id", "state"),
    Index(
        "ix_attempts_asked",
        "sweep_id",
        "ask_key",
        sqlite_where=text("ask_key IS NOT NULL"),
        postgresql_where=text("ask_key IS NOT NULL"),
    ),
    Index(
        "ix_attempts_unmirrored",
        "id",
        sqlite_where=text("unmirrored"),
        postgresql_where=text("unmirrored"),
    ),
    # Ids of deleted attempts must not be reused: metrics belong to an attempt by its id.
    sqlite_autoincrement=True,
)

metric_names = Table(
    "metric_names",
    metadata,
    Column("id", GrowingId, primary_key=True, autoincrement=True),
    _sweep_fk(),
    Column("name", Text, nullable=False),
    # "metric" or "series"; "usage" for what was measured of the machine
    Column("kind", String(8), nullable=False),
    UniqueConstraint("sweep_id", "kind", "name", name="uq_metric_names"),
    sqlite_autoincrement=True,
)

metrics = Table(
    "metrics",
    metadata,
    Column(
        "attempt_id", BigInteger, ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True
    ),
    # Counts up within an attempt: the mirror has sent every metric up to one such number.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("name_id", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("value", Double, nullable=False),
    Column("at", BigInteger, nullable=False),
    UniqueConstraint("attempt_id", "name_id", "step", name="uq_metrics_point"),
    sqlite_with_rowid=False,
)

series = Table(
    "series",
    metadata,
    Column(
        "attempt_id", BigInteger, ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("name_id", BigInteger, primary_key=True, autoincrement=False),
    # Steps; of usage, milliseconds since 1970, and between two.
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("every", BigInteger, nullable=False),
    # Little-endian float64, one per record.
    Column("values", LargeBinary, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", GrowingId, primary_key=True, autoincrement=True),
    _sweep_fk(),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(10), nullable=False),
    Column("data", JSON, nullable=False),
    Index("ix_events_sweep", "sweep_id", "id"),
    sqlite_autoincrement=True,
)

saved_views = Table(
    "saved_views",
    metadata,
    Column("id", GrowingId, primary_key=True, autoincrement=True),
    # None: of the page that shows trials of several sweeps.
    Column("sweep_id", String(12), ForeignKey("sweeps.id", ondelete="CASCADE")),
    Column("name", Text, nullable=False),
    # What follows the question mark in the page's address.
    Column("query", Text, nullable=False),
    Column("saved_at", BigInteger, nullable=False),
    Column("saved_by", Text, nullable=False, default="", server_default=""),
    Index("ix_saved_views_sweep", "sweep_id", "name"),
)

runners = Table(
    "runners",
    metadata,
    Column("owner", String(200), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("info", JSON, nullable=False),
)

#: Sweeps that were deleted before the mirror sent their end.
deleted_sweeps = Table(
    "deleted_sweeps",
    metadata,
    Column("sweep_id", String(12), primary_key=True),
    Column("name", Text, nullable=False),
    # Its experiment in MLflow, if known.
    Column("experiment_id", Text),
    Column("at", BigInteger, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("scope", String(8), nullable=False),
    # SHA-256 of the secret, which is random: nothing slower is needed.
    Column("hash", String(64), nullable=False),
    Column("quotas", JSON, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("last_used_at", BigInteger),
    Index(
        "ix_tokens_name",
        "name",
        unique=True,
        sqlite_where=text("revoked_at IS NULL"),
        postgresql_where=text("revoked_at IS NULL"),
    ),
    Index("ix_tokens_created", "created_at", "id"),
)

sessions = Table(
    "sessions",
    metadata,
    # SHA-256 of the cookie.
    Column("hash", String(64), primary_key=True),
    Column("token", String(80), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("ix_sessions_token", "token"),
    Index("ix_sessions_expires", "expires_at"),
)

links = Table(
    "links",
    metadata,
    Column("id", String(16), primary_key=True),
    _sweep_fk(),
    Column("key", String(64), nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Index("ix_links_sweep", "sweep_id", "created_at"),
)

#: Rows are added and never changed: triggers of the database refuse it.
audit = Table(
    "audit",
    metadata,
    Column("id", GrowingId, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("action", String(40), nullable=False),
    Column("target", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Index("ix_audit_who", "who", "id"),
    Index("ix_audit_target", "target", "id"),
    Index("ix_audit_action", "action", "id"),
    sqlite_autoincrement=True,
)
