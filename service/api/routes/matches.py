"""``/matches``: the alpha_v at which ND-Adam moves its weight vectors as fast as another setting.

``/matches/predict`` answers with the closed form.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from service.contract.bodies import Checked, DocumentRoute, json_or_yaml
from service.contract.errors import answers
from service.contract.inputs import IdempotencyKey, MatchQuery, SettingsDep, StoreDep, SweepId
from service.contract.outputs import PageOut, PredictionOut, SweepOut
from service.submission.admission import get_match, page_out, queue, sweep_out
from service.submission.match_of_trial import MatchOfTrial, match_of_trial
from service.submission.prediction import PredictionSpec, answer
from sweeps.match.match_spec import MatchSpec

router = APIRouter(prefix="/matches", tags=["matches"], route_class=DocumentRoute)

BODY = json_or_yaml("MatchSpec")


@router.post("", status_code=201, openapi_extra=BODY, responses=answers(409, 413, 415))
def create_match(
    spec: Checked[MatchSpec],
    store: StoreDep,
    settings: SettingsDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SweepOut:
    """Queue a measured match: a few short runs, then a verdict on fresh ones."""
    match = queue("match", spec, idempotency_key, store, settings)
    response.headers["Location"] = f"/api/v1/matches/{match.id}"
    return sweep_out(match)


@router.post(
    "/of-trial",
    status_code=201,
    openapi_extra=json_or_yaml("MatchOfTrial"),
    responses=answers(404, 409, 413, 415),
)
def create_match_of_trial(
    asked: Checked[MatchOfTrial],
    store: StoreDep,
    settings: SettingsDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SweepOut:
    """Queue a match whose source is a finished trial, with what it recorded."""
    match = queue("match", match_of_trial(asked, store), idempotency_key, store, settings)
    response.headers["Location"] = f"/api/v1/matches/{match.id}"
    return sweep_out(match)


@router.get("", responses=answers())
def list_matches(store: StoreDep, query: Annotated[MatchQuery, Query()]) -> PageOut[SweepOut]:
    """List matches, newest first unless sorted otherwise."""
    return page_out(store.list_sweeps(kind="match", **query.model_dump()), sweep_out)


@router.get("/{sweep_id}", responses=answers(404))
def read_match(sweep_id: SweepId, store: StoreDep) -> SweepOut:
    """One match: its state, and under ``result`` every criterion with its interval."""
    return sweep_out(get_match(store, sweep_id))


@router.post("/{sweep_id}/cancel", responses=answers(404, 409))
def cancel_match(sweep_id: SweepId, store: StoreDep) -> SweepOut:
    """End a match for good, whether it waits or runs. Asking again changes nothing."""
    return sweep_out(store.request(get_match(store, sweep_id).id, "cancel"))


@router.post("/predict", openapi_extra=json_or_yaml("PredictionSpec"), responses=answers(413, 415))
def predict_match(spec: Checked[PredictionSpec]) -> PredictionOut:
    """The target's learning rate under every criterion, from settings alone, at once."""
    return answer(spec)
