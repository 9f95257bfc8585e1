"""What checking a large space at submission takes, and what it still finds."""

from typing import Any

import pytest
from pydantic import ValidationError

from sweeps import spec_checks
from tests.sweeps.sweep_cases import sweep_spec


def test_a_grid_of_a_million_points_is_checked_at_the_ends_of_each_pair_and_at_every_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[dict[str, Any]] = []
    check = spec_checks._try

    def spy(*arguments: Any) -> None:
        tried.append({**arguments[3], **arguments[4]})
        check(*arguments)

    monkeypatch.setattr(spec_checks, "_try", spy)
    space: dict[str, Any] = {
        name: {"kind": "choice", "values": [low * (1 + i / 100) for i in range(100)]}
        for name, low in (("alpha_v", 0.01), ("alpha_s", 0.001), ("gamma_c", 1.0))
    }
    small = sweep_spec(space=space, sampler="grid", num_points=1000)

    assert small.num_trials() == 1000
    assert len(tried) < 400
    assert {data["alpha_v"] for data in tried} == set(space["alpha_v"]["values"])
    space["alpha_s"]["values"][50] = -1.0
    with pytest.raises(ValidationError, match="alpha_s"):
        sweep_spec(space=space, sampler="grid", num_points=1000)
