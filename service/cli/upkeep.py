"""``ndsweep gc`` and ``ndsweep token``.

``gc`` removes files that are no longer needed and prints their size. ``token`` creates and prints
the secret that every request to a service beyond loopback must contain.
"""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from service.cli.serve import Home, settings_with


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be removed; remove nothing.")
    ] = False,
    home: Home = None,
) -> None:
    """Remove checkpoints, logs and Ray's files beyond their budget, as a service does each hour."""
    from service.supervision.home import require
    from sweeps.retention.plan import carry_out, plan
    from sweeps.store.store import Store

    settings = settings_with(home=home)
    require(settings)
    store = Store(settings.database_url())
    try:
        planned = plan(store, settings.home.absolute(), settings.keep())
        for removal in planned.removals:
            where = _below(removal.path, settings.home.absolute())
            typer.echo(f"{where}  {removal.size / 1e6:.1f} MB  {removal.why}")
        if not dry_run:
            carry_out(store, planned)
    finally:
        store.close()
    freed = (planned.before - planned.after) / 1e9
    verb = "would free" if dry_run else "freed"
    typer.echo(
        f"{verb} {freed:.2f} GB of {planned.before / 1e9:.2f} GB and "
        f"{planned.events:,} progress events"
    )


def _below(path: Path, home: Path) -> Path:
    return path.relative_to(home) if path.is_relative_to(home) else path


def token(
    create: Annotated[
        bool, typer.Option("--create", help="Create the token if there is none yet.")
    ] = False,
) -> None:
    """Print the service's token."""
    from service.settings import Settings, SettingsError

    settings = Settings()
    path = settings.token_file
    if create and settings.token is None and path is not None and not path.exists():
        create_token(path)
    found = settings.secret()
    if found is None:
        raise SettingsError(
            "no token is set; set NDSWEEP_TOKEN, or set NDSWEEP_TOKEN_FILE and run "
            "ndsweep token --create"
        )
    typer.echo(found)


def create_token(path: Path) -> None:
    """Write a new token that only this user can read. Raises SettingsError if that fails."""
    from service.settings import SettingsError
    from worker.atomic_file import whole_file

    try:
        # Not replaced: parts that start at the same time must see one token.
        with whole_file(path, mode=0o600, replace=False) as file:
            file.write(secrets.token_urlsafe(32).encode() + b"\n")
    except OSError as error:
        raise SettingsError(f"cannot write the token to {path}: {error.strerror}") from error
