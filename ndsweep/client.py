"""``connect`` and ``Client``: one service, for people who work in Python."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel

from ndsweep.frames import sweep_frame
from ndsweep.results import Comparison, compare
from ndsweep.sweep import Sweep
from service.cli import sweeps as commands
from service.client.client import Client as Service
from service.client.client import ServiceRefused, Spec
from sweeps.spec.text import load_spec_text
from worker.config.training import EXTERNAL

if TYPE_CHECKING:
    import pandas

#: What ``Client.submit`` takes: a spec as values, as an object, or as the path of its file.
AnySpec = Mapping[str, Any] | BaseModel | str | os.PathLike[str]


def connect(url: str | None = None, token: str | None = None) -> "Client":
    """Connect to a running service.

    Args:
        url: Address, such as ``http://127.0.0.1:8000``; None = NDSWEEP_URL, or the service that
            runs on NDSWEEP_HOME (default ``.ndsweep`` in the working folder).
        token: Secret of a service that asks for one; None = NDSWEEP_TOKEN or NDSWEEP_TOKEN_FILE.

    Raises:
        ServiceUnreachable: Nothing answers there; the sentence names the address and what to do.
        ServiceRefused: The service asks for another token.
    """
    service = commands.connect(url, token, named_with="ndsweep.connect(url) or NDSWEEP_URL")
    try:
        service.list_sweeps(limit=1)
    except ServiceRefused as error:
        service.close()
        if error.status == 401:
            error.args = (
                f"the service at {service.url} asks for its token: ndsweep.connect(token=…), "
                "or set NDSWEEP_TOKEN or NDSWEEP_TOKEN_FILE",
            )
        raise
    except BaseException:
        service.close()
        raise
    return Client(service)


class Client:
    """One service. ``connect`` makes it; use it as a context manager, or ``close`` it.

    ``service`` is the typed client of the HTTP API below it, with every route.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    @property
    def url(self) -> str:
        """Address of the service; its pages open in a browser."""
        return self.service.url

    def __repr__(self) -> str:
        return f"<ndsweep.Client {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self.service.close()

    def submit(self, spec: AnySpec, *, key: str | None = None) -> Sweep:
        """Submit a sweep, and return it at once.

        Args:
            spec: Fields as a dict or a SweepSpec, or the path of a YAML or JSON file.
                ``docs/sweeps.md`` lists every field.
            key: Idempotency key: the same key and spec give the same sweep, submitted once.

        Raises:
            ServiceRefused: The spec breaks a rule; ``error.fields`` lists fields and reasons.
            FileNotFoundError: There is no such file.
        """
        return Sweep(self.service, self.service.submit(_as_sent(spec), idempotency_key=key))

    def create(self, spec: AnySpec, *, key: str | None = None) -> Sweep:
        """Submit a sweep whose trials run wherever somebody asks for them: ``Sweep.ask``.

        Training is "external" where the spec names none; arguments and errors as of ``submit``.
        Its ``base`` and ``space`` have any fields, its ``metrics`` are declared in the spec.
        """
        values = _values(spec)
        sent = {"training": EXTERNAL} | values
        return Sweep(self.service, self.service.submit(sent, idempotency_key=key))

    def match(self, spec: AnySpec, *, key: str | None = None) -> Sweep:
        """Submit a measured match; arguments and errors as of ``submit``.

        ``docs/matching.md`` lists every field. The result is a Sweep of kind "match".
        """
        return Sweep(self.service, self.service.match(_as_sent(spec), idempotency_key=key))

    def sweep(self, sweep_id: str) -> Sweep:
        """The sweep or match with this id, which is the last part of its page's address.

        Raises ServiceRefused if there is none.
        """
        return Sweep(self.service, self.service.get(sweep_id))

    def sweeps(self, **filters: Any) -> "pandas.DataFrame":
        """Every sweep and match, newest first, a row each.

        ``filters``: kind ("sweep", "match"), state, tag, search (text in name or notes), sort.
        Columns: ``id``, ``kind``, ``name``, ``state``, ``trials`` planned, ``complete``,
        ``best`` (mean of the selected point, in the metric's own unit), ``metric``, ``tags``,
        ``created_at``, ``finished_at`` (UTC).
        """
        return sweep_frame(self.service.all_sweeps(**filters))

    def compare(
        self,
        *arms: Sweep | str | Mapping[str, Any],
        metric: str | None = None,
        baseline: int | None = None,
    ) -> Comparison:
        """Compare finished sweeps, points or trials: differences with 95 % intervals.

        Args:
            arms: Sweeps or their ids (each stands for its best point, or for each of its arms),
                or ``{"sweep": id, "point": 3}``, ``{"sweep": id, "trials": [4, 5]}``.
            metric: What is compared; None = the test error where every arm has it, else the
                objective.
            baseline: Place of the arm that all others are compared with; None = all pairs.

        Raises ServiceRefused for arms that cannot be compared.
        """
        return compare(self.service, arms, metric=metric, baseline=baseline)


def _as_sent(spec: AnySpec) -> Spec:
    """A spec as the body of a request; a file goes as it is, and the service reads it."""
    if isinstance(spec, BaseModel | Mapping):
        return _values(spec)
    return commands.read_spec(_existing(spec))


def _values(spec: AnySpec) -> dict[str, Any]:
    """A spec as values. Raises UnreadableSpec for a file that is neither JSON nor YAML."""
    if isinstance(spec, BaseModel):
        values: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
        return values
    if isinstance(spec, Mapping):
        return dict(spec)
    return dict(load_spec_text(_existing(spec).read_text("utf-8")))


def _existing(spec: str | os.PathLike[str]) -> Path:
    if not isinstance(spec, str | os.PathLike):
        raise TypeError(
            f"a spec is a dict, a SweepSpec or the path of a YAML or JSON file, got {spec!r:.80}"
        )
    path = Path(spec)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {os.fspath(spec)!r:.200}; a spec is a dict, a SweepSpec or the path "
            "of a YAML or JSON file"
        )
    return path
