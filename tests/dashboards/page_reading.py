"""Reads a page as a test sees it: its tables as text, its addresses, its plots."""

from html.parser import HTMLParser

from starlette.testclient import TestClient

from dashboards.web.templating import CONTENT_SECURITY_POLICY
from tests.dashboards.conftest import Seeded


class Page(HTMLParser):
    """Tables of a page as text, and every address it holds."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.addresses: list[str] = []
        self.plots: dict[str, str] = {}
        self._rows: list[list[str]] | None = None
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        for name in ("href", "src", "action", "hx-get", "data-plot", "data-events", "data-action"):
            if name in values:
                self.addresses.append(values[name])
        if "data-plot" in values:
            self.plots[values["id"]] = values["data-plot"]
        if "table" in values.get("class", "").split():
            self._rows = self.tables.setdefault(values["aria-label"], [])
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None:
            self._rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False
        elif tag == "table":
            self._rows = None

    def handle_data(self, data: str) -> None:
        if self._rows and self._in_cell:
            words = f"{self._rows[-1][-1]} {data}".split()
            self._rows[-1][-1] = " ".join(words)


def open_page(client: TestClient, address: str, status: int = 200) -> Page:
    response = client.get(address)
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    return Page(response.text)


def every_page(seeded: Seeded) -> list[str]:
    return [
        "/",
        "/matches",
        f"/sweeps/{seeded.sweep}",
        f"/sweeps/{seeded.running}",
        f"/sweeps/{seeded.queued}",
        f"/matches/{seeded.match}",
        f"/sweeps/{seeded.sweep}/trials/0",
        f"/sweeps/{seeded.sweep}/trials/3",
        f"/sweeps/{seeded.running}/trials/12",
        f"/sweeps/{seeded.running}/trials/14",
        f"/sweeps/{seeded.match}/trials/0",
        f"/trials?sweep={seeded.sweep},{seeded.running}",
    ]
