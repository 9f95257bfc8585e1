"""Attempts outside belong to agents, whose leases stand beside them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_COLUMNS = {
    "agent": sa.Text,
    "ask_key": sa.Text,
    "lease_seconds": sa.Double,
    "lease_until": sa.BigInteger,
    "last_step": sa.BigInteger,
}
_ASKED = sa.text("ask_key IS NOT NULL")


def upgrade() -> None:
    """Add the columns; attempts that are there have no lease."""
    for name, kind in _COLUMNS.items():
        op.add_column("attempts", sa.Column(name, kind()))
    op.create_index(
        "ix_attempts_asked",
        "attempts",
        ["sweep_id", "ask_key"],
        sqlite_where=_ASKED,
        postgresql_where=_ASKED,
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_attempts_asked", "attempts")
    for name in reversed(_COLUMNS):
        op.drop_column("attempts", name)
