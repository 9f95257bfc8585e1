"""``/matches/predict``: the closed form."""

from fastapi import APIRouter

from service.contract.bodies import DocumentRoute, json_or_yaml
from service.contract.errors import answers
from service.contract.outputs import PredictionOut
from service.submission.prediction import PredictionSpec, answer

router = APIRouter(prefix="/matches", tags=["matches"], route_class=DocumentRoute)


@router.post("/predict", openapi_extra=json_or_yaml("PredictionSpec"), responses=answers(413, 415))
def predict_match(spec: PredictionSpec) -> PredictionOut:
    """The target's learning rate under every criterion, from settings alone, at once."""
    return answer(spec)
