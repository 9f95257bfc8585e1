"""``/matches/predict``: the closed form."""

from fastapi import APIRouter

from service.documents import DocumentRoute, json_or_yaml
from service.errors import answers
from service.outputs import PredictionOut
from service.predictions import PredictionSpec, answer

router = APIRouter(prefix="/matches", tags=["matches"], route_class=DocumentRoute)


@router.post("/predict", openapi_extra=json_or_yaml("PredictionSpec"), responses=answers(413, 415))
def predict_match(spec: PredictionSpec) -> PredictionOut:
    """The target's learning rate under every criterion, from settings alone, at once."""
    return answer(spec)
