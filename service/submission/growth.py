"""Changes of a sweep that exists: extend, confirm, label, delete."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from service.contract.errors import ApiError, refused_fields
from service.contract.inputs import Labels
from service.settings import Settings
from service.submission.admission import num_trials, refuse_what_cannot_run, stored_spec
from sweeps.errors import IdempotencyConflict, SweepStateConflict
from sweeps.records import Sweep
from sweeps.retention.deletion import remove
from sweeps.spec.confirmation import (
    ConfirmSpec,
    best_points,
    confirmation,
    first_fresh_seed,
    key_of,
)
from sweeps.spec.extension import Extension, extended
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.commands.growth import confirmation_key
from sweeps.store.store import Store

Made = TypeVar("Made")


def extend(store: Store, settings: Settings, sweep_id: str, asked: Extension) -> Sweep:
    """Give a sweep more points, seeds or budget."""
    sweep = store.get_sweep(sweep_id)
    if sweep.kind != "sweep":
        raise SweepStateConflict(f"cannot extend {sweep_id}: a match decides its trials itself")
    # The package of its training may be gone.
    spec = _or_422(lambda: SweepSpec.model_validate(sweep.spec))
    larger = _or_422(lambda: extended(spec, asked))
    values = stored_spec(larger)
    if values == stored_spec(spec):
        return sweep
    refuse_what_cannot_run(larger, store, settings)
    return store.extend(sweep_id, values, num_trials=num_trials(larger), was=sweep.spec)


def confirm(store: Store, settings: Settings, sweep_id: str, asked: ConfirmSpec) -> Sweep:
    """Queue a sweep that trains the best points again, or find the one that does."""
    sweep = store.get_sweep(sweep_id)
    points = best_points(sweep, store.all_points(sweep_id), asked)
    key = confirmation_key(sweep_id, key_of(asked, points))
    earlier = store.sweep_of_key(key)
    if earlier is not None:
        return earlier
    seed = first_fresh_seed(sweep, store.confirmations(sweep_id))
    spec = _or_422(lambda: confirmation(sweep, points, asked, seed))
    refuse_what_cannot_run(spec, store, settings)
    try:
        return store.create_sweep(
            "sweep",
            stored_spec(spec),
            name=spec.name,
            tags=spec.tags,
            notes=spec.notes,
            num_trials=num_trials(spec),
            idempotency_key=key,
        )[0]
    except IdempotencyConflict:
        # The same question at the same moment; between the two another seed came first.
        found = store.sweep_of_key(key)
        if found is None:
            raise
        return found


def delete(store: Store, home: Path, sweep_id: str) -> Sweep | None:
    """Remove a sweep in whatever state, with its logs and checkpoints.

    Returns the sweep where its trials have to stop first: it is marked, and its runner removes it
    when they have. None where it is gone.
    """
    sweep = store.request(sweep_id, "delete")
    if not sweep.state.is_finished():
        return sweep
    remove(store, home, sweep_id)
    return None


def _or_422(make: Callable[[], Made]) -> Made:
    """What ``make`` returns; its refusals as answers."""
    try:
        return make()
    except ValidationError as error:
        fields = refused_fields(error.errors())
        detail = f"{fields[0].path}: {fields[0].reason}"
        raise ApiError(422, "ValidationError", detail, fields) from error


def label(store: Store, sweep_id: str, labels: Labels) -> Sweep:
    """Replace a sweep's tags or notes; what is None stays. Raises SweepNotFound."""
    sweep = store.get_sweep(sweep_id)
    if labels.tags is not None:
        sweep = store.set_tags(sweep_id, labels.tags)
    if labels.notes is not None:
        sweep = store.set_notes(sweep_id, labels.notes)
    return sweep
