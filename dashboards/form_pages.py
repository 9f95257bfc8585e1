"""The form of a new sweep: filled from a preset, a sweep or a match, checked while typed."""

import hashlib
import json
import secrets
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.error_pages import PageRoute, error_page
from dashboards.match_sweep import sweep_from_match
from dashboards.reading import StoreDep
from dashboards.sent_forms import SentDep
from dashboards.spec_fields import DATASET, GROUPS, KIND_CELLS, VARIED, control_id
from dashboards.spec_form import (
    FormValues,
    UnreadableRest,
    form_of,
    reason_place,
    sent_form,
    small_spec,
    spec_of,
    yaml_text,
)
from dashboards.submitting import Checked, Refused, Submitting
from dashboards.templating import page
from sweeps.explain import FieldReason
from sweeps.presets import preset_names, read_preset
from sweeps.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

#: What an empty form begins with: the question that this product is about.
STARTER: dict[str, Any] = {
    "space": {"alpha_v": {"kind": "float", "low": 0.005, "high": 0.5, "log": True}},
    "sampler": "random",
    "num_points": 12,
    "replicates": 3,
}
_NO_FORM = (404, "No form here", "These pages only show; hand the spec in with ndsweep submit.")


def _provided(request: Request) -> Submitting | None:
    submitting: Submitting | None = request.state.submitting
    return submitting


SubmittingDep = Depends(_provided)


@router.get("/sweeps/new")
def new_page(
    preset: str = "",
    source: str = "",
    store: Store = StoreDep,
    submitting: Submitting | None = SubmittingDep,
) -> Response:
    """The form, empty or filled from a preset or from a sweep or match (``source`` is its id)."""
    if submitting is None:
        return error_page(*_NO_FORM)
    origin = ""
    spec: dict[str, Any] = STARTER
    if preset:
        found = read_preset(preset)
        if found.kind == "match":
            return error_page(
                404,
                "Not a sweep",
                f"Preset {preset} is a match, not a sweep. Run it from the page of all matches, or "
                "with `ndsweep match run`.",
            )
        spec, origin = found.spec, f"preset {preset}"
    elif source:
        sweep = store.get_sweep(source)
        is_match = sweep.kind == "match"
        spec = sweep_from_match(sweep) if is_match else small_spec(sweep.spec)
        origin = f"{sweep.kind} {sweep.name}"
    return _form_page(submitting, form_of(spec), origin=origin, preset=preset)


@router.post("/sweeps/new")
def change_or_create(
    sent: dict[str, str] = SentDep, submitting: Submitting | None = SubmittingDep
) -> Response:
    """Add or remove a varied field, bring form and YAML in step, or queue the sweep."""
    if submitting is None:
        return error_page(*_NO_FORM)
    form, action, key = sent_form(sent), sent.get("action", ""), sent.get("key", "")
    origin = sent.get("origin", "")
    if action != "create":
        return _form_page(submitting, _changed(form, action), origin=origin, key=key)
    try:
        spec = spec_of(form)
        # The same form sent twice makes one sweep; an edited one makes another.
        seal = hashlib.sha256(json.dumps(spec, sort_keys=True, default=str).encode()).hexdigest()
        sweep_id = submitting.create("sweep", spec, f"form-{key[:64]}-{seal[:24]}")
    except UnreadableRest as error:
        reasons: tuple[FieldReason, ...] = (FieldReason(path="rest", reason=str(error)),)
    except Refused as error:
        reasons = error.reasons
    else:
        return RedirectResponse(f"/sweeps/{sweep_id}", status_code=303)
    return _form_page(
        submitting, form, origin=origin, key=key, checked=Checked(reasons, None), status=422
    )


@router.post("/sweeps/validate")
def check_part(
    sent: dict[str, str] = SentDep, submitting: Submitting | None = SubmittingDep
) -> Response:
    """What the form's spec would do, and each refusal for its field. Creates nothing."""
    if submitting is None:
        return error_page(*_NO_FORM)
    form = sent_form(sent)
    return page("part_check.html", **_check_values(form, _checked(submitting, form)), oob=True)


@router.post("/presets/{name}/submit")
def submit_preset(name: str, submitting: Submitting | None = SubmittingDep) -> Response:
    """Queue a preset as it is: the button beside a table of the paper."""
    if submitting is None:
        return error_page(*_NO_FORM)
    preset = read_preset(name)
    try:
        made = submitting.create(preset.kind, preset.spec, f"preset-{secrets.token_urlsafe(12)}")
    except Refused as error:
        return error_page(422, "The preset cannot run here", str(error))
    place = "matches" if preset.kind == "match" else "sweeps"
    return RedirectResponse(f"/{place}/{made}", status_code=303)


def _changed(form: FormValues, action: str) -> FormValues:
    """Carry out a button; then move what the YAML says of a control into that control."""
    verb, _, index = action.partition("-")
    rows = [row for row in form.rows if row.get("field")]
    if verb == "remove" and index.isdigit():
        rows = [row for at, row in enumerate(form.rows) if at != int(index) and row.get("field")]
    added: list[dict[str, str]] = []
    if verb == "add":
        taken = {row["field"] for row in rows}
        free = next(name for name in VARIED if name not in taken)
        kind = "choice" if free == "optimizer" else "float"
        added = [{"field": free, "kind": kind, "log": "on" if kind == "float" else ""}]
    form = replace(form, rows=rows)
    try:
        stepped = form_of(spec_of(form))
    except UnreadableRest:
        # Kept as typed, so that it can be put right.
        stepped = form
    return replace(stepped, rows=[*stepped.rows, *added])


def _checked(submitting: Submitting, form: FormValues) -> Checked:
    try:
        return submitting.check(spec_of(form))
    except UnreadableRest as error:
        return Checked((FieldReason(path="rest", reason=str(error)),), None)


def _form_page(
    submitting: Submitting,
    form: FormValues,
    *,
    origin: str = "",
    preset: str = "",
    key: str = "",
    checked: Checked | None = None,
    status: int = 200,
) -> HTMLResponse:
    return page(
        "new_sweep.html",
        status,
        title="New sweep",
        section="sweeps",
        presets=[p for p in map(read_preset, preset_names()) if p.kind == "sweep"],
        preset=preset,
        origin=origin,
        key=key[:64] or secrets.token_urlsafe(12),
        groups=GROUPS,
        dataset_path=DATASET,
        datasets=submitting.datasets(),
        varied=VARIED,
        kind_cells=KIND_CELLS,
        form=form,
        oob=False,
        **_check_values(form, checked or _checked(submitting, form)),
    )


def _check_values(form: FormValues, checked: Checked) -> dict[str, Any]:
    """What ``part_check.html`` shows: reasons by control, the estimate, the whole spec."""
    places = [(reason_place(item["path"], form), item) for item in checked.refused]
    reasons: dict[str, list[str]] = {}
    for place, item in places:
        reasons.setdefault(place, []).append(item["reason"])
    try:
        whole = yaml_text(spec_of(form))
    except UnreadableRest:
        whole = ""
    return {
        "reasons": {place: "; ".join(texts) for place, texts in reasons.items()},
        "problems": [
            (control_id(place) if place else "", item["path"], item["reason"])
            for place, item in places
        ],
        "estimate": checked.estimate,
        "whole": whole,
        "reason_places": _places(form),
    }


def _places(form: FormValues) -> list[str]:
    """Every control that can hold a reason."""
    rows = [
        f"space.{index}.{cell}"
        for index, row in enumerate(form.rows)
        for cell in ("field", *KIND_CELLS.get(row.get("kind", ""), ()))
    ]
    return [*(field.path for group in GROUPS for field in group.fields), "space", *rows, "rest"]
