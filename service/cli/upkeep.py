"""``ndsweep gc``: removes what nobody needs, and says how much that is."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.serve import Home, settings_with


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")
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
