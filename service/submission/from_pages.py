"""Specs and actions that come from forms of the pages, held to the same rules as the API's."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from dashboards.web.ports import Checked, Estimate, Refused
from service.contract.bodies import RefusedDocument, check_plain
from service.contract.errors import ApiError
from service.contract.inputs import Labels, ViewSpec
from service.contract.people import LinkSpec
from service.settings import Settings
from service.submission.admission import admitted, queue
from service.submission.forecast import describe_sweep, match_estimate
from service.submission.growth import confirm, delete, extend, label
from sweeps.match.match_spec import MatchSpec
from sweeps.records import Kind, Sweep
from sweeps.retention.note_images import add_image, address_of
from sweeps.spec.confirmation import ConfirmSpec
from sweeps.spec.extension import Extension
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.spec.validation_messages import FieldReason, explain
from sweeps.store.database.people import require_own
from sweeps.store.store import Store
from worker.data.prepared import list_datasets


class PageSubmission:
    """Checks and queues what pages hand in."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def datasets(self) -> list[str]:
        """Names of the data sets that are prepared on this machine."""
        return [info.name for info in list_datasets(self._settings.data_home())]

    def check(self, kind: Kind, spec: Mapping[str, Any]) -> Checked:
        """Say what a spec would do, or which fields are refused. Creates nothing."""
        try:
            parsed = _parsed(kind, spec)
            whole = admitted(parsed, self._store, self._settings)
        except Refused as refused:
            return Checked(refused.reasons, None)
        except ApiError as error:
            return Checked(reasons_of(error), None)
        if isinstance(whole, MatchSpec):
            return Checked((), match_estimate(whole))
        return Checked((), self._sweep_estimate(whole))

    def _sweep_estimate(self, spec: SweepSpec) -> Estimate:
        found = describe_sweep(spec, self._store, self._settings)
        return Estimate(
            trials=found.trials,
            points=found.points,
            replicates=found.replicates,
            steps=found.steps,
            gpu_hours=found.gpu_hours,
            detectable_difference=found.detectable_difference,
            notes=tuple(found.notes),
        )

    def create(self, kind: Kind, spec: Mapping[str, Any], key: str) -> str:
        """Queue a sweep or a match; return its id. Raises Refused."""
        parsed = _parsed(kind, spec)
        try:
            return queue(kind, parsed, key, self._store, self._settings).id
        except ApiError as error:
            raise Refused(reasons_of(error)) from error


def _parsed(kind: Kind, spec: Mapping[str, Any]) -> SweepSpec | MatchSpec:
    try:
        check_plain(dict(spec))
        model: type[SweepSpec] | type[MatchSpec] = MatchSpec if kind == "match" else SweepSpec
        return model.model_validate(dict(spec))
    except RefusedDocument as error:
        raise Refused((FieldReason(path="", reason=str(error)),)) from error
    except ValidationError as error:
        raise Refused(tuple(explain(error))) from error


def reasons_of(error: ApiError) -> tuple[FieldReason, ...]:
    """Why the API refuses, field by field."""
    fields = tuple(FieldReason(path=f.path, reason=f.reason) for f in error.body.fields)
    return fields or (FieldReason(path="", reason=str(error)),)


class PageSteering:
    """Carries out what the buttons of the pages ask for."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def act(self, sweep_id: str, verb: str, values: Mapping[str, str]) -> str:
        """Carry out a button; return the sweep to show next. Raises Refused and SweepsError.

        ValueError: there is no such button.
        """
        try:
            return self._act(sweep_id, verb, values).id
        except ApiError as error:
            raise Refused(reasons_of(error)) from error
        except ValidationError as error:
            raise Refused(tuple(explain(error))) from error

    def _act(self, sweep_id: str, verb: str, values: Mapping[str, str]) -> Sweep:
        store = self._store
        match verb:
            case "resume":
                return store.resume(sweep_id)
            case "retry":
                return store.retry(sweep_id)
            case "extend":
                asked = Extension.model_validate(_numbers(values))
                return extend(store, self._settings, sweep_id, asked)
            case "confirm":
                how = ConfirmSpec.model_validate(_numbers(values))
                return confirm(store, self._settings, sweep_id, how)
            case "label":
                return label(store, sweep_id, _labels(values))
            case "pause":
                return store.request(sweep_id, "pause")
            case "cancel":
                return store.request(sweep_id, "cancel")
        self._show(sweep_id, verb, values)
        return store.get_sweep(sweep_id)

    def _show(self, sweep_id: str, verb: str, values: Mapping[str, str]) -> None:
        """Change what is shown of a sweep and to whom: its views and its public links."""
        store = self._store
        match verb:
            case "view":
                asked_view = ViewSpec(query=values.get("query", ""))
                store.save_view(sweep_id, _view_name(values), asked_view.query)
            case "unview":
                store.delete_view(sweep_id, _view_name(values))
            case "share":
                days = LinkSpec.model_validate(_numbers(values)).days
                store.create_link(sweep_id, datetime.now(UTC) + timedelta(days=days))
            case "unshare":
                store.revoke_link(sweep_id, values.get("link", ""))
            case _:
                raise ValueError(f"there is no button {verb!r}")

    def add_image(self, sweep_id: str, data: bytes) -> None:
        """Keep an image and show it at the end of the notes.

        Raises ImageRefused, and Refused where the notes get too long.
        """
        sweep = self._store.get_sweep(sweep_id)
        require_own(f"sweep {sweep_id}", sweep.owner)
        image = add_image(self._settings.home, sweep.id, data, sweep.notes)
        shown = f"![image]({address_of(sweep.id, image.name)})"
        before = f"{sweep.notes.rstrip()}\n\n" if sweep.notes.strip() else ""
        self.act(sweep_id, "label", {"notes": f"{before}{shown}"})

    def delete(self, sweep_id: str) -> bool:
        """Delete a sweep; False where its trials have to stop first."""
        return delete(self._store, self._settings.home, sweep_id) is None


def _view_name(values: Mapping[str, str]) -> str:
    name = values.get("name", "").strip()
    if not name.strip(".") or len(name) > 80 or "/" in name or not name.isprintable():
        reason = f"must be 1 to 80 printable characters without a slash, got {name[:90]!r}"
        raise Refused((FieldReason(path="name", reason=f"name {reason}"),))
    return name


def _labels(values: Mapping[str, str]) -> Labels:
    """A form's tags, which it separates by commas, and notes; None where it has no such field."""
    tags = values.get("tags")
    words = None if tags is None else [word.strip() for word in tags.split(",") if word.strip()]
    return Labels(tags=words, notes=values.get("notes"))


def _numbers(values: Mapping[str, str]) -> dict[str, Any]:
    """A form's texts as the numbers that they are; others stay, to be refused by name."""
    return {name: int(text) if text.strip().isdecimal() else text for name, text in values.items()}
