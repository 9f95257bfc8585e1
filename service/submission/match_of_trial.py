"""Makes a match out of a trial that is over: its settings, and what it recorded, as the source."""

from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from service.contract.errors import ApiError
from service.contract.outputs import FieldOut
from sweeps.match.arms import Arm
from sweeps.match.match_spec import MatchSpec
from sweeps.match.recorded_curve import MOST_RECORDS
from sweeps.match.runs import EFFECTIVE_LR
from sweeps.records import Trial, TrialState
from sweeps.spec.model import SpecModel, SweepRef
from sweeps.spec.validation_messages import explain
from sweeps.store.store import Store
from worker.config.train_config import FieldError

#: Fields of a MatchSpec that the trial decides.
_OF_THE_TRIAL = frozenset({"base", "source"})


class TrialRef(SpecModel):
    """A trial of a sweep or match in this service."""

    sweep: SweepRef = Field(description="Id of its sweep or match.")
    trial: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = Field(
        description="Its number, from 0."
    )


class MatchOfTrial(SpecModel):
    """A match whose source is a finished trial; ``match`` holds the other fields of a match."""

    source: TrialRef = Field(description="The trial: it gives the match its base and its source.")
    match: dict[str, Any] = Field(
        description="A MatchSpec without base and source: name, target, criterion, compare, …"
    )

    @model_validator(mode="after")
    def _trial_decides(self) -> Self:
        for name in sorted(_OF_THE_TRIAL & self.match.keys()):
            raise FieldError(f"match.{name}", f"match.{name} comes from the trial; remove it")
        return self


def match_of_trial(asked: MatchOfTrial, store: Store) -> MatchSpec:
    """The match that the trial's settings and records make.

    A trial that recorded every step of its run (those of matches do) is not trained again. Raises
    ApiError 409 for a trial that is not complete, 422 for one that makes no match.
    """
    trial = store.trial(asked.source.sweep, asked.source.trial)
    if trial.state is not TrialState.COMPLETE:
        raise ApiError(
            409,
            "TrialNotComplete",
            f"trial {trial.number} of {trial.sweep_id} is {trial.state.value}: a match needs a "
            "source that ran to its end",
        )
    base, source = _split(trial)
    curve = _curve(store, trial)
    if curve is not None:
        source["curve"] = curve
    try:
        return MatchSpec.model_validate({**asked.match, "base": base, "source": source})
    except ValidationError as error:
        fields = [FieldOut(**one) for one in explain(error)]
        raise ApiError(422, "TrialMakesNoMatch", fields[0].reason, fields) from error


def _split(trial: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
    """The trial's config as what both sides share, and what belongs to its optimizer."""
    known = {name: value for name, value in trial.config.items() if value is not None}
    source = {name: known.pop(name) for name in Arm.model_fields if name in known}
    own = [name for name in known if name.startswith("optimizer.")]
    source |= {name: known.pop(name) for name in own}
    known.pop("epochs", None)
    known["steps"] = trial.num_steps or known.get("steps")
    known.pop("follow", None)
    return known, source


def _curve(store: Store, trial: Trial) -> dict[str, Any] | None:
    """Its effective learning rate, if it was recorded from its first step to its last."""
    pieces = store.series(trial.sweep_id, trial.number, EFFECTIVE_LR)
    if len(pieces) != 1 or pieces[0].start != 0:
        return None
    (piece,) = pieces
    is_whole = len(piece.values) * piece.every >= (trial.num_steps or 0)
    if not is_whole or len(piece.values) > MOST_RECORDS:
        return None
    return {"every": piece.every, "values": piece.values}
