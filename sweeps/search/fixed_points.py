"""The points of a spec whose sampler learns nothing, without a sweep around them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweeps.search.proposer import SweepProposer
from sweeps.search.protocol import Proposal
from sweeps.spec.sweep_spec import SweepSpec
from worker.report import Series


class _NoResults:
    """There are no trials to read."""

    def metrics(
        self, number: int, names: Sequence[str] | None = None, max_points: int = 1000
    ) -> Mapping[str, list[tuple[int, float]]]:
        return {}

    def series(self, number: int, name: str) -> list[Series]:
        return []


def fixed_points(spec: SweepSpec) -> Iterator[dict[str, Any]]:
    """Yield the params of each point that ``SweepProposer`` proposes, in its order."""
    proposer = SweepProposer(spec, _NoResults())
    last = -1
    while isinstance(proposal := proposer.next(), Proposal):
        if proposal.point != last:
            last = proposal.point
            yield proposal.params
