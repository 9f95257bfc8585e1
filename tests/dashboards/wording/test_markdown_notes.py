"""Notes are Markdown, and whatever somebody writes in them, a page stays what it is."""

import re

import pytest
from starlette.testclient import TestClient

from dashboards.report.blocks import Document, Heading, Notes
from dashboards.report.document import to_html, to_markdown
from dashboards.report.latex import notes_latex
from dashboards.wording.markdown_notes import markdown
from sweeps.store.store import Store
from tests.dashboards import seeding


def test_notes_are_rendered() -> None:
    text = "A **small** sweep\nof `alpha_v`.\n\n- one\n- two\n\n| a |\n|---|\n| 1 |"

    found = markdown(text)

    assert "<p>A <strong>small</strong> sweep<br />\nof <code>alpha_v</code>.</p>" in found
    assert "<li>one</li>" in found
    assert "<td>1</td>" in found


def test_headings_stand_below_those_of_the_page() -> None:
    assert markdown("# Why\n\n###### Small") == "<h3>Why</h3>\n<h6>Small</h6>\n"


def test_links_lead_to_web_addresses_and_tell_them_nothing() -> None:
    found = markdown("[paper](https://arxiv.org/abs/1709.04546)")

    assert found == (
        '<p><a href="https://arxiv.org/abs/1709.04546" rel="noopener noreferrer nofollow">'
        "paper</a></p>\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '<a href="http://a.b" onclick="x()">a</a>',
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt&#58;alert(1))",
        "[a](data:text/html;base64,PHNjcmlwdD4=)",
        "[a](vbscript:x)",
        "[a](//other.host/x)",
        "[a](/sweeps/abc/delete)",
        "[a](http:evil)",
        "[a](http://[::1)",
        "![a](http://other.host/pixel.png)",
        "<javascript:alert(1)>",
        "[a]\n\n[a]: javascript:alert(1)",
        '[a](http://a.b"onmouseover="x())',
        "```<script>\nx\n```",
        "| <b>a</b> |\n|---|\n| [x](javascript:y) |",
    ],
)
def test_nothing_in_notes_runs_loads_or_posts(text: str) -> None:
    found = markdown(text)

    tags = re.findall(r"<([^>]*)>", found)
    assert not [tag for tag in tags if re.match(r"(script|img|b\b|iframe|form)", tag)]
    assert not [tag for tag in tags if re.search(r"\son\w+\s*=", tag)]
    for address in re.findall(r'href="([^"]*)"', found):
        assert re.match(r"https?://", address)


@pytest.mark.parametrize("path", ["sweeps", "matches"])
def test_pages_show_notes_rendered_and_forms_show_them_as_written(
    empty_store: Store, empty_client: TestClient, path: str
) -> None:
    sweep_id = (
        seeding.create(empty_store, "noted")
        if path == "sweeps"
        else empty_store.create_sweep("match", {}, name="noted")[0].id
    )
    empty_store.set_notes(sweep_id, "A **small** one & more")

    text = empty_client.get(f"/{path}/{sweep_id}").text

    assert '<div class="notes"><p>A <strong>small</strong> one &amp; more</p>' in text
    assert ">A **small** one &amp; more</textarea>" in text


OWN = "/api/v1/sweeps/0123456789ab/images/" + "0f" * 16 + ".png"


def test_images_that_were_added_here_are_shown() -> None:
    found = markdown(f'Loss: ![a "<b>" & c]({OWN})')

    alt = "a &quot;&lt;b&gt;&quot; &amp; c"
    assert found == f'<p>Loss: <img src="{OWN}" alt="{alt}" /></p>\n'


@pytest.mark.parametrize(
    "address",
    [
        "https://else.example/a.png",
        "/api/v1/sweeps/0123456789ab/images/../../../a.png",
        OWN.replace(".png", ".svg"),
        f"//else.example{OWN}",
        f"https://else.example{OWN}",
        f"{OWN}?x=1",
        "/login",
        "data:image/png;base64,AAAA",
    ],
)
def test_no_other_image_is_loaded(address: str) -> None:
    assert "<img" not in markdown(f"![a]({address})")
    assert "<img" not in markdown(f"![a][1]\n\n[1]: {address}")


def test_reports_hold_their_images() -> None:
    data = "data:image/png;base64,AAAA"
    document = Document("t", (Notes(f"![loss]({OWN})", {OWN: data}),))

    assert f'<img src="{data}" alt="loss" />' in to_html(document)
    assert f"![loss]({data})" in to_markdown(document)
    assert "loss" in notes_latex(f"![loss]({OWN})")


NOTES = "# Why\n\nA **small & big** sweep of `alpha_v`:\n\n- [paper](https://a.b/c_d)\n- *two*"


class TestReports:
    def test_html_has_them_rendered(self) -> None:
        text = to_html(Document("t", (Notes(NOTES),)))

        assert "<h3>Why</h3>" in text
        assert "<strong>small &amp; big</strong>" in text

    def test_markdown_has_them_as_they_were_written(self) -> None:
        assert NOTES in to_markdown(Document("t", (Notes(NOTES),)))

    @pytest.mark.parametrize("text", ["```\ncode", "~~~~ sh\ncode\n~~~", "- a\n\n````\n```"])
    def test_a_fence_that_was_left_open_swallows_nothing_of_what_follows(self, text: str) -> None:
        written = to_markdown(Document("t", (Notes(text), Heading("Results"))))

        assert text in written
        assert "<h4>Results</h4>" in markdown(written)

    def test_latex_has_them_as_latex(self) -> None:
        assert notes_latex(NOTES) == (
            "\\subsection*{Why}\n\n"
            "A \\textbf{small \\& big} sweep of \\texttt{alpha\\_v}:\n\n"
            "\\begin{itemize}\n"
            "\\item paper (\\texttt{https://a.b/c\\_d})\n\n"
            "\\item \\emph{two}\n\n"
            "\\end{itemize}"
        )

    def test_latex_takes_no_word_of_them_for_an_option_of_its_own(self) -> None:
        found = notes_latex("one\n[2] two  \n\\* three\n\n- [ ] to try")

        assert "one\\\\\n{[}2] two\\\\\n{*} three" in found
        assert "\\item {[} ] to try" in found

    def test_latex_keeps_the_dashes_and_the_indentation_of_code(self) -> None:
        found = notes_latex("`serve --json`\n\n```\nif x:\n    go(--x)\n```")

        assert "\\texttt{serve -{}-json}" in found
        assert "\\texttt{if x:}\\\\\n\\texttt{~~~~go(-{}-x)}" in found

    def test_latex_reads_nothing_of_them_as_a_command(self) -> None:
        found = notes_latex("\\input{/etc/passwd} $x$ 50 %\n\n```\n\\end{document}\n```")

        assert "\\input" not in found
        assert "\\end{document}" not in found
        assert "50 \\%" in found
