"""Owners of sweeps and views; tokens, sessions, public links, and an append-only audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_UNREVOKED = sa.text("revoked_at IS NULL")
_REFUSAL = "the audit log is append-only"


def upgrade() -> None:
    """Add them; sweeps that are there have no owner."""
    op.add_column("sweeps", sa.Column("submitted_by", sa.Text(), nullable=False, server_default=""))
    op.add_column(
        "saved_views", sa.Column("saved_by", sa.Text(), nullable=False, server_default="")
    )
    op.create_index("ix_sweeps_submitted_by", "sweeps", ["submitted_by", "created_at", "id"])
    _create_tokens()
    _create_sessions_and_links()
    _create_audit()
    if op.get_bind().dialect.name == "postgresql":
        _guard_postgres()
    else:
        _guard_sqlite()


def _create_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("quotas", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.Column("last_used_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_tokens_name",
        "tokens",
        ["name"],
        unique=True,
        sqlite_where=_UNREVOKED,
        postgresql_where=_UNREVOKED,
    )
    op.create_index("ix_tokens_created", "tokens", ["created_at", "id"])


def _create_sessions_and_links() -> None:
    op.create_table(
        "sessions",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("ix_sessions_token", "sessions", ["token"])
    op.create_index("ix_sessions_expires", "sessions", ["expires_at"])
    op.create_table(
        "links",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index("ix_links_sweep", "links", ["sweep_id", "created_at"])


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    for name in ("who", "target", "action"):
        op.create_index(f"ix_audit_{name}", "audit", [name, "id"])


def _guard_sqlite() -> None:
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_refuses_{verb.lower()} BEFORE {verb} ON audit "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        )
    # A row that replaces another deletes it without asking the trigger above.
    op.execute(
        "CREATE TRIGGER audit_refuses_replace BEFORE INSERT ON audit "
        "WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
    )


def _guard_postgres() -> None:
    op.execute(
        "CREATE FUNCTION ndsweep_audit_refuses() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_refuses BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION ndsweep_audit_refuses()"
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("audit")  # with its triggers
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION ndsweep_audit_refuses()")
    op.drop_table("links")
    op.drop_table("sessions")
    op.drop_table("tokens")
    op.drop_column("saved_views", "saved_by")
    op.drop_index("ix_sweeps_submitted_by", "sweeps")
    op.drop_column("sweeps", "submitted_by")
