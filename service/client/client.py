"""A typed client of the HTTP API.

    with Client("http://127.0.0.1:8000") as service:
        sweep = service.submit(spec)
        for event in service.watch(sweep.id):
            print(event.kind, event.data)

::

    ServiceError
    ├── ServiceRefused       the service answered with an error; carries its sentence and fields
    ├── ServiceUnreachable   nobody answered
    └── DamagedDownload      a file arrived that is not the one that was sent
"""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import BaseModel

from service.contract.agents import AskOut, HeardOut, ToldOut
from service.contract.analysis import AnalysisOut, FindingsOut
from service.contract.outputs import (
    BestTrialOut,
    ComparisonOut,
    DatasetOut,
    ErrorOut,
    EventOut,
    FieldOut,
    ImageOut,
    ListOut,
    MachineOut,
    MetricsOut,
    OptimizerOut,
    PageOut,
    PartOut,
    PointOut,
    PredictionOut,
    PresetOut,
    SweepOut,
    TrainingOut,
    TrialCurvesOut,
    TrialOut,
    UsageOut,
    ValidationOut,
)
from service.contract.people import MeOut, NewTokenOut, TokenOut
from service.settings import is_loopback
from worker.atomic_file import whole_file
from worker.pauses import pauses

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")
#: A spec as values, or as the text of a file with its media type.
Spec = Mapping[str, Any] | tuple[bytes, str]
ExportFormat = Literal["csv", "json", "parquet"]

PREFIX = "/api/v1"
#: Seconds to connect; a busy service may take longer to answer.
TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
#: An event stream says something at least every 15 s.
STREAM_TIMEOUT = httpx2.Timeout(60.0, connect=5.0)


class ServiceError(Exception):
    """A request to the service failed. ``str(error)`` is one sentence."""


class ServiceUnreachable(ServiceError):
    """Nothing answered at the address."""


class DamagedDownload(ServiceError):
    """A downloaded file does not have the checksum that the service gave for it."""


class ServiceRefused(ServiceError):
    """The service answered with an error."""

    def __init__(self, status: int, body: ErrorOut) -> None:
        super().__init__(body.detail)
        self.status = status
        self.error = body.error
        self.fields: list[FieldOut] = body.fields


class Client:
    """Talks to one service. Use it as a context manager, or ``close`` it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        transport: httpx2.BaseTransport | None = None,
        named_with: str = "--url or NDSWEEP_URL",
    ) -> None:
        """``named_with``: how the caller names another service, for errors."""
        self.url = url.rstrip("/")
        self._named_with = named_with
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT,
            transport=transport,
            # No proxy knows the way to this machine.
            trust_env=not is_loopback(urlsplit(self.url).hostname or ""),
        )

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
        self._http.close()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._http.is_closed

    # Sweeps

    def submit(self, spec: Spec, *, idempotency_key: str | None = None) -> SweepOut:
        """Create a sweep. With a key, asking again for the same answers the same."""
        return self._send(SweepOut, "/sweeps", spec, idempotency_key)

    def validate(self, spec: Spec) -> ValidationOut:
        """What the spec would do; creates nothing."""
        return self._send(ValidationOut, "/sweeps/validate", spec)

    def get(self, sweep_id: str) -> SweepOut:
        return self._get(SweepOut, f"/sweeps/{sweep_id}")

    def list_sweeps(self, **query: Any) -> PageOut[SweepOut]:
        """One page of sweeps and matches; ``query`` as in the API (kind, state, tag, limit, …)."""
        return self._get(PageOut[SweepOut], "/sweeps", query)

    def all_sweeps(self, **query: Any) -> Iterator[SweepOut]:
        """Every sweep and match, page after page."""
        return self._all(PageOut[SweepOut], "/sweeps", query)

    def cancel(self, sweep_id: str) -> SweepOut:
        return self._send(SweepOut, f"/sweeps/{sweep_id}/cancel")

    def pause(self, sweep_id: str) -> SweepOut:
        return self._send(SweepOut, f"/sweeps/{sweep_id}/pause")

    def resume(self, sweep_id: str) -> SweepOut:
        return self._send(SweepOut, f"/sweeps/{sweep_id}/resume")

    def retry(self, sweep_id: str) -> SweepOut:
        return self._send(SweepOut, f"/sweeps/{sweep_id}/retry")

    def extend(self, sweep_id: str, **totals: Any) -> SweepOut:
        """Raise num_points, replicates or budget to these totals; asking again changes nothing."""
        return self._send(SweepOut, f"/sweeps/{sweep_id}/extend", totals)

    def confirm(self, sweep_id: str, **how: Any) -> SweepOut:
        """Queue a sweep of the best points on fresh seeds; ``how`` as in the API (points, …)."""
        return self._send(SweepOut, f"/sweeps/{sweep_id}/confirm", how)

    def edit(self, sweep_id: str, **labels: Any) -> SweepOut:
        """Replace ``tags`` or ``notes``."""
        return self._send(SweepOut, f"/sweeps/{sweep_id}", labels, method="PATCH")

    def delete(self, sweep_id: str) -> SweepOut | None:
        """Remove a sweep in whatever state; returns it while its trials have yet to stop."""
        answer = self._request("DELETE", f"/sweeps/{sweep_id}")
        return SweepOut.model_validate_json(answer.content) if answer.status_code == 202 else None

    def compare(self, arms: list[dict[str, Any]], **how: Any) -> ComparisonOut:
        """Compare finished sweeps, points or trials; ``arms`` and ``how`` as in the API."""
        return self._send(ComparisonOut, "/comparisons", {"arms": arms, **how})

    def comparison_table(self, arms: list[dict[str, Any]], format: str, **how: Any) -> str:
        """The same as csv, markdown or latex."""
        return self._request(
            "POST", "/comparisons", params={"format": format}, json={"arms": arms, **how}
        ).text

    def analysis(self, sweep_id: str) -> FindingsOut:
        """What is computed from a sweep's trials as they are now."""
        return self._get(AnalysisOut, f"/sweeps/{sweep_id}/analysis").analysis

    def export(self, sweep_id: str, format: ExportFormat = "csv") -> Iterator[bytes]:
        """The trials as a file, piece by piece."""
        path = f"{PREFIX}/sweeps/{sweep_id}/export"
        try:
            with self._http.stream("GET", path, params={"format": format}) as response:
                _refuse_errors(response)
                yield from response.iter_bytes()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def points(self, sweep_id: str, **query: Any) -> PageOut[PointOut]:
        """One page of points with means and intervals; ``query``: sort, cursor, limit."""
        return self._get(PageOut[PointOut], f"/sweeps/{sweep_id}/points", query)

    def all_points(self, sweep_id: str, **query: Any) -> Iterator[PointOut]:
        """Every point with its mean and interval, page after page; ``query``: sort."""
        return self._all(PageOut[PointOut], f"/sweeps/{sweep_id}/points", query)

    def all_curves(self, sweep_id: str, **query: Any) -> Iterator[TrialCurvesOut]:
        """Whole curves of every trial, page after page.

        ``query``: name (one or several), kind ("metrics", the default, or "dynamics").
        """
        return self._all(PageOut[TrialCurvesOut], f"/sweeps/{sweep_id}/curves", query)

    def add_image(self, sweep_id: str, data: bytes, media_type: str = "image/png") -> ImageOut:
        """Keep an image for the notes of a sweep; its ``markdown`` shows it there."""
        path, headers = f"/sweeps/{sweep_id}/images", {"Content-Type": media_type}
        response = self._request("POST", path, content=data, headers=headers)
        return ImageOut.model_validate_json(response.content)

    def best(self, sweep_id: str) -> BestTrialOut:
        """The trial whose final weights are kept. Raises ServiceRefused, which says why none is."""
        return self._get(BestTrialOut, f"/sweeps/{sweep_id}/best")

    def best_weights(self, sweep_id: str, path: Path) -> None:
        """Download the final weights of the best trial to ``path``, whole or not at all.

        Raises ServiceRefused where none are kept, DamagedDownload for a wrong checksum.
        """
        asked, digest = f"{PREFIX}/sweeps/{sweep_id}/best/weights", hashlib.sha256()
        try:
            with self._http.stream("GET", asked) as response, whole_file(path) as file:
                _refuse_errors(response)
                for piece in response.iter_bytes():
                    digest.update(piece)
                    file.write(piece)
                found = f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
                if found != response.headers.get("repr-digest"):
                    raise DamagedDownload(
                        f"the weights of sweep {sweep_id} arrived with another checksum than the "
                        f"service gave for them (SHA-256 {digest.hexdigest()}); load them again"
                    )
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def figure(self, path: str, **query: Any) -> dict[str, Any]:
        """A plot of the pages as plotly's values: ``figure("/sweeps/ID/plots/parallel")``.

        A plot without data is ``{"empty": "why"}``. Raises ServiceRefused where no page has it.
        """
        asked = {key: value for key, value in query.items() if value is not None}
        try:
            response = self._http.get(f"{path}.json", params=asked)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        _refuse_errors(response)
        figure: dict[str, Any] = response.json()
        return figure

    # Trials

    def trials(self, sweep_id: str, **query: Any) -> PageOut[TrialOut]:
        return self._get(PageOut[TrialOut], f"/sweeps/{sweep_id}/trials", query)

    def all_trials(self, sweep_id: str, **query: Any) -> Iterator[TrialOut]:
        """Every trial, page after page."""
        return self._all(PageOut[TrialOut], f"/sweeps/{sweep_id}/trials", query)

    def trial(self, sweep_id: str, number: int) -> TrialOut:
        return self._get(TrialOut, f"/sweeps/{sweep_id}/trials/{number}")

    def metrics(
        self, sweep_id: str, number: int, **query: Any
    ) -> dict[str, list[tuple[int, float]]]:
        """Curves by metric name; ``query``: name (one or several), max_points."""
        return self._get(MetricsOut, f"/sweeps/{sweep_id}/trials/{number}/metrics", query).metrics

    def usage(self, sweep_id: str, number: int) -> UsageOut:
        """What a trial used of its machine, in all and over time."""
        return self._get(UsageOut, f"/sweeps/{sweep_id}/trials/{number}/usage")

    def log(self, sweep_id: str, number: int, lines: int = 200) -> str:
        path = f"/sweeps/{sweep_id}/trials/{number}/log"
        return self._request("GET", path, params={"lines": lines}).text

    def follow_log(self, sweep_id: str, number: int, *, patience: float = 60.0) -> Iterator[str]:
        """The whole log of a trial, piece by piece as it is written, until the trial has ended.

        Survives broken connections as ``watch`` does.
        """
        path = f"/sweeps/{sweep_id}/trials/{number}/log/events"
        for data in self._events(path, 0, patience):
            yield json.loads(data)["text"]

    # Trials that run outside; see ``service.client.agents`` for what repeats these

    def ask(self, sweep_id: str, *, key: str | None = None, **asked: Any) -> AskOut:
        """Lease trials; ``asked`` as in the API (agent, count, …). A key makes it repeatable."""
        return self._send(AskOut, f"/sweeps/{sweep_id}/ask", asked, key)

    def report(self, sweep_id: str, number: int, lease: str, reports: list[Any]) -> HeardOut:
        """Record reports of a leased trial; says whether it must stop."""
        path = f"/sweeps/{sweep_id}/trials/{number}/reports"
        return self._send(HeardOut, path, {"lease": lease, "reports": reports})

    def heartbeat(self, sweep_id: str, number: int, lease: str) -> HeardOut:
        """Keep a lease; says whether the trial must stop."""
        path = f"/sweeps/{sweep_id}/trials/{number}/heartbeat"
        return self._send(HeardOut, path, {"lease": lease})

    def tell(self, sweep_id: str, number: int, lease: str, **told: Any) -> ToldOut:
        """End a leased trial; ``told`` as in the API (state, metrics, step, reason)."""
        path = f"/sweeps/{sweep_id}/trials/{number}/tell"
        return self._send(ToldOut, path, told | {"lease": lease})

    # Matches

    def predict(self, spec: Spec) -> PredictionOut:
        """The closed-form match; answers at once and creates nothing."""
        return self._send(PredictionOut, "/matches/predict", spec)

    def match(self, spec: Spec, *, idempotency_key: str | None = None) -> SweepOut:
        """Create a measured match."""
        return self._send(SweepOut, "/matches", spec, idempotency_key)

    def match_of_trial(self, asked: Spec, *, idempotency_key: str | None = None) -> SweepOut:
        """Queue a match whose source is a finished trial."""
        return self._send(SweepOut, "/matches/of-trial", asked, idempotency_key)

    def get_match(self, match_id: str) -> SweepOut:
        return self._get(SweepOut, f"/matches/{match_id}")

    # People

    def me(self) -> MeOut:
        """Who the token says that this client is, and what of its quotas is used."""
        return self._get(MeOut, "/me")

    def create_token(self, spec: Spec) -> NewTokenOut:
        """Create a token (for administrators); its text is in the answer and nowhere else."""
        return self._send(NewTokenOut, "/tokens", spec)

    def all_tokens(self, **query: Any) -> Iterator[TokenOut]:
        """Every token, page after page (for administrators); ``query``: revoked."""
        return self._all(PageOut[TokenOut], "/tokens", query)

    def revoke_token(self, which: str) -> TokenOut:
        """Revoke a token by its id or name (for administrators)."""
        return self._send(TokenOut, f"/tokens/{quote(which, safe='')}", method="DELETE")

    # What there is

    def presets(self) -> list[PresetOut]:
        return self._get(ListOut[PresetOut], "/presets").items

    def datasets(self) -> list[DatasetOut]:
        return self._get(ListOut[DatasetOut], "/datasets").items

    def machines(self) -> list[MachineOut]:
        """Machines of the cluster, with the reason of those on which no trial runs."""
        return self._get(ListOut[MachineOut], "/machines").items

    def optimizers(self) -> list[OptimizerOut]:
        return self._get(ListOut[OptimizerOut], "/optimizers").items

    def trainings(self) -> list[TrainingOut]:
        return self._get(ListOut[TrainingOut], "/trainings").items

    def parts(self) -> list[PartOut]:
        return self._get(ListOut[PartOut], "/parts").items

    def is_ready(self) -> bool:
        """Whether the service and its store answer."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    # Following a sweep

    def watch(self, sweep_id: str, *, after: int = 0, patience: float = 60.0) -> Iterator[EventOut]:
        """Events of a sweep or match until it is finished and all were seen.

        Comes back after a broken connection and goes on behind the last event; gives up with
        ServiceUnreachable when nothing answers for ``patience`` seconds.
        """
        for data in self._events(f"/sweeps/{sweep_id}/events", after, patience):
            yield EventOut.model_validate_json(data)

    def _events(self, path: str, after: int, patience: float) -> Iterator[str]:
        """Data of the events of a stream, over as many connections as it takes."""
        waits, silent_since = pauses(0.2, 5.0), time.monotonic()

        def heard() -> None:
            nonlocal waits, silent_since
            waits, silent_since = pauses(0.2, 5.0), time.monotonic()

        while True:
            try:
                for event in self._stream(path, after, heard):
                    if event is None:
                        return
                    after, data = event
                    yield data
            except httpx2.TransportError as error:
                if time.monotonic() - silent_since > patience:
                    raise self._unreachable(error) from error
            except ServiceRefused as error:
                if error.status != 503 or time.monotonic() - silent_since > patience:
                    raise
            time.sleep(next(waits))

    def _stream(
        self, path: str, after: int, heard: Callable[[], None]
    ) -> Iterator[tuple[int, str] | None]:
        """Id and data of the events of one connection; None when there are no more.

        Calls ``heard`` for every line: a trial may be silent for long while the service is well.
        """
        with self._http.stream(
            "GET",
            f"{PREFIX}{path}",
            headers={"Accept": "text/event-stream", "Last-Event-ID": str(after)},
            timeout=STREAM_TIMEOUT,
        ) as response:
            _refuse_errors(response)
            name, data, last = "", "", after
            for line in response.iter_lines():
                heard()
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("id:"):
                    last = int(line[3:])
                elif line.startswith("data:"):
                    data += line[5:].strip()
                elif not line and name:
                    yield None if name == "end" else (last, data)
                    name, data = "", ""

    # Requests

    def _get(self, model: type[Model], path: str, query: Mapping[str, Any] | None = None) -> Model:
        asked = {key: value for key, value in (query or {}).items() if value is not None}
        return model.model_validate_json(self._request("GET", path, params=asked).content)

    def _all(
        self, model: type[PageOut[Item]], path: str, query: Mapping[str, Any]
    ) -> Iterator[Item]:
        """Every item of a listing, page after page."""
        cursor: str | None = None
        while True:
            page = self._get(model, path, {"limit": 500, "cursor": cursor, **query})
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def _send(
        self,
        model: type[Model],
        path: str,
        spec: Spec | None = None,
        key: str | None = None,
        *,
        method: str = "POST",
    ) -> Model:
        headers = {"Idempotency-Key": key} if key else {}
        content = None
        if isinstance(spec, tuple):
            content, headers["Content-Type"] = spec
        elif spec is not None:
            content, headers["Content-Type"] = json.dumps(spec).encode(), "application/json"
        response = self._request(method, path, content=content, headers=headers)
        return model.model_validate_json(response.content)

    def _request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        try:
            response = self._http.request(method, f"{PREFIX}{path}", **options)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        _refuse_errors(response)
        return response

    def _unreachable(self, error: Exception) -> ServiceUnreachable:
        return ServiceUnreachable(
            f"no service answers at {self.url} ({error or type(error).__name__}); "
            f"start one with `ndsweep serve`, or name another with {self._named_with}"
        )


def _refuse_errors(response: httpx2.Response) -> None:
    if response.is_success:
        return
    response.read()
    try:
        body = ErrorOut.model_validate_json(response.content)
    except ValueError:
        detail = f"{response.url} answered {response.status_code}, which is no answer of a service"
        body = ErrorOut(error="HttpError", detail=detail, fields=[])
    raise ServiceRefused(response.status_code, body)
