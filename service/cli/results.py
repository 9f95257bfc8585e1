"""``ndsweep import-results DIR``: sweeps out of the files that a batch left."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sweeps.store.store import Store

#: Exit code where something was passed over.
SKIPPED = 1


def import_results(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="The --out of `ndsweep batch`.")
    ],
) -> None:
    """Make finished sweeps of a batch's results, in the store of NDSWEEP_HOME.

    Safe while a service runs on it, and to repeat: only what is new is added.
    """
    from sweeps.batch.import_results import import_results as imported

    store = open_store()
    try:
        report = imported(store, folder)
    finally:
        store.close()
    for done in report.sweeps:
        again = f", {done.replaced} failed ones replaced" if done.replaced else ""
        typer.echo(
            f"{done.sweep.id}  {done.sweep.name}: {done.added} trials added{again}; "
            f"{done.sweep.reason}"
        )
    for sentence in report.skipped:
        typer.echo(f"passed over: {sentence}", err=True)
    if report.skipped:
        raise typer.Exit(SKIPPED)


def open_store(*, to_read: bool = False) -> "Store":
    """The store of the settings, with its tables; one that is ``to_read`` must be there."""
    from service.settings import Settings, SettingsError
    from service.supervision.home import prepare, require
    from sweeps.store.store import Store

    settings = Settings()
    if to_read:
        require(settings)
    elif settings.store_url is None:
        prepare(settings.home)
    try:
        store = Store(settings.database_url())
    except ValueError as error:
        raise SettingsError(f"NDSWEEP_STORE_URL: {error}") from error
    store.migrate()
    return store
