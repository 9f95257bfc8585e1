"""Names in any script leave a LaTeX report that LaTeX sets."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dashboards.report.blocks import Document, Heading, Listing, Notes, Paragraph
from dashboards.report.document import to_latex
from sweeps.analysis.table import Table, latex_text

#: Latin beyond ASCII, Chinese, an emoji of several parts, Greek, Arabic, Cyrillic, control signs,
#: and everything that LaTeX reads as a command.
NAME = "Żółć 真 😀👩\u200d🔬\ufe0f άβΑΩ ب Привет Ħ ¼ \x1b\x07 50% #1 _x^y~ {a} \\b é"


def document() -> Document:
    notes = Notes(f"# {NAME}\n\n`{NAME}`\n\n- [x](http://é.example/真)")
    table = Table(("a", NAME), ((NAME, "1"),), caption=NAME)
    return Document(NAME, [Heading(NAME), Paragraph(NAME), notes, Listing([NAME]), table])


def test_every_sign_beyond_ascii_has_a_name_for_engines_without_type_for_it() -> None:
    preamble, body = to_latex(document(), lambda picture: "").split("\\begin{document}")

    signs = {sign for sign in body if not sign.isascii()}
    assert {"真", "😀", "ب", "П"} <= signs
    assert all(f"\\nameunset{{{sign}}}{{{ord(sign):04X}}}" in preamble for sign in signs)
    assert "\\nameunset{真}{771F}{{\\tiny U+771F}}" in preamble
    assert "\\nameunset{\u200d}{200D}{}" in preamble


def test_greek_is_mathematics_and_control_signs_are_left_out() -> None:
    assert latex_text("βΩΑ") == r"$\beta\Omega$A"
    assert latex_text("a\x1b\x07b\tc") == "ab\tc"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_pdflatex_sets_it(tmp_path: Path) -> None:
    (tmp_path / "a.tex").write_text(to_latex(document(), lambda picture: ""), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "a.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)

    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-2000:]
