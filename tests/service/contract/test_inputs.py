"""What reading a query string takes, on the loop that answers everybody."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.contract.errors import ApiError
from service.contract.inputs import parameters_once

MANY = 13_000


class _Name(str):
    """A name that counts how often one is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


@pytest.mark.parametrize("names", ["all different", "all the same"])
def test_each_of_many_parameters_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    monkeypatch.setattr(_Name, "compared", 0)
    is_repeated = names == "all the same"
    given = [(_Name("limit" if is_repeated else f"p{n}"), "1") for n in range(MANY)]
    request = SimpleNamespace(
        query_params=SimpleNamespace(multi_items=lambda: given),
        scope={"route": SimpleNamespace(dependant=SimpleNamespace(query_params=["limit"]))},
    )
    asked = parameters_once(cast("Any", request))

    if is_repeated:
        with pytest.raises(ApiError, match="must be given once, got it 13000 times"):
            asyncio.run(asked)
    else:
        asyncio.run(asked)  # who takes what is the route's to say

    assert _Name.compared < 3 * MANY
