"""The buttons of a sweep's page, by the rules of the API's routes."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from dashboards.web.ports import Refused
from service.contract.errors import ApiError
from service.contract.inputs import Labels
from service.settings import Settings
from service.submission.from_pages import reasons_of
from service.submission.growth import confirm, delete, extend
from service.submission.labelling import label
from sweeps.records import Sweep
from sweeps.spec.confirmation import ConfirmSpec
from sweeps.spec.extension import Extension
from sweeps.spec.refusals import explain
from sweeps.store.store import Store


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
        raise ValueError(f"there is no button {verb!r}")

    def delete(self, sweep_id: str) -> bool:
        """Delete a sweep; False where its trials have to stop first."""
        return delete(self._store, self._settings.home, sweep_id) is None


def _labels(values: Mapping[str, str]) -> Labels:
    """A form's tags, which it separates by commas, and notes; None where it has no such field."""
    tags = values.get("tags")
    words = None if tags is None else [word.strip() for word in tags.split(",") if word.strip()]
    return Labels(tags=words, notes=values.get("notes"))


def _numbers(values: Mapping[str, str]) -> dict[str, Any]:
    """A form's texts as the numbers that they are; others stay, to be refused by name."""
    return {name: int(text) if text.strip().isdecimal() else text for name, text in values.items()}
