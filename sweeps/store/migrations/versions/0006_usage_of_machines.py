"""What attempts, trials and sweeps used of their machines, and how much the mirror sent of it."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TABLES = ("attempts", "trials", "sweeps")


def upgrade() -> None:
    """Add the columns; of what has been trained nothing is known."""
    for table in _TABLES:
        op.add_column(table, sa.Column("usage", sa.JSON(none_as_null=True)))
    op.add_column("attempts", sa.Column("mirror_usage", sa.BigInteger()))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("attempts", "mirror_usage")
    for table in reversed(_TABLES):
        op.drop_column(table, "usage")
