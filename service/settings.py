"""Where the service keeps things and what it listens on: every setting, once.

Each field is the environment variable ``NDSWEEP_<FIELD>``; options of the command line override it.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sweeps.retention.limits import Keep
from sweeps.store.database.people import Scope
from sweeps.store.database.sqlite_file import sqlite_path, sqlite_url
from worker.data.prepared import default_home

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT_PORT = 8000
DEFAULT_MLFLOW_PORT = 5000


class SettingsError(Exception):
    """A setting that the service cannot start with; the text says which and what to do."""


class Settings(BaseSettings):
    """Settings of one installation, read from the environment."""

    model_config = SettingsConfigDict(env_prefix="NDSWEEP_", frozen=True, extra="ignore")

    home: Path = Field(
        Path(".ndsweep"), description="Folder of the store, MLflow, checkpoints and logs."
    )
    data: Path | None = Field(
        None, description="Folder of the prepared data sets; none = in the user's cache."
    )
    host: str = Field("127.0.0.1", description="Address the service listens on.")
    port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None, description="Port of the service; none = 8000 or the next free one."
    )
    url: str | None = Field(
        None, description="Address of a running service, for the commands that talk to one."
    )
    token: SecretStr | None = Field(
        None, description="Secret every request must carry; needed unless host is loopback."
    )
    token_file: Path | None = Field(
        None, description="File that holds the token, instead of NDSWEEP_TOKEN."
    )
    allowed_hosts: str | None = Field(
        None,
        description="Names under which the service may be asked where a token is set, comma "
        "between them; addresses, names without a dot and this machine's own always may.",
    )
    proxy_user_header: str | None = Field(
        None,
        description="Header in which a proxy names who asks, such as X-Forwarded-Email; none = no "
        "header is believed.",
    )
    proxy_addresses: str | None = Field(
        None,
        description="Addresses or networks of the proxies whose header is believed, comma between "
        "them.",
    )
    proxy_groups_header: str = Field(
        "X-Forwarded-Groups", description="Header in which that proxy names groups."
    )
    proxy_scopes: str = Field(
        "*=submit",
        description="Scope of each group, such as ml-admins=admin,lab=submit; * = everybody whom "
        "the proxy names.",
    )
    join: str | None = Field(
        None,
        description="HOST:PORT of a Ray cluster's head: the runner keeps a node of it on its "
        "machine, which trains nothing; none = a local cluster, or the one of RAY_ADDRESS.",
    )
    store_url: str | None = Field(
        None, description="Database of the store; none = SQLite below home. PostgreSQL works too."
    )
    mlflow_url: str | None = Field(
        None, description="Address of an MLflow server; none = a local one is started."
    )
    mlflow_public_url: str | None = Field(
        None, description="Address of MLflow for browsers, where it is another than mlflow_url."
    )
    mlflow_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="Port of the local MLflow server; none = 5000 or the next free one."
    )
    mlflow_allowed_hosts: str | None = Field(
        None,
        description="Names under which the local MLflow server may be asked, with ports, comma "
        "between them; none = its own on loopback.",
    )
    training_seconds: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = Field(
        120.0, description="Seconds that the import of a training's package may take in the API."
    )
    drivers: Annotated[int, Field(ge=1, le=64)] = Field(
        2, description="Sweeps that the runner drives at the same time."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Lines of the logs: text for people, or JSON with ids for programs."
    )
    keep_sweep_gb: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        20.0, description="Checkpoints and logs of one sweep, in GB; beyond it the oldest go."
    )
    keep_gb: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        200.0, description="Checkpoints and logs of all sweeps, in GB."
    )
    keep_days: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)] = Field(
        7.0, description="Days that ended sweeps keep checkpoints of failed and cancelled trials."
    )

    def data_home(self) -> Path:
        """The folder of the prepared data sets, absolute."""
        return (self.data or default_home()).absolute()

    def keep(self) -> Keep:
        """What retention keeps."""
        sizes = int(self.keep_sweep_gb * 1e9), int(self.keep_gb * 1e9)
        return Keep(*sizes, days=self.keep_days)

    @field_validator("url", "mlflow_url", "mlflow_public_url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("must be an address such as http://127.0.0.1:5000")
        return url or None

    def host_names(self) -> frozenset[str]:
        """The names of ``allowed_hosts``, ``host`` and ``url``, in lower case."""
        names = (self.allowed_hosts or "").lower().split(",")
        names += [self.host.lower(), urlsplit(self.url or "").hostname or ""]
        return frozenset(name.strip() for name in names if name.strip())

    def trusted_proxy(self) -> "TrustedProxy | None":
        """The proxy that says who asks; None where none is trusted. Raises SettingsError."""
        header = (self.proxy_user_header or "").strip()
        if not header:
            return None
        listed = [one.strip() for one in (self.proxy_addresses or "").split(",") if one.strip()]
        if not listed:
            raise SettingsError(
                "NDSWEEP_PROXY_ADDRESSES must name the proxy that sets "
                f"{header}, such as 10.0.0.5 or 10.0.0.0/24, got nothing: anybody could set it"
            )
        scopes = _scopes(self.proxy_scopes)
        return TrustedProxy(
            header.lower(), self.proxy_groups_header.lower(), _networks(listed), scopes
        )

    def database_url(self) -> str:
        """The store's URL: the one that was set, or SQLite below ``home``."""
        return self.store_url or sqlite_url(self.home.absolute() / "store.db")

    def secret(self) -> str | None:
        """The token, from the variable or the file; None when neither is set.

        Raises SettingsError when the file cannot be read or holds nothing, and for a token that
        no request could carry.
        """
        if self.token is not None and self.token.get_secret_value().strip():
            return _usable("NDSWEEP_TOKEN", self.token.get_secret_value().strip())
        if self.token_file is None:
            return None
        try:
            text = self.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SettingsError(
                f"NDSWEEP_TOKEN_FILE must name a readable file, got {self.token_file}: {reason}"
            ) from error
        if not text:
            raise SettingsError(
                f"NDSWEEP_TOKEN_FILE must hold a token, but {self.token_file} is empty"
            )
        return _usable("NDSWEEP_TOKEN_FILE", text)


@dataclass(frozen=True)
class TrustedProxy:
    """A proxy that has asked people who they are, and says so in a header."""

    user_header: str
    groups_header: str
    networks: tuple[Network, ...]
    #: Scope by group; ``*`` = everybody.
    scopes: Mapping[str, Scope]

    def is_listed(self, address: str) -> bool:
        """Whether a connection from ``address`` is the proxy's."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self.networks)

    def scope_of(self, groups: Iterable[str]) -> Scope | None:
        """The largest scope of these groups; None where none of them has one."""
        found = [self.scopes[group] for group in ("*", *groups) if group in self.scopes]
        return max(found, key=list(Scope).index, default=None)


def _networks(listed: Sequence[str]) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(one) for one in listed)
    except ValueError as error:
        raise SettingsError(
            f"NDSWEEP_PROXY_ADDRESSES must list addresses or networks, comma between them: {error}"
        ) from error


def _scopes(text: str) -> dict[str, Scope]:
    allowed = [scope.value for scope in Scope if scope != Scope.LINK]
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        group, _, scope = (word.strip() for word in part.rpartition("="))
        if not group or scope not in allowed:
            raise SettingsError(
                f"NDSWEEP_PROXY_SCOPES must be group=scope, comma between them, with a scope of "
                f"{', '.join(allowed)}; got {part[:80]!r}"
            )
        found[group] = Scope(scope)
    return found


def _usable(where: str, token: str) -> str:
    """The token, if a header can hold it; the sentence does not show a secret."""
    if not token.isascii() or not token.isprintable():
        raise SettingsError(
            f"{where} must be one line of printable ASCII characters, because it travels in a "
            "header; got others in it"
        )
    return token


def is_address(host: str) -> bool:
    """Whether ``host`` is an IP address as text, not a name."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)  # each request asks for its sender
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host`` ("localhost", or an address as text)."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_token_off_loopback(settings: Settings) -> str | None:
    """The token of the settings, None without one.

    Raises SettingsError for an address that other machines can reach when nobody could be asked who
    they are: no token is set, none was created, and no proxy is trusted.
    """
    secret = settings.secret()
    is_guarded = secret is not None or settings.trusted_proxy() is not None
    if not is_guarded and not is_loopback(settings.host) and not _has_tokens(settings):
        raise SettingsError(
            f"host {settings.host!r} can be reached by other machines, so a token is needed: "
            "set NDSWEEP_TOKEN or NDSWEEP_TOKEN_FILE, run ndsweep token create, or listen on "
            "127.0.0.1"
        )
    return secret


def _has_tokens(settings: Settings) -> bool:
    """Whether the store has named tokens. Without an answer: yes, and nobody is let in."""
    from sweeps.errors import StoreUnavailable
    from sweeps.store.store import Store

    path = sqlite_path(settings.database_url())
    if path is not None and not path.exists():
        return False
    store = Store(settings.database_url())
    try:
        return store.is_up_to_date() and store.has_tokens()
    except StoreUnavailable:
        return True
    finally:
        store.close()
