"""Words of a report in LaTeX: every sign that it would read escaped, symbols as mathematics."""

import re
import unicodedata
from collections.abc import Callable, Sequence

from markdown_it.token import Token

from dashboards.wording.markdown_notes import parsed

#: Greek letters that have a form of their own, as commands of mathematics.
_GREEK = dict(
    zip(
        "αβγδζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΥΦΨΩ",
        "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi pi rho varsigma sigma "
        "tau upsilon varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi "
        "Omega".split(),
        strict=True,
    )
)
_TEX = {
    "\\": r"\textbackslash{}",
    **{c: "\\" + c for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"$\\{name}$" for letter, name in _GREEK.items()},
    # The others look like Latin letters.
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)),
    **{"‖": r"$\|$", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "√": r"$\surd$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "µ": r"$\mu$"},
    **{
        "₀": "$_0$",
        "₁": "$_1$",
        "₂": "$_2$",
        "²": "$^2$",
        "ᵛ": "$^v$",
        "ˢ": "$^s$",
        "ε": r"$\epsilon$",
    },
    **{"–": "--", "—": "---", "…": r"\ldots{}", "→": r"$\to$", "\N{NARROW NO-BREAK SPACE}": r"\,"},
}

#: An index or exponent in plain text after a symbol: γ_C, α^v.
_INDEXED = re.compile(r"(?<!\\)\$(\\_|\\textasciicircum\{\})([A-Za-z0-9])(?![A-Za-z0-9])")
#: What the end of a line, a rule and an item before it would take for their own option.
_OPTION = re.compile(r"^\s*[\[*]")


def latex_text(text: str) -> str:
    """Text with every character that LaTeX would read escaped, and symbols as mathematics."""
    # Control characters would end the run of LaTeX.
    plain = "".join(_TEX.get(c, c) for c in text if c.isspace() or not _is_control(c))
    # Symbols side by side are one formula; a dollar of the text is escaped and keeps its own.
    joined = re.sub(r"(?<!\\)\$\$", "", plain)
    joined = _OPTION.sub(lambda found: f"{{{found[0]}}}", joined)
    return _INDEXED.sub(lambda found: ("_" if found[1] == r"\_" else "^") + found[2] + "$", joined)


def _is_control(sign: str) -> bool:
    return unicodedata.category(sign) == "Cc"


#: LaTeX around the parts of notes. Of a table each row is a line; wide ones are for HTML.
_AROUND = {
    "paragraph_close": "\n\n",
    "bullet_list_open": "\\begin{itemize}\n",
    "bullet_list_close": "\\end{itemize}\n\n",
    "ordered_list_open": "\\begin{enumerate}\n",
    "ordered_list_close": "\\end{enumerate}\n\n",
    "list_item_open": "\\item ",
    "blockquote_open": "\\begin{quote}\n",
    "blockquote_close": "\\end{quote}\n\n",
    "heading_open": "\\subsection*{",
    "heading_close": "}\n\n",
    "th_close": " \\quad ",
    "td_close": " \\quad ",
    "tr_close": "\\\\\n",
    "table_close": "\n",
    "hr": "\\medskip\n\n",
    "strong_open": "\\textbf{",
    "strong_close": "}",
    "em_open": "\\emph{",
    "em_close": "}",
    "softbreak": "\\\\\n",
    "hardbreak": "\\\\\n",
}


def _code(text: str) -> str:
    words = text.lstrip(" ")
    # Two dashes would be printed as one long one, and the spaces of an indentation as one.
    plain = re.sub("-(?=-)", "-{}", latex_text(words))
    return f"\\texttt{{{'~' * (len(text) - len(words))}{plain}}}"


def _listing(text: str) -> str:
    lines = "\\\\\n".join(map(_code, text.splitlines()))
    return f"{lines}\n\n"


_TEXTS: dict[str, Callable[[str], str]] = {
    "text": latex_text,
    "code_inline": _code,
    "code_block": _listing,
    "fence": _listing,
}


def notes_latex(text: str) -> str:
    """Notes, which are Markdown, as LaTeX; the addresses of links stand behind their words."""
    return re.sub(r"\n{3,}", "\n\n", _written(parsed(text))).strip()


def _written(tokens: Sequence[Token]) -> str:
    found, addresses = [], []
    for token in tokens:
        if token.type == "link_open":
            addresses.append(str(token.attrGet("href")))
        elif token.type == "link_close":
            found.append(f" ({_code(addresses.pop())})")
        elif token.type in _TEXTS:
            found.append(_TEXTS[token.type](token.content))
        elif token.children:
            found.append(_written(token.children))
        else:
            found.append(_AROUND.get(token.type, ""))
    return "".join(found)
