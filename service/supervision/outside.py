"""What a service needs and does not start itself: does it answer? Said on the terminal, at once."""

import os
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from service.settings import Settings
from sweeps.errors import StoreUnavailable
from sweeps.store.store import Store

#: Seconds to wait for an address; somebody looks at the terminal meanwhile.
PATIENCE = 3.0


def silent_parts(settings: Settings) -> Iterator[str]:
    """A sentence for each part elsewhere that does not answer; the service waits for it."""
    if settings.store_url:
        store = Store(settings.store_url)
        try:
            store.health()
        except StoreUnavailable as error:
            # A database that was never migrated answers well enough.
            if "does not exist" not in str(error) and "no such table" not in str(error):
                yield f"the database of NDSWEEP_STORE_URL does not answer ({error})"
        finally:
            store.close()
    ray = os.environ.get("RAY_ADDRESS")
    if ray and ray != "auto" and (why := _refused(ray)):
        yield f"no Ray answers at RAY_ADDRESS={ray} ({why}); sweeps stay queued"
    if settings.mlflow_url and (why := _refused(settings.mlflow_url)):
        yield f"no MLflow answers at {settings.mlflow_url} ({why}); curves are sent later"


def _refused(address: str) -> str | None:
    """Why nothing listens at ``host:port`` or a URL; None where something does."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    port = parts.port or {"http": 80, "https": 443, "ray": 10001}.get(parts.scheme)
    if not parts.hostname or port is None:
        return "it names no host and port"
    try:
        socket.create_connection((parts.hostname, port), PATIENCE).close()
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return None
