"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

GROWING_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create every table, those that others refer to first."""
    _create_sweeps()
    _create_sweep_tags()
    _create_points()
    _create_trials()
    _create_attempts()
    _create_metric_names()
    _create_metrics()
    _create_series()
    _create_events()
    _create_runners()


def downgrade() -> None:
    """Drop every table."""
    for name in (
        "runners",
        "events",
        "series",
        "metrics",
        "metric_names",
        "attempts",
        "trials",
        "points",
        "sweep_tags",
        "sweeps",
    ):
        op.drop_table(name)


def _create_sweeps() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("requested", sa.String(length=8), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("queued_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("num_trials", sa.BigInteger()),
        sa.Column("objective_metric", sa.Text()),
        sa.Column("maximize", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.BigInteger()),
        sa.Column("next_trial", sa.Integer(), nullable=False),
        sa.Column("n_waiting", sa.Integer(), nullable=False),
        sa.Column("n_running", sa.Integer(), nullable=False),
        sa.Column("n_complete", sa.Integer(), nullable=False),
        sa.Column("n_pruned", sa.Integer(), nullable=False),
        sa.Column("n_diverged", sa.Integer(), nullable=False),
        sa.Column("n_failed", sa.Integer(), nullable=False),
        sa.Column("n_cancelled", sa.Integer(), nullable=False),
        sa.Column("trial_seconds", sa.Double(), nullable=False),
        sa.Column("best", sa.JSON()),
        sa.Column("result", sa.JSON()),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("mirrored_revision", sa.BigInteger(), nullable=False),
        sa.Column("mirror", sa.JSON()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("idempotency_key"),
    )
    op.create_index("ix_sweeps_created", "sweeps", ["created_at", "id"])
    op.create_index("ix_sweeps_finished", "sweeps", ["finished_at", "id"])
    op.create_index("ix_sweeps_name", "sweeps", ["name", "id"])
    op.create_index("ix_sweeps_queue", "sweeps", ["state", "queued_at"])
    op.create_index("ix_sweeps_started", "sweeps", ["started_at", "id"])
    op.create_index("ix_sweeps_state", "sweeps", ["state", "id"])
    op.create_index(
        "ix_sweeps_unmirrored",
        "sweeps",
        ["id"],
        sqlite_where=sa.text("revision > mirrored_revision"),
        postgresql_where=sa.text("revision > mirrored_revision"),
    )


def _create_sweep_tags() -> None:
    op.create_table(
        "sweep_tags",
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "tag"),
    )
    op.create_index("ix_sweep_tags_tag", "sweep_tags", ["tag", "sweep_id"])


def _create_points() -> None:
    op.create_table(
        "points",
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("mean", sa.Double()),
        sa.Column("sd", sa.Double()),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "number"),
    )
    op.create_index("ix_points_best", "points", ["sweep_id", "settled", "mean", "number"])
    op.create_index("ix_points_mean", "points", ["sweep_id", "mean", "number"])
    op.create_index("ix_points_n", "points", ["sweep_id", "n", "number"])
    op.create_index("ix_points_sd", "points", ["sweep_id", "sd", "number"])
    op.create_index("ix_points_state", "points", ["sweep_id", "state", "number"])


def _create_trials() -> None:
    op.create_table(
        "trials",
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("config_key", sa.String(length=64), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("measurement", sa.JSON()),
        sa.Column("objective", sa.Double()),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("num_steps", sa.BigInteger()),
        sa.Column("diverged_at_step", sa.BigInteger()),
        sa.Column("exit_cause", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "number"),
        sa.UniqueConstraint("sweep_id", "config_key", "seed", name="uq_trials_configuration"),
    )
    op.create_index("ix_trials_finished", "trials", ["sweep_id", "finished_at", "number"])
    op.create_index("ix_trials_objective", "trials", ["sweep_id", "objective", "number"])
    op.create_index("ix_trials_point", "trials", ["sweep_id", "point", "number"])
    op.create_index("ix_trials_seed", "trials", ["sweep_id", "seed", "number"])
    op.create_index("ix_trials_started", "trials", ["sweep_id", "started_at", "number"])
    op.create_index("ix_trials_state", "trials", ["sweep_id", "state", "number"])
    op.create_index("ix_trials_step", "trials", ["sweep_id", "step", "number"])


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", GROWING_ID, autoincrement=True, nullable=False),
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("exit_cause", sa.Text(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("mlflow_run_id", sa.Text()),
        sa.Column("mirror_seq", sa.BigInteger(), nullable=False),
        sa.Column("mirror_state", sa.String(length=10), nullable=False),
        sa.Column("unmirrored", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["sweep_id", "trial"], ["trials.sweep_id", "trials.number"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sweep_id", "trial", "number", name="uq_attempts_number"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_attempts_state", "attempts", ["sweep_id", "state"])
    op.create_index(
        "ix_attempts_unmirrored",
        "attempts",
        ["id"],
        sqlite_where=sa.text("unmirrored"),
        postgresql_where=sa.text("unmirrored"),
    )


def _create_metric_names() -> None:
    op.create_table(
        "metric_names",
        sa.Column("id", GROWING_ID, autoincrement=True, nullable=False),
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sweep_id", "kind", "name", name="uq_metric_names"),
        sqlite_autoincrement=True,
    )


def _create_metrics() -> None:
    op.create_table(
        "metrics",
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "seq"),
        sa.UniqueConstraint("attempt_id", "name_id", "step", name="uq_metrics_point"),
        sqlite_with_rowid=False,
    )


def _create_series() -> None:
    op.create_table(
        "series",
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("name_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("every", sa.BigInteger(), nullable=False),
        sa.Column("values", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "name_id", "start"),
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", GROWING_ID, autoincrement=True, nullable=False),
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_sweep", "events", ["sweep_id", "id"])


def _create_runners() -> None:
    op.create_table(
        "runners",
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("info", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
