"""Connecting, submitting a spec in every form, listing, and what each refusal says."""

import json

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

import ndsweep
from service.api.app import create_app
from service.client import client as module
from service.supervision.home import Endpoints, write_endpoints
from sweeps.spec.sweep_spec import SweepSpec
from tests.service.external_sweeps import SPEC, driven


def test_no_service_names_the_address_and_what_to_do():
    with pytest.raises(ndsweep.ServiceUnreachable) as caught:
        ndsweep.connect("http://127.0.0.1:9")

    text = str(caught.value)
    assert "http://127.0.0.1:9" in text
    assert "`ndsweep serve`" in text
    assert "ndsweep.connect(url)" in text


def test_the_service_of_the_home_is_found(live, home):
    write_endpoints(home, Endpoints(1, live, "http://127.0.0.1:5000"))

    with ndsweep.connect() as found:
        assert found.url == live


def test_a_wrong_token_is_a_sentence(store, settings, monkeypatch):
    """The service asks for another secret."""
    app = create_app(store, settings.model_copy(update={"token": SecretStr("right")}))

    def inside(**options):
        return TestClient(app, base_url=options["base_url"], headers=options["headers"])

    monkeypatch.setattr(module.httpx2, "Client", inside)

    with pytest.raises(ndsweep.ServiceRefused, match=r"ndsweep.connect\(token=…\)"):
        ndsweep.connect("http://127.0.0.1:8000", token="wrong")
    assert ndsweep.connect("http://127.0.0.1:8000", token="right").sweeps().empty


def test_a_spec_is_a_dict_an_object_or_a_file(connected, spec, tmp_path):
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(spec))

    sweeps = [
        connected.submit(form) for form in (spec, SweepSpec.model_validate(spec), path, str(path))
    ]

    assert {sweep.name for sweep in sweeps} == {"alpha"}
    assert {json.dumps(sweep.info.spec["space"]) for sweep in sweeps} == {
        json.dumps(sweeps[0].info.spec["space"])
    }
    assert connected.submit(spec, key="k").id == connected.submit(spec, key="k").id


def test_a_file_that_is_not_there_is_a_sentence(connected):
    with pytest.raises(TypeError, match=r"a spec is a dict, a SweepSpec or the path of .*, got 3"):
        connected.submit(3)
    with pytest.raises(FileNotFoundError, match=r"there is no file 'nope.yaml'; a spec is"):
        connected.submit("nope.yaml")


def test_a_refused_spec_names_the_field(connected, spec):
    with pytest.raises(ndsweep.ServiceRefused, match="num_points") as caught:
        connected.submit(spec | {"num_points": 0})

    assert caught.value.fields[0].path == "num_points"


def test_a_match_is_submitted_and_is_a_sweep_of_its_kind(connected, match_spec):
    match = connected.match(match_spec)

    assert match.kind == "match"
    assert match.url.endswith(f"/matches/{match.id}")
    with pytest.raises(ndsweep.NothingToShow, match="has no best point"):
        match.best()


def test_an_unknown_sweep_is_a_sentence(connected):
    with pytest.raises(ndsweep.ServiceRefused, match="there is no sweep '0123456789ab'"):
        connected.sweep("0123456789ab")


def test_sweeps_are_a_frame_of_all_pages(connected, client, spec, trained, monkeypatch):
    for index in range(3):
        client.post("/api/v1/sweeps", json=spec | {"name": f"s{index}"})

    frame = connected.sweeps()

    assert list(frame["name"]) == ["s2", "s1", "s0", "trained"]
    assert frame["state"].dtype == "category"
    assert str(frame["created_at"].dtype) == "datetime64[us, UTC]"
    assert list(frame["trials"]) == [8, 8, 8, 4]
    assert frame["best"].iloc[3] == pytest.approx(0.105)
    assert list(connected.sweeps(search="s1")["name"]) == ["s1"]


def test_steering(connected, spec):
    sweep = connected.submit(spec)

    assert sweep.pause().state == "paused"
    assert sweep.resume().state == "queued"
    assert sweep.cancel().state == "cancelled"
    assert sweep.id in repr(sweep)
    assert sweep.id in sweep._repr_html_()


def test_trials_of_an_external_sweep_run_here(connected, store, home):
    """Asked, reported and told in this process; the results are frames like any other."""
    sweep = connected.create({k: v for k, v in SPEC.items() if k != "training"})
    seen = []
    with driven(store, home):
        while (trial := sweep.ask()) is not None:
            with trial:
                seen.append(trial.number)
                trial.report(step=1, metrics={"loss": 0.5})
                trial.tell()

    assert sweep.state == "complete"
    assert list(sweep.trials()["metrics.loss"]) == [0.5] * len(seen)
    assert sweep.curves("loss")["step"].tolist() == [1] * len(seen)


def test_an_external_spec_may_be_a_file(connected, tmp_path):
    path = tmp_path / "external.json"
    path.write_text(json.dumps(SPEC))

    assert connected.create(path).info.spec["training"] == "external"


def test_a_sweep_that_the_service_runs_gives_no_trials_away(connected, spec):
    with pytest.raises(ndsweep.ServiceRefused, match="training"):
        connected.submit(spec).ask(wait_seconds=0)
