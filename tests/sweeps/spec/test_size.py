"""What checking a large space at submission takes, and what it still finds."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweeps.batch.plan import BatchRefused, read_specs
from sweeps.search.proposer import SweepProposer
from sweeps.search.protocol import Proposal
from sweeps.spec import checks as spec_checks
from sweeps.spec.branches import Branch
from sweeps.spec.domains import Choice
from tests.sweeps.sweep_cases import Curves, sweep_spec

#: A thousand values of each of two rates: a million points.
MILLION: dict[str, Any] = {
    name: {"kind": "float", "low": 0.001, "high": 1.0, "step": 0.001}
    for name in ("alpha_v", "alpha_s")
}


def test_a_grid_of_a_million_points_is_checked_at_the_ends_of_each_pair_and_at_every_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[dict[str, Any]] = []
    resolved: list[bool] = []
    check = spec_checks._try

    def spy(*arguments: Any, resolve: bool) -> None:
        tried.append({**arguments[3], **arguments[4]})
        resolved.append(resolve)
        check(*arguments, resolve=resolve)

    monkeypatch.setattr(spec_checks, "_try", spy)
    space: dict[str, Any] = {
        name: {"kind": "choice", "values": [low * (1 + i / 100) for i in range(100)]}
        for name, low in (("alpha_v", 0.01), ("alpha_s", 0.001), ("gamma_c", 1.0))
    }
    small = sweep_spec(space=space, sampler="grid", num_points=1000)

    assert small.num_trials() == 1000
    assert len(tried) < 400
    assert 6 <= sum(resolved) < 10  # both ends of each field
    assert {data["alpha_v"] for data in tried} == set(space["alpha_v"]["values"])
    space["alpha_s"]["values"][50] = -1.0
    with pytest.raises(ValidationError, match="alpha_s"):
        sweep_spec(space=space, sampler="grid", num_points=1000)


def test_every_value_of_a_long_choice_is_tried_once_and_its_ends_with_the_defaults_too() -> None:
    values = [0.01 * (1 + i) for i in range(20)]
    choice = Choice(kind="choice", values=[*values, None, True])
    branch = Branch(0, fixed={}, free={"alpha_v": choice})

    tried = [(change["alpha_v"], full) for change, full in spec_checks._variants(branch) if change]

    assert sorted(map(repr, tried)) == sorted(
        repr((value, value in {values[0], values[-1], None, True})) for value in choice.values
    )


def test_a_driver_asks_for_the_points_of_a_grid_of_a_million_as_it_needs_them() -> None:
    spec = sweep_spec(space=MILLION, sampler="grid", num_points=None)
    SweepProposer(spec, Curves()).next()  # what is loaded once is nobody's grid
    tracemalloc.start()

    proposer = SweepProposer(spec, Curves())
    proposed = [proposer.next() for _ in range(100)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert spec.num_trials() == 1_000_000
    assert all(isinstance(one, Proposal) for one in proposed)
    assert peak < 2_000_000


def test_a_batch_that_could_not_hold_its_plan_is_refused(tmp_path: Path) -> None:
    values = sweep_spec(space=MILLION, sampler="grid", num_points=None).model_dump(mode="json")
    base = {"dataset": "digits", "depth": 10, "widen_factor": 1, "optimizer": "ndadam"}
    path = tmp_path / "huge.json"
    path.write_text(json.dumps(values | {"base": base}))

    with pytest.raises(BatchRefused, match="may have 100,000, this spec has 1,000,000"):
        read_specs([path])
