"""Turns users' mistakes into one line and an exit code; only bugs show a traceback."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup


class OneLineErrors(TyperGroup):
    """A command group whose expected failures are one line on stderr and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader closed the pipe; without this, Python would report it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            sentence = sentence_for(error)
            if sentence is None:
                raise
            typer.echo(f"ndsweep: {sentence}", err=True)
            raise typer.Exit(1) from error


def sentence_for(error: Exception) -> str | None:
    """Return the message for the user, or None for an error that is a bug of this program."""
    # Imported here: `ndsweep --help` must not wait for them.
    from pydantic import ValidationError

    from service.backup.archive import BackupRefused
    from service.cli.terminal.options import OutputRefused
    from service.client.client import ServiceError, ServiceRefused
    from service.contract.errors import ApiError
    from service.settings import SettingsError
    from sweeps.errors import SweepsError
    from sweeps.spec.validation_messages import in_words
    from worker.config.train_config import FieldError
    from worker.errors import WorkerError

    if isinstance(error, ServiceRefused) and error.status == 401:
        return f"{error}; commands send the token in NDSWEEP_TOKEN or the file NDSWEEP_TOKEN_FILE"
    if isinstance(error, ServiceError | ApiError | SettingsError | OutputRefused | BackupRefused):
        return str(error)
    if isinstance(error, SweepsError | FieldError | WorkerError):
        return str(error)
    if isinstance(error, ValidationError):
        if error.title == "Settings":
            first = error.errors()[0]
            return f"NDSWEEP_{str(first['loc'][0]).upper()}: {first['msg']}, got {first['input']!r}"
        return in_words(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return None
