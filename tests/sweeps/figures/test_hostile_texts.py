"""Texts of people in figures are shown, and neither run, load nor draw formulas."""

import json
import re
from pathlib import Path

import pytest

from sweeps.figures.chart import STEPS, Axis, Chart, Line, Marks
from sweeps.figures.matplotlib_files import drawing, rows_drawing
from sweeps.figures.plotly_values import figure, figure_of
from sweeps.mlflow_mirror.figures import interactive_page

HOSTILE = [
    "<img src=x onerror=\"window.hit = 'img'\">",
    "<a href=\"javascript:window.hit = 'a'\">click</a>",
    "</script><script>window.hit = 'script'</script>",
    "<!--<script>",
    "<span style='font-size:500px'>big</span>",
    "<b onclick='window.hit = 1'>b</b>",
    "costs $5 and $\\frac{",
    "a < b > c & d",
]


def _chart(text: str) -> Chart:
    x = Axis(text, words=(text, "other"))
    lines = [
        Line(text, "#123456", [1, 2], [0.1, 0.2], [0.0, 0.1], [0.2, 0.3], band_name=text),
        Marks(text, "#123456", [1, 2], [0.1, 0.2]),
    ]
    rows = [Marks(text, "#123456", [text, "other"], [0.1, 0.2])]
    is_words = len(text) % 2 == 0
    return Chart("a", x if is_words else STEPS, Axis(text), rows if is_words else lines, text)


@pytest.mark.parametrize("text", HOSTILE)
def test_plotly_gets_no_tag_but_ours(text: str) -> None:
    chart = _chart(text)
    hover = [{"hovertemplate": f"{text}<br>%{{y}}"} for _ in chart.series]
    values = json.dumps(figure_of(chart, hover=hover))

    assert set(re.findall(r"</?[a-z!]+", values)) <= {
        "<sup",
        "</sup",
        "<sub",
        "</sub",
        "<br",
        "</b",
    }


def test_markup_of_ours_stays_and_numbers_are_not_touched() -> None:
    found = figure(
        [{"x": [1.5, None], "customdata": [["<i>a</i>", 1]], "hovertemplate": "a<extra></extra>"}],
        x={"title": "α<sup>v</sup>"},
        y={"title": "λ<sub>C</sub><br>b"},
        name="n",
    )

    assert found["data"] == [
        {"x": [1.5, None], "customdata": [["<i>a</i>", 1]], "hovertemplate": "a<extra></extra>"}
    ]
    assert found["layout"]["xaxis"]["title"]["text"] == "α<sup>v</sup>"
    assert found["layout"]["yaxis"]["title"]["text"] == "λ<sub>C</sub><br>b"


@pytest.mark.parametrize("text", HOSTILE)
def test_matplotlib_draws_every_text_as_text(text: str) -> None:
    chart = _chart(text)
    drawn = (rows_drawing if chart.x.words else drawing)(chart)

    assert drawn.svg
    assert "<script" not in drawn.svg
    assert "<img" not in drawn.svg


@pytest.mark.parametrize("text", HOSTILE)
def test_the_page_for_mlflow_has_one_script_of_its_own(text: str) -> None:
    page = interactive_page(text, [_chart(text)])
    own = page[page.rindex("<script>") :]

    assert "<img" not in own
    assert own.count("</script>") == 1


@pytest.mark.browser
def test_the_page_for_mlflow_runs_nothing_of_a_name(tmp_path: Path) -> None:
    from tests.dashboards.browser.serving import chromium

    path = tmp_path / "interactive.html"
    text = " ".join(HOSTILE)
    path.write_text(interactive_page(text, [_chart(one) for one in [text, *HOSTILE]]), "utf-8")
    with chromium() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("#figures .main-svg")
        assert page.evaluate("window.hit") is None
        assert page.locator("#figures img, #figures a[href], h1 img").count() == 0
        assert page.locator("h1").inner_text().startswith("<img src=x")
        assert [url for url in asked if not url.startswith("file:")] == []
