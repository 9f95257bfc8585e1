"""Colours and dashes, from Okabe and Ito (2008): they stay apart for colour-blind readers."""

from collections.abc import Sequence

from sweeps.figures.chart import Dash

#: Okabe and Ito's without black and yellow, which vanish on dark and on white paper.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: One colour per optimizer, the same in every figure.
OPTIMIZER_COLOURS = {"ndadam": "#0072B2", "sgd": "#D55E00", "adam": "#009E73", "adamw": "#CC79A7"}
#: What is context for the coloured part: formulas, trends, zero.
GREY = "#8A8F98"
DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot")


def colour(index: int) -> str:
    """Colour of the ``index``-th of several equal things."""
    return PALETTE[index % len(PALETTE)]


def optimizer_colour(name: str) -> str:
    """Colour of an optimizer; one colour for all that have none of their own."""
    return OPTIMIZER_COLOURS.get(name, PALETTE[5])


def curve_colours(optimizers: Sequence[str]) -> list[str]:
    """The colour of each of several curves: its optimizer's if no two curves share one.

    "" stands for an optimizer that is not known.
    """
    if "" in optimizers or len(set(optimizers)) < len(optimizers):
        return [colour(index) for index in range(len(optimizers))]
    return [OPTIMIZER_COLOURS.get(name, colour(at)) for at, name in enumerate(optimizers)]


def dash(index: int) -> Dash:
    """Line style that keeps curves apart once the colours repeat."""
    return DASHES[index // len(PALETTE) % len(DASHES)]


def translucent(hex_colour: str, alpha: float) -> str:
    """The colour of a band around a line of ``hex_colour``."""
    red, green, blue = (int(hex_colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def depth_colour(index: int, count: int) -> str:
    """Colour of layer ``index`` of ``count``: from orange at the stem to blue at the end.

    Between two Okabe-Ito colours lightness and hue both change, so order can be read.
    """
    share = index / max(count - 1, 1)
    ends = ((0xE6, 0x9F, 0x00), (0x00, 0x72, 0xB2))
    mixed = (round(a + share * (b - a)) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{part:02X}" for part in mixed)
