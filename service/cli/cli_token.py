"""``ndsweep token``: the secret that every request to a service off loopback must carry."""

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer


def token(
    create: Annotated[
        bool, typer.Option("--create", help="Make the token if there is none yet.")
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
    """Write a new token that only this user can read. Raises SettingsError where that fails."""
    from service.settings import SettingsError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written whole or not at all: parts that start at the same time must see one token.
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise SettingsError(f"cannot write the token to {path}: {error.strerror}") from error
