"""Alembic's entry point: runs migrations on the connection that the store hands over."""

from alembic import context

from sweeps.store.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # The store opens and ends the transaction, also on SQLite.
    transactional_ddl=True,
    render_as_batch=True,
)

with context.begin_transaction():
    context.run_migrations()
