"""The list of sweeps and the list of matches: one page of records with what a row shows."""

from dataclasses import dataclass
from typing import Any

from dashboards.sweep_pages.overview import cost_text
from dashboards.sweep_pages.results import best_text, standing_of_best
from dashboards.web.links import TableLinks, pager
from dashboards.wording.formatting import percent
from dashboards.wording.sweep_facts import Progress, objective_quantity, progress
from sweeps.match.result import matched_rate
from sweeps.records import Kind, Sweep, SweepState
from sweeps.store.store import Store

SORTS = (
    ("-created_at", "newest first"),
    ("created_at", "oldest first"),
    ("name", "name"),
    ("state", "state"),
    ("-finished_at", "last finished"),
)


@dataclass(frozen=True)
class ListQuery:
    """Filters of a list. "" means no filter, the default order, the first page."""

    state: str = ""
    tag: str = ""
    owner: str = ""
    search: str = ""
    sort: str = "-created_at"
    cursor: str = ""

    def is_filtered(self) -> bool:
        return bool(self.state or self.tag or self.owner or self.search)

    def as_query(self) -> dict[str, str]:
        sort = "" if self.sort == "-created_at" else self.sort
        return {
            "state": self.state,
            "tag": self.tag,
            "owner": self.owner,
            "search": self.search,
            "sort": sort,
            "cursor": self.cursor,
        }


@dataclass(frozen=True)
class Best:
    """The best point so far, in the words of the list."""

    text: str
    metric: str
    n: int
    #: Of ``standing_of_best``, or "confirmed" once fresh seeds agree.
    standing: str


@dataclass(frozen=True)
class SweepRow:
    """One sweep of the list."""

    sweep: Sweep
    progress: Progress
    best: Best | None
    cost: str


@dataclass(frozen=True)
class MatchRow:
    """One match of the list."""

    sweep: Sweep
    verdict: str
    rate_name: str
    rate: float | None
    criterion: str
    inside: str
    progress: str


def sweep_list(store: Store, query: ListQuery) -> dict[str, Any]:
    """Values for the templates of the sweep list."""
    values, found = _listing(store, "sweep", query, "/", "/parts/sweeps")
    return {**values, "sweeps": [_sweep_row(store, sweep) for sweep in found]}


def match_list(store: Store, query: ListQuery) -> dict[str, Any]:
    """Values for the templates of the match list."""
    values, found = _listing(store, "match", query, "/matches", "/parts/matches")
    return {**values, "sweeps": [_match_row(sweep) for sweep in found]}


def _listing(
    store: Store, kind: Kind, query: ListQuery, address: str, part: str
) -> tuple[dict[str, Any], list[Sweep]]:
    found = store.list_sweeps(
        kind=kind,
        state=query.state or None,
        tag=query.tag or None,
        owner=query.owner or None,
        search=query.search or None,
        sort=query.sort or "-created_at",
        cursor=query.cursor or None,
    )
    links = TableLinks(address, "", part, query.as_query())
    values = {
        "query": query,
        "states": list(SweepState),
        "sorts": SORTS,
        "filtered": query.is_filtered(),
        "tags": sorted({tag for sweep in found.items for tag in sweep.tags}),
        "owners": sorted({sweep.owner for sweep in found.items if sweep.owner}),
        "part_address": links.part_with(),
        "pager": pager(links, "", query.cursor, found.next, "50 a page"),
    }
    return values, found.items


def _sweep_row(store: Store, sweep: Sweep) -> SweepRow:
    best = None
    if sweep.best is not None:
        name = objective_quantity(sweep).name
        text = best_text(sweep, sweep.best)
        best = Best(text, name, sweep.best["n"], _standing(store, sweep))
    cost = cost_text(sweep) if sweep.trial_seconds else "–"
    return SweepRow(sweep, progress(sweep), best, cost)


def _standing(store: Store, sweep: Sweep) -> str:
    standing = standing_of_best(sweep)
    if standing != "selected" or not sweep.state.is_finished():
        return standing
    done = any(one.state == SweepState.COMPLETE for one in store.confirmations(sweep.id))
    return "confirmed" if done else "selected"


def _match_row(sweep: Sweep) -> MatchRow:
    result = sweep.result or {}
    verdict = result.get("verdict") or {}
    done = result.get("progress")
    stage = "" if result.get("stage") in (None, "done") else f", {result['stage']}"
    return MatchRow(
        sweep=sweep,
        verdict=str(verdict.get("state", "")),
        rate_name=str(result.get("rate_name", "alpha_v")),
        rate=matched_rate(sweep) if verdict else None,
        criterion=str(result.get("criterion") or sweep.criterion or "–").replace("_", " "),
        inside=percent(verdict.get("fraction_inside")),
        progress=f"{percent(done)}{stage}",
    )
