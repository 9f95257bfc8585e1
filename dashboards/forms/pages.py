"""The forms of new sweeps and matches: filled from presets or records, checked during typing."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.forms.fields import DATASET, KIND_CELLS
from dashboards.forms.shapes import MATCH, SWEEP, FormShape, offered_trainings, shape_of
from dashboards.forms.spec_form import (
    FormValues,
    UnreadableRest,
    form_of,
    reason_place,
    sent_form,
    spec_of,
    yaml_text,
)
from dashboards.web.error_pages import PageRoute, error_page
from dashboards.web.ports import Checked, Refused, Submitting
from dashboards.web.posted_form import SentDep, control_id
from dashboards.web.templating import page
from dashboards.wording.sweep_facts import StoreDep
from sweeps.spec.presets import preset_names, read_preset
from sweeps.spec.validation_messages import FieldReason
from sweeps.store.store import Store
from worker.config.trial_config import FieldError

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_NO_FORM = (404, "No form here", "These pages are read-only; submit the spec with ndsweep submit.")


def _provided(request: Request) -> Submitting | None:
    submitting: Submitting | None = request.state.submitting
    return submitting


SubmittingDep = Depends(_provided)


def _of_address(request: Request) -> FormShape:
    """The form that belongs to the address of a route below."""
    path: str = request.scope["route"].path
    return MATCH if path.startswith(MATCH.place) else SWEEP


def _asked_shape(request: Request, training: str = "") -> FormShape:
    """The form of the address, for the training of its query."""
    shape = _of_address(request)
    return shape_of(training) if shape is SWEEP else shape


def _sent_shape(request: Request, sent: dict[str, str] = SentDep) -> FormShape:
    """The form that was sent: it names its training."""
    return _asked_shape(request, sent.get("training", ""))


ShapeDep, SentShapeDep = Depends(_asked_shape), Depends(_sent_shape)


@router.get("/sweeps/new")
@router.get("/matches/new")
def new_spec(
    preset: str = "",
    source: str = "",
    shape: FormShape = ShapeDep,
    store: Store = StoreDep,
    submitting: Submitting | None = SubmittingDep,
) -> Response:
    """The form, with what an empty one begins with or filled from a preset or a recorded source.

    A source is the id of a sweep or match; a match's form is filled from matches alone.
    """
    if submitting is None:
        return error_page(*_NO_FORM)
    origin, spec = "", shape.starter
    if preset:
        found = read_preset(preset)
        if found.kind != shape.kind:
            other = MATCH if shape is SWEEP else SWEEP
            return RedirectResponse(f"{other.place}/new?preset={found.name}", status_code=307)
        spec, origin = found.spec, f"preset {preset}"
    elif source:
        recorded = store.get_sweep(source)
        shape = _of_spec(shape, recorded.spec)
        filled = shape.filled_from(recorded)
        if filled is None:
            return RedirectResponse(f"/sweeps/new?source={recorded.id}", status_code=307)
        spec, origin = filled, f"{recorded.kind} {recorded.name}"
    form = form_of(spec, shape.fields, varies=shape.varies)
    return _form_page(shape, submitting, form, origin=origin)


@router.post("/sweeps/new")
@router.post("/matches/new")
def change_or_create(
    request: Request,
    shape: FormShape = SentShapeDep,
    sent: dict[str, str] = SentDep,
    submitting: Submitting | None = SubmittingDep,
) -> Response:
    """Add or remove a varied field, move values of the YAML into controls, or queue the spec."""
    if submitting is None:
        return error_page(*_NO_FORM)
    form, action, key = sent_form(sent, shape.fields), sent.get("action", ""), sent.get("key", "")
    origin = sent.get("origin", "")
    if action != "create":
        shape, changed = _changed(shape, form, action)
        return _form_page(shape, submitting, changed, origin=origin, key=key)
    try:
        spec = spec_of(form, shape.fields)
        # The same form sent twice makes one sweep; an edited one makes another.
        seal = hashlib.sha256(json.dumps(spec, sort_keys=True, default=str).encode()).hexdigest()
        made = submitting.create(shape.kind, spec, f"form-{key[:64]}-{seal[:24]}")
    except UnreadableRest as error:
        reasons: tuple[FieldReason, ...] = (FieldReason(path="rest", reason=str(error)),)
    except Refused as error:
        reasons = error.reasons
    else:
        return _led_to(f"{shape.place}/{made}", request)
    refused = Checked(reasons, None)
    return _form_page(shape, submitting, form, origin=origin, key=key, refused=refused)


@router.post("/sweeps/validate")
@router.post("/matches/validate")
def check(
    shape: FormShape = SentShapeDep,
    sent: dict[str, str] = SentDep,
    submitting: Submitting | None = SubmittingDep,
) -> Response:
    """Show what the form's spec would do, and each refusal at its field. Creates nothing."""
    if submitting is None:
        return error_page(*_NO_FORM)
    form = sent_form(sent, shape.fields)
    checked = _checked(shape, submitting, form)
    return page("form/check.html", **_check_values(shape, form, checked), oob=True)


@router.post("/presets/{name}/submit")
def submit_preset(name: str, submitting: Submitting | None = SubmittingDep) -> Response:
    """Queue a preset unchanged: the button beside a table of the paper."""
    if submitting is None:
        return error_page(*_NO_FORM)
    preset = read_preset(name)
    try:
        made = submitting.create(preset.kind, preset.spec, f"preset-{secrets.token_urlsafe(12)}")
    except Refused as error:
        return error_page(422, "The preset cannot run here", str(error))
    place = "matches" if preset.kind == "match" else "sweeps"
    return RedirectResponse(f"/{place}/{made}", status_code=303)


def _led_to(address: str, request: Request) -> Response:
    """Redirect to the new sweep or match; a script reads the address from a header."""
    if "hx-request" in request.headers:
        return Response(headers={"HX-Redirect": address})
    return RedirectResponse(address, status_code=303)


def _of_spec(shape: FormShape, spec: Mapping[str, Any]) -> FormShape:
    """The form of a spec's training; where there is none, the same form refuses the training."""
    if not shape.varies:
        return shape
    try:
        return shape_of(str(spec.get("training") or ""))
    except FieldError:
        return shape


def _changed(shape: FormShape, form: FormValues, action: str) -> tuple[FormShape, FormValues]:
    """Carry out a button, then move values of the YAML that have a control into it.

    The YAML may name another training, whose form then takes the place of this one.
    """
    verb, _, index = action.partition("-")
    rows = [row for row in form.rows if row.get("field")]
    if verb == "remove" and index.isdigit():
        rows = [row for at, row in enumerate(form.rows) if at != int(index) and row.get("field")]
    form = replace(form, rows=[shape.fitted(row) for row in rows])
    try:
        spec = spec_of(form, shape.fields)
        shape = _of_spec(shape, spec)
        form = form_of(spec, shape.fields, varies=shape.varies)
    except UnreadableRest:
        pass  # Kept as typed, so that the user can correct it.
    if verb == "add":
        form = replace(form, rows=[*form.rows, shape.new_row([row["field"] for row in form.rows])])
    return shape, form


def _checked(shape: FormShape, submitting: Submitting, form: FormValues) -> Checked:
    """What the spec would do. One that has no name yet is checked under another."""
    try:
        spec = spec_of(form, shape.fields)
        return submitting.check(shape.kind, {**spec, "name": spec.get("name") or "unnamed"})
    except UnreadableRest as error:
        return Checked((FieldReason(path="rest", reason=str(error)),), None)


def _form_page(
    shape: FormShape,
    submitting: Submitting,
    form: FormValues,
    *,
    origin: str = "",
    key: str = "",
    refused: Checked | None = None,
) -> HTMLResponse:
    """The whole form; ``refused`` is the answer to its submission."""
    checked = refused or _checked(shape, submitting, form)
    return page(
        "new_spec.html",
        422 if refused else 200,
        title=f"New {shape.kind}",
        section=shape.place.removeprefix("/"),
        shape=shape,
        presets=[
            preset
            for preset in map(read_preset, preset_names())
            if preset.kind == shape.kind and not shape.own
        ],
        trainings=offered_trainings(shape.training) if shape.varies else [],
        origin=origin,
        key=key[:64] or secrets.token_urlsafe(12),
        dataset_path=DATASET,
        datasets=submitting.datasets(),
        varied=shape.varied,
        kind_cells=KIND_CELLS,
        form=form,
        oob=False,
        **_check_values(shape, form, checked, is_submitted=refused is not None),
    )


def _check_values(
    shape: FormShape, form: FormValues, checked: Checked, *, is_submitted: bool = False
) -> dict[str, Any]:
    """What ``form/check.html`` shows: reasons by control, the estimate, the whole spec.

    A control that is still empty is no mistake before the form was submitted: it is listed among
    what is to be filled in.
    """
    places = [
        (reason_place(item["path"], form, shape.fields, varies=shape.varies), item)
        for item in checked.refused
    ]
    missing: list[tuple[str, str, str]] = []
    if not is_submitted:
        empty = [place in shape.fields and place not in form.fields for place, _ in places]
        missing = [
            (control_id(place), item["path"], item["reason"])
            for (place, item), is_empty in zip(places, empty, strict=True)
            if is_empty
        ]
        places = [pair for pair, is_empty in zip(places, empty, strict=True) if not is_empty]
        if not form.fields.get("name") and not _named_by(form):
            missing.insert(0, (control_id("name"), "name", f"what to call the {shape.kind}"))
    reasons: dict[str, list[str]] = {}
    for place, item in places:
        reasons.setdefault(place, []).append(item["reason"])
    try:
        whole = yaml_text(spec_of(form, shape.fields))
    except UnreadableRest:
        whole = ""
    return {
        "reasons": {place: "; ".join(texts) for place, texts in reasons.items()},
        "problems": [
            (control_id(place) if place else "", item["path"], item["reason"])
            for place, item in places
        ],
        "missing": missing,
        "estimate": checked.estimate,
        "whole": whole,
        "reason_places": _places(shape, form),
    }


def _named_by(form: FormValues) -> bool:
    """Whether the YAML of the form has the name, which moves into its control at the next step."""
    try:
        return bool(spec_of(form, {}).get("name"))
    except UnreadableRest:
        return False


def _places(shape: FormShape, form: FormValues) -> list[str]:
    """Every control that can hold a reason."""
    rows = [
        f"space.{index}.{cell}"
        for index, row in enumerate(form.rows)
        for cell in ("field", *KIND_CELLS.get(row.get("kind", ""), ()))
    ]
    return [*shape.fields, *(["space"] if shape.varies else []), *rows, "rest"]
