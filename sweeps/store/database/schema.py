"""Migrates a database's tables to this version of the program."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from sweeps.errors import StoreIsNewer

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
#: PostgreSQL's lock that lets one process migrate while the others wait.
_MIGRATION_LOCK = 0x6E6474


def migrate(conn: sa.Connection) -> None:
    """Run the missing migrations inside the connection's transaction.

    Raises StoreIsNewer.
    """
    if conn.dialect.name == "postgresql":
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    if is_up_to_date(conn):
        return
    config = configuration()
    config.attributes["connection"] = conn
    command.upgrade(config, "head")


def require_known(conn: sa.Connection) -> None:
    """Raise StoreIsNewer if a newer version of this program has changed the tables."""
    is_up_to_date(conn)


def is_up_to_date(conn: sa.Connection) -> bool:
    """Whether the tables are those of this version. Raises StoreIsNewer."""
    scripts = ScriptDirectory.from_config(configuration())
    found, head = revision(conn), scripts.get_current_head()
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreIsNewer(found, head)
    return found == head


def head_revision() -> str | None:
    """The newest migration that this version knows."""
    return ScriptDirectory.from_config(configuration()).get_current_head()


def knows(found: str) -> bool:
    """Whether this version can bring tables of that migration up to date, or has them."""
    scripts = ScriptDirectory.from_config(configuration())
    return found in {script.revision for script in scripts.walk_revisions()}


def revision(conn: sa.Connection) -> str | None:
    """The migration of a database's tables; None where there are none."""
    # Not by Alembic's context, which logs each time that it is asked.
    if not sa.inspect(conn).has_table("alembic_version"):
        return None
    found: str | None = conn.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return found


def configuration() -> Config:
    """Return Alembic's configuration for this package's migrations."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
