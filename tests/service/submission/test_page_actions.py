"""What pages hand to the service: its buttons, and specs that are checked before they are sent."""

from typing import Any

import pytest

from service.settings import Settings
from service.submission.from_pages import PageSteering, PageSubmission
from sweeps.records import Sweep
from sweeps.store.store import Store


@pytest.fixture
def queued(store: Store, spec: dict[str, Any]) -> Sweep:
    labels = {"name": spec["name"], "tags": spec["tags"], "notes": spec["notes"]}
    return store.create_sweep("sweep", spec, num_trials=8, **labels)[0]


@pytest.mark.parametrize(
    ("sent", "labels"),
    [
        ({"tags": "new, , two"}, (("new", "two"), "first try")),
        ({"notes": "second try"}, (("paper",), "second try")),
        ({"tags": "", "notes": ""}, ((), "")),
        ({}, (("paper",), "first try")),
    ],
)
def test_a_form_without_tags_or_notes_leaves_them_as_they_were(
    store: Store,
    settings: Settings,
    queued: Sweep,
    sent: dict[str, str],
    labels: tuple[tuple[str, ...], str],
) -> None:
    PageSteering(store, settings).act(queued.id, "label", sent)

    sweep = store.get_sweep(queued.id)
    assert (sweep.tags, sweep.notes) == labels


def test_a_button_that_does_not_exist_cancels_nothing(
    store: Store, settings: Settings, queued: Sweep
) -> None:
    with pytest.raises(ValueError, match="no button 'explode'"):
        PageSteering(store, settings).act(queued.id, "explode", {})

    assert store.get_sweep(queued.id).state == queued.state


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"confirms": {"sweep": "0123456789ab", "points": [0]}}, "confirms"),
        ({"from_sweep": {"sweep": "0123456789ab"}, "sampler": "tpe"}, "from_sweep.sweep"),
        ({"resources": {"gpus": 0}, "base": {"dataset": "nowhere"}}, "base.dataset"),
    ],
)
def test_a_form_is_told_what_the_api_would_refuse(
    store: Store, settings: Settings, spec: dict[str, Any], said: dict[str, Any], path: str
) -> None:
    checked = PageSubmission(store, settings).check("sweep", spec | said)

    assert [reason["path"] for reason in checked.refused] == [path]
    assert checked.estimate is None
