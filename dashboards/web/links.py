"""Addresses of tables: each sort, filter and page is a plain link, so it works without script."""

from dataclasses import dataclass
from urllib.parse import urlencode


@dataclass(frozen=True)
class TableLinks:
    """Addresses of one table, as a whole page and as the part that htmx swaps in."""

    #: Page that holds the table, with the fragment to jump to.
    page: str
    anchor: str
    #: Address of the part alone.
    part: str
    #: What the table is filtered and sorted by, without empty values.
    query: dict[str, str]
    #: Name of the query parameter that holds the cursor.
    cursor_key: str = "cursor"

    def page_with(self, **changes: str | None) -> str:
        return _address(self.page, self._changed(changes)) + self.anchor

    def part_with(self, **changes: str | None) -> str:
        return _address(self.part, self._changed(changes))

    def _changed(self, changes: dict[str, str | None]) -> dict[str, str]:
        merged = {**self.query, **changes}
        return {key: value for key, value in merged.items() if value}


@dataclass(frozen=True)
class Pager:
    """Links to the first and the next page of a table; None if there is none."""

    first: str | None
    next: str | None
    first_part: str | None
    next_part: str | None
    #: Id of the element that a page replaces, "" for a whole page load.
    part: str
    words: str


def pager(links: TableLinks, part: str, cursor: str | None, after: str | None, words: str) -> Pager:
    """Build the pager of a listing at ``cursor`` whose next page begins at ``after``."""
    return Pager(
        first=links.page_with(**{links.cursor_key: None}) if cursor else None,
        next=links.page_with(**{links.cursor_key: after}) if after else None,
        first_part=links.part_with(**{links.cursor_key: None}) if cursor else None,
        next_part=links.part_with(**{links.cursor_key: after}) if after else None,
        part=part,
        words=words,
    )


def _address(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def up_to_sort(links: TableLinks, path: str, key: str) -> str:
    """The address up to the sort key, which the template appends; a new order starts over."""
    kept = {k: v for k, v in links.query.items() if v and k not in (key, links.cursor_key)}
    address = _address(path, kept)
    return f"{address}{'&' if kept else '?'}{key}="
