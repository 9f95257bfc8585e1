"""Draws the rooms of the packages from their imports: ``python -m tests.project.rooms.picture``.

One column for each package, in the order of their imports. A frame is a floor: its rooms import
only rooms of the frames below it. Rooms without a number are single modules. A viewer that shows
titles tells what a room holds and imports.
"""

from html import escape

from tests.project.rooms.graph import PACKAGES, ROOT, Room, floors

PICTURE = ROOT / "docs" / "images" / "rooms.svg"

_WIDTH, _LINE, _PAD, _GAP, _TOP = 184, 24, 6, 8, 52

_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}"
    ".package{font-weight:600;font-size:15px}"
    ".count{fill:#5b6570;font-size:11px;text-anchor:end}"
    ".floor{fill:#f3f5f8;stroke:#c4ccd5}"
    ".ground{fill:#fff;stroke:#c4ccd5;stroke-dasharray:3 3}"
    ".arrow{stroke:#5b6570;stroke-width:1.5;fill:none;marker-end:url(#head)}"
)


def picture() -> str:
    """The picture as SVG, the same text for the same sources."""
    columns, height = [], 0
    for i, package in enumerate(PACKAGES):
        x = 12 + i * (_WIDTH + 36)
        column, bottom = _column(package, x)
        if i + 1 < len(PACKAGES):
            column.append(f'<path class="arrow" d="M{x + _WIDTH + 4} 28h26"/>')
        columns += column
        height = max(height, bottom)
    width = 12 * 2 + len(PACKAGES) * _WIDTH + (len(PACKAGES) - 1) * 36
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 8}" role="img"'
            ' aria-label="Packages and their rooms; imports point right and down">',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#5b6570"/></marker>'
            "</defs>",
            f'<rect width="{width}" height="{height + 8}" fill="#fff"/>',
            *columns,
            "</svg>",
            "",
        ]
    )


def _column(package: str, x: int) -> tuple[list[str], int]:
    parts = [f'<text class="package" x="{x + _PAD}" y="33">{package}</text>']
    y = _TOP
    for floor in floors(package):
        height = len(floor) * _LINE + _PAD
        kind = "floor" if any(room.is_folder for room in floor) else "ground"
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="5"/>'
        )
        for room in floor:
            parts.append(_line(room, x, y + _LINE - 4))
            y += _LINE
        y += _PAD + _GAP
    return parts, y


def _line(room: Room, x: int, y: int) -> str:
    count = f'<text class="count" x="{x + _WIDTH - _PAD}" y="{y}">{room.num_modules}</text>'
    below = ", ".join(sorted(room.imports)) or "no other room"
    title = escape(f"{room.path}: {room.holds} Imports {below}.")
    name = f'<text x="{x + _PAD}" y="{y}">{escape(room.name)}<title>{title}</title></text>'
    return name + (count if room.is_folder else "")


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
