"""Brings a database's tables to this version of the program."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

_MIGRATIONS = Path(__file__).parent / "migrations"
#: PostgreSQL's lock that lets one process migrate while the others wait.
_MIGRATION_LOCK = 0x6E6474


def migrate(conn: sa.Connection) -> None:
    """Run the migrations that the database has not had, inside the connection's transaction."""
    if conn.dialect.name == "postgresql":
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    config = configuration()
    head = ScriptDirectory.from_config(config).get_current_head()
    if MigrationContext.configure(conn).get_current_revision() == head:
        return
    config.attributes["connection"] = conn
    command.upgrade(config, "head")


def configuration() -> Config:
    """Return Alembic's configuration for this package's migrations."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
