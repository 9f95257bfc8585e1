"""``ndsweep gc``, ``backup``, ``restore``, ``store copy`` and ``token``.

``gc`` removes files that are no longer needed and prints their size. ``backup`` writes a home and
its store to one file, ``restore`` makes a new home of it, ``store copy`` moves a store between
SQLite and PostgreSQL. ``token`` creates, lists and
revokes the secrets that requests to a service beyond loopback must contain: in the store of this
machine, which is how the first one is made, or over the API of another.
"""

import getpass
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from service.cli.serve import Home, settings_with
from service.cli.terminal.options import one_of

if TYPE_CHECKING:
    from service.backup.archive import Manifest
    from service.client.client import Client
    from service.contract.people import TokenOut, TokenSpec
    from sweeps.store.store import Store

token = typer.Typer()
stores = typer.Typer(help="The store's database.", no_args_is_help=True)

SCOPES = ("read", "submit", "admin")
Service = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Address of a service, asked with an admin token; default NDSWEEP_URL, and without "
        "it the store on this machine.",
    ),
]


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


def backup(
    file: Annotated[Path, typer.Argument(help="File to write, outside of the home.")],
    home: Home = None,
) -> None:
    """Write the store, and the files that belong to it, to one file; while sweeps run, too."""
    from service.backup.making import back_up
    from service.cli.terminal.progress import byte_counts
    from service.supervision.home import require
    from sweeps.store.store import Store

    settings = settings_with(home=home)
    require(settings)
    store = Store(settings.database_url())
    try:
        with byte_counts("backing up") as note:
            manifest = back_up(store, settings.home.absolute(), file, note)
    finally:
        store.close()
    _say_what_is_in(manifest)
    typer.echo(f"wrote {file}, {file.stat().st_size / 1e6:,.1f} MB")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that ndsweep backup wrote.")],
    check: Annotated[
        bool, typer.Option("--check", help="Compare every file with its checksum; write nothing.")
    ] = False,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Bring a store of an older version to this one.")
    ] = False,
    home: Home = None,
) -> None:
    """Make a new home, and the store of NDSWEEP_STORE_URL, of a backup; both must be empty."""
    from service.backup import restoring
    from service.backup.archive import reading
    from service.cli.terminal.progress import byte_counts

    settings = settings_with(home=home)
    with reading(file) as backup:
        size = backup.manifest.bytes()
    if check:
        with byte_counts("checking", size) as note:
            _say_what_is_in(restoring.check(file, note))
        typer.echo(f"{file} is whole")
        return
    with byte_counts("checking and restoring", 2 * size) as note:
        manifest = restoring.restore(file, settings, migrate=migrate, note=note)
    _say_what_is_in(manifest)
    typer.echo(f"restored to {settings.home.absolute()}; `ndsweep serve` goes on from there")


def _say_what_is_in(manifest: "Manifest") -> None:
    when = manifest.created_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    typer.echo(
        f"{manifest.sweeps:,} sweeps with {manifest.trials:,} trials as of {when}: "
        f"{len(manifest.files):,} files, {manifest.bytes() / 1e6:,.1f} MB"
    )
    for sentence in manifest.left_out:
        typer.echo(f"not in it: {sentence}")


@stores.command("copy")
def copy_store(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="URL of a store, or path of its SQLite file.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The same of an empty database, or of a new file.")
    ],
    while_in_use: Annotated[
        bool,
        typer.Option(
            "--while-in-use",
            help="Copy although others have FROM open; what they write from now on is not copied.",
        ),
    ] = False,
) -> None:
    """Copy a store from SQLite to PostgreSQL or back, and compare rows and checksums."""
    from rich.console import Console

    from service.cli.terminal.printing import print_copied_tables
    from service.cli.terminal.progress import row_counts

    os.umask(0o077)  # What a new file holds is its owner's, as in a home.
    one, other = _store_at("FROM", source), _store_at("TO", target)
    try:
        with row_counts() as note:
            copied = one.copy_to(other, while_in_use=while_in_use, note=note)
    finally:
        one.close()
        other.close()
    print_copied_tables(Console(), copied)
    typer.echo(f"copied {sum(table.rows for table in copied):,} rows; both stores are alike")


def _store_at(which: str, name: str) -> "Store":
    """The store of a URL, or of a path. Raises SettingsError."""
    from service.settings import SettingsError
    from sweeps.store.database.sqlite_file import sqlite_url
    from sweeps.store.store import Store

    try:
        return Store(name if "://" in name else sqlite_url(Path(name).absolute()))
    except ValueError as error:
        raise SettingsError(f"{which}: {error}") from error


@token.callback(invoke_without_command=True)
def settings_token(
    context: typer.Context,
    create: Annotated[
        bool, typer.Option("--create", help="Create the token of the settings if there is none.")
    ] = False,
) -> None:
    """Tokens: create, list and revoke named ones. Without a command: print that of the settings."""
    from service.settings import Settings, SettingsError

    if context.invoked_subcommand is not None:
        return
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


@token.command("create")
def create_named(
    name: Annotated[str, typer.Argument(help="What it is for, such as ada-laptop.")],
    scope: Annotated[
        str, typer.Option(parser=one_of(*SCOPES), metavar="|".join(SCOPES), help="What it may do.")
    ] = "submit",
    owner: Annotated[
        str | None, typer.Option(help="Whom its sweeps belong to; default: the name.")
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0.001, help="Days until it expires; default: never.")
    ] = None,
    queued_sweeps: Annotated[
        int | None, typer.Option(min=0, help="Most sweeps that may wait for a runner.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=0, help="Most trials that have yet to end.")
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option(min=0, help="Most GPU-hours in 30 days.")
    ] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="Most requests in a second.")
    ] = None,
    url: Service = None,
) -> None:
    """Create a named token and print it; it is shown this once."""
    from datetime import UTC, datetime, timedelta

    from service.contract.people import QuotasSpec, TokenSpec

    spec = TokenSpec(
        name=name,
        scope=scope,
        owner=owner,
        expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
        quotas=QuotasSpec(
            queued_sweeps=queued_sweeps,
            trials=trials,
            gpu_hours=gpu_hours,
            requests_per_second=requests_per_second,
        ),
    )
    with _people(url) as people:
        typer.echo(people.create(spec))


@token.command("list")
def list_named(
    revoked: Annotated[
        bool, typer.Option("--revoked", help="Also those that were revoked.")
    ] = False,
    url: Service = None,
) -> None:
    """List named tokens, newest first, without their secrets."""
    from rich.console import Console

    from service.cli.terminal.printing import print_tokens

    with _people(url) as people:
        print_tokens(Console(), people.listed(revoked=revoked))


@token.command("revoke")
def revoke_named(
    which: Annotated[str, typer.Argument(help="Id or name of the token.", metavar="ID")],
    url: Service = None,
) -> None:
    """Revoke a named token; its browser sessions end, within five seconds everywhere."""
    with _people(url) as people:
        found = people.revoke(which)
    typer.echo(f"revoked {found.name} ({found.id}) of {found.owner}")


class _People(Protocol):
    """Tokens, in the store of this machine or behind a service."""

    def create(self, spec: "TokenSpec") -> str: ...

    def listed(self, *, revoked: bool) -> "list[TokenOut]": ...

    def revoke(self, which: str) -> "TokenOut": ...


@contextmanager
def _people(url: str | None) -> Iterator[_People]:
    """The service that ``url`` or NDSWEEP_URL names; without either, the store of NDSWEEP_HOME."""
    from service.settings import Settings

    settings = Settings()
    if url or settings.url:
        from service.cli.sweeps import connect

        with connect(url) as client:
            yield _Served(client)
        return
    from service.supervision.home import keep_private, prepare
    from sweeps.store.database.people import Actor, Scope, acting_as
    from sweeps.store.store import Store

    prepare(settings.home.absolute())
    keep_private(settings.home.absolute())
    store = Store(settings.database_url())
    who = Actor(getpass.getuser(), Scope.ADMIN, "command line", address=socket.gethostname())
    try:
        store.migrate()
        with acting_as(who):
            yield _Stored(store)
    finally:
        store.close()


class _Served:
    def __init__(self, client: "Client") -> None:
        self._client = client

    def create(self, spec: "TokenSpec") -> str:
        return self._client.create_token(spec.model_dump(mode="json")).token

    def listed(self, *, revoked: bool) -> "list[TokenOut]":
        return list(self._client.all_tokens(revoked=revoked))

    def revoke(self, which: str) -> "TokenOut":
        # By its id: a name may hold what an address cannot.
        known = self._client.all_tokens()
        found = next((one.id for one in known if which in (one.id, one.name)), which)
        return self._client.revoke_token(found)


class _Stored:
    def __init__(self, store: "Store") -> None:
        self._store = store

    def create(self, spec: "TokenSpec") -> str:
        from sweeps.store.database.people import Scope

        return self._store.create_token(
            spec.name,
            Scope(spec.scope),
            owner=spec.owner or "",
            expires_at=spec.expires_at,
            quotas=spec.quotas.limits(),
        )[1]

    def listed(self, *, revoked: bool) -> "list[TokenOut]":
        from service.contract.people import TokenOut

        found, cursor = [], None
        while True:
            page = self._store.list_tokens(revoked=revoked, cursor=cursor, limit=500)
            found += [TokenOut.model_validate(one) for one in page.items]
            cursor = page.next
            if cursor is None:
                return found

    def revoke(self, which: str) -> "TokenOut":
        from service.contract.people import TokenOut

        return TokenOut.model_validate(self._store.revoke_token(which))
