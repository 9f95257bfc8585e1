"""Alembic's environment and migrations of the store's schema."""
