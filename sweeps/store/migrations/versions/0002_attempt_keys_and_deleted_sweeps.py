"""Attempts are told apart by their driver's key; deleted sweeps leave a note for the mirror."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add both; attempts that are there have no key."""
    op.add_column("attempts", sa.Column("key", sa.String(length=32)))
    op.create_index("ix_attempts_key", "attempts", ["sweep_id", "key"], unique=True)
    op.create_table(
        "deleted_sweeps",
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.Text()),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sweep_id"),
    )


def downgrade() -> None:
    """Drop both."""
    op.drop_table("deleted_sweeps")
    op.drop_index("ix_attempts_key", "attempts")
    op.drop_column("attempts", "key")
