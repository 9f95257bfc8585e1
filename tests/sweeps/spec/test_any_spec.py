"""Any spec is either refused with reasons, or every point of it can be trained."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sweeps.spec.sweep_spec import SweepSpec, explain
from sweeps.spec.validation_messages import FieldReason
from tests.sweeps.spec.spec_cases import choice, fields, real, whole

#: Values of fields that conditions may name, so that rules over two fields are met often.
CHOICES: dict[str, list[Any]] = {
    "optimizer": ["sgd", "adam", "ndadam"],
    "nesterov": [True, False],
    "decay_on": ["vectors", "scalars", "all"],
    "bn_scale": ["trainable", "fixed", "frozen"],
}
#: Domains of the other fields; about one in four has a value that some rule refuses.
DOMAINS: dict[str, list[dict[str, Any]]] = {
    "lr": [real(1e-3, 0.5, log=True), choice(0.1, 1), real(-0.5, 0.5)],
    "alpha_v": [real(0.0, 0.2), real(0.01, 0.05, step=0.01), choice(0.05, "x")],
    "alpha_s": [real(1e-4, 0.1, log=True), choice(None, 0.01)],
    "momentum": [real(0.0, 0.9), real(0.5, 0.99), choice(0.9, 1.0), choice(0, 0.9)],
    "betas": [choice([0.9, 0.99], [0.9, 0.999]), choice([0.9, 1.0])],
    "gamma_c": [choice(None, 1.0, 2.5), real(0.5, 5.0, log=True), real(0.0, 1.0)],
    "depth": [choice(10, 16), whole(10, 22, step=6), whole(10, 22), whole(10, 22, step=3)],
    "widen_factor": [real(1.0, 2.0, step=0.0625), choice(1, 7.5), real(1.0, 2.0)],
    "batch_size": [whole(1, 512, log=True), whole(16, 64, step=16)],
    "steps": [whole(10, 90), choice(None, 50)],
    "lr_schedule": [choice("cosine", "constant", [[0, 1.0], [9, 0.5]]), choice([[5, 1.0], [5, 2]])],
    "flip": [choice(True, False), choice(0, 1)],
}
#: The condition that each of these fields needs where the optimizer varies.
READ_BY: dict[str, list[str]] = {
    "lr": ["sgd", "adam"],
    "momentum": ["sgd"],
    "nesterov": ["sgd"],
    "alpha_v": ["ndadam"],
    "alpha_s": ["ndadam"],
    "betas": ["adam", "ndadam"],
}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    space: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(CHOICES)), max_size=3, unique=True)):
        known = CHOICES[name][: None if draw(st.integers(0, 7)) == 0 else 2]
        space[name] = choice(*draw(st.lists(st.sampled_from(known), min_size=1, unique=True)))
    others = st.lists(st.sampled_from(sorted(DOMAINS)), min_size=not space, max_size=3, unique=True)
    for name in draw(others):
        space[name] = dict(draw(st.sampled_from(DOMAINS[name])))
    for name in space:
        when = draw(conditions(name, space))
        if when:
            space[name]["when"] = when
    optimizer = draw(st.sampled_from(["sgd", "ndadam"]))
    return fields(base={"optimizer": optimizer}, space=space)


@st.composite
def conditions(draw: st.DrawFn, name: str, space: dict[str, Any]) -> dict[str, list[Any]]:
    """Mostly the condition that makes sense, at times any."""
    optimizers = space.get("optimizer", {}).get("values", [])
    sensible = [o for o in optimizers if o in READ_BY.get(name, [])]
    if sensible and draw(st.integers(0, 5)):
        return {"optimizer": sensible}
    others = [other for other in CHOICES if other in space and other != name]
    if not others or draw(st.integers(0, 3)):
        return {}
    other = draw(st.sampled_from(others))
    return {other: draw(st.lists(st.sampled_from(space[other]["values"]), min_size=1, unique=True))}


def some_points(draw: st.DrawFn, spec: SweepSpec) -> list[dict[str, Any]]:
    """A point of each branch, drawn anywhere in its domains."""
    points = []
    for branch in spec.branches():
        point = dict(branch.fixed)
        for name, domain in branch.free.items():
            size = domain.size()
            if size is not None:
                point[name] = domain.value(draw(st.integers(0, size - 1)))
            else:
                assert domain.kind == "float"
                point[name] = draw(st.floats(domain.low, domain.high))
        points.append(point)
    return points


def accepted_or_refused(raw: dict[str, Any]) -> tuple[SweepSpec | None, list[FieldReason]]:
    """The spec, or why there is none."""
    try:
        return SweepSpec.model_validate(raw), []
    except ValidationError as error:
        return None, explain(error)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_spec_is_refused_or_every_point_of_it_can_be_trained(data: st.DataObject) -> None:
    spec, refused = accepted_or_refused(data.draw(specs()))

    assert all(item["path"] and item["reason"] for item in refused)
    event("refused" if spec is None else "accepted")
    if spec is None:
        return
    for _ in range(5):
        for point in data.draw(st.composite(some_points)(spec)):
            config = spec.config(point, seed=spec.base.seed)
            assert config.resolved().stored()["seed"] == spec.base.seed
            assert all(
                domain.holds(point[name]) for name, domain in spec.space.items() if name in point
            )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(SweepSpec.model_fields)), json_values)
def test_any_json_in_any_field_is_accepted_or_explained(name: str, value: Any) -> None:
    _, refused = accepted_or_refused(fields(**{name: value}))

    assert all(len(item["reason"]) < 1000 for item in refused)
