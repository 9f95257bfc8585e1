"""Sampled values by name, so that a leaderboard can be sorted by any of them."""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_BATCH = 1000


def upgrade() -> None:
    """Add the table and fill it from the points that are there."""
    table = op.create_table(
        "param_values",
        sa.Column("sweep_id", sa.String(length=12), nullable=False),
        sa.Column("owner", sa.String(length=5), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner_number", sa.Integer(), nullable=False),
        sa.Column("as_number", sa.Double()),
        sa.Column("as_text", sa.Text()),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "owner", "name", "owner_number"),
    )
    for kind in ("number", "text"):
        columns = ["sweep_id", "owner", "name", f"as_{kind}", "owner_number"]
        op.create_index(f"ix_param_values_{kind}", "param_values", columns)
    for owner in ("point", "trial"):
        for rows in _batches(op.get_bind(), owner):
            op.bulk_insert(table, rows)


def downgrade() -> None:
    """Drop it."""
    op.drop_table("param_values")


def _batches(connection: sa.Connection, owner: str) -> Iterator[list[dict[str, Any]]]:
    """Rows for every value of every point or trial, as the store of this version writes them."""
    known = sa.table(
        f"{owner}s",
        sa.column("sweep_id", sa.String()),
        sa.column("number", sa.Integer()),
        sa.column("params", sa.JSON()),
    )
    rows: list[dict[str, Any]] = []
    for sweep_id, number, params in connection.execute(sa.select(known)).all():
        for name, value in params.items():
            place = {"sweep_id": sweep_id, "owner": owner, "name": name, "owner_number": number}
            rows.append(place | _as_columns(value))
        if len(rows) >= _BATCH:
            yield rows
            rows = []
    if rows:
        yield rows


def _as_columns(value: Any) -> dict[str, Any]:
    if isinstance(value, int | float):
        return {"as_number": float(value), "as_text": None}
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    # A cursor has to hold it; a longer one is a schedule, which nobody sorts by.
    return {"as_number": None, "as_text": None if text is None else text[:200]}
