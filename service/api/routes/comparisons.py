"""``/comparisons``: arms of any finished sweeps against each other."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from service.contract.bodies import Checked, DocumentRoute, json_or_yaml
from service.contract.downloads import TABLES, table_response
from service.contract.errors import answers
from service.contract.inputs import ComparisonQuery, StoreDep
from service.contract.outputs import ComparisonOut
from sweeps.analysis.comparison import ComparisonSpec, compare
from sweeps.analysis.result_tables import comparison_csv, comparison_text

router = APIRouter(prefix="/comparisons", tags=["comparisons"], route_class=DocumentRoute)


@router.post(
    "",
    response_model=ComparisonOut,
    openapi_extra=json_or_yaml("ComparisonSpec"),
    responses=answers(404, 409, 413, 415) | TABLES,
)
def compare_arms(
    asked: Checked[ComparisonSpec], store: StoreDep, query: Annotated[ComparisonQuery, Query()]
) -> ComparisonOut | Response:
    """Differences with intervals between arms of finished sweeps, and every field that differs.

    Welch's t with Holm's correction; paired and non-inferiority verdicts only where every sweep
    declared them in its spec. Creates nothing.
    """
    found = compare(store, asked)
    if query.format == "json":
        return ComparisonOut.model_validate(found)
    if query.format == "csv":
        return table_response(comparison_csv(found, query.table), "csv")
    sweeps = dict.fromkeys(arm["sweep"] for arm in found["arms"])
    declared = [store.get_sweep(one).metrics for one in sweeps]
    return table_response(comparison_text(found, query.format, declared), query.format)
