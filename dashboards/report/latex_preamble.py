"""The head of a LaTeX file that every engine sets, whatever letters its text has.

pdfLaTeX has type for Latin letters and for what `report_latex` writes as mathematics. Of any other
sign (Chinese, Arabic, an emoji) it prints the number, as U+4F60, instead of ending in an error;
XeLaTeX and LuaLaTeX print the sign itself where their font has it.
"""

import unicodedata

#: Marks that only change how the sign before them looks, and joiners: nothing of their own.
_SILENT = ("Mn", "Me", "Cf")


def latex_preamble(body: str) -> str:
    """What stands before the packages: fonts, encodings, and a name for each sign of ``body``."""
    signs = sorted({sign for sign in body if not sign.isascii()})
    return "\n".join(
        [
            "% For pdflatex, xelatex and lualatex. Signs that pdflatex has no type for are printed",
            "% as U+ and their number; the other two print them where the font has them.",
            "\\documentclass{article}",
            "\\ifdefined\\directlua\\usepackage{fontspec}\\else",
            "\\ifdefined\\XeTeXrevision\\usepackage{fontspec}\\else",
            "\\usepackage[T1]{fontenc}\\usepackage[utf8]{inputenc}",
            "\\newcommand{\\nameunset}[3]{\\ifcsname u8:\\detokenize{#1}\\endcsname\\else"
            "\\DeclareUnicodeCharacter{#2}{#3}\\fi}",
            *map(_named, signs),
            "\\fi\\fi",
        ]
    )


def _named(sign: str) -> str:
    number = f"{ord(sign):04X}"
    printed = "" if unicodedata.category(sign) in _SILENT else f"{{\\tiny U+{number}}}"
    return f"\\nameunset{{{sign}}}{{{number}}}{{{printed}}}"
