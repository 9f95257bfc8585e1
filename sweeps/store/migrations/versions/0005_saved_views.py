"""Views of pages that people saved under a name."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "saved_views",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("sweep_id", sa.String(12), sa.ForeignKey("sweeps.id", ondelete="CASCADE")),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("saved_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_saved_views_sweep", "saved_views", ["sweep_id", "name"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("saved_views")
