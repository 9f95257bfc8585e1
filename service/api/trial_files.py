"""The end of a trial's log, read without reading the rest."""

from pathlib import Path

#: A line is rarely longer than 100 bytes; this much holds 10,000 of them.
MAX_BYTES = 1_000_000


def trial_log(home: Path, sweep_id: str, number: int, lines: int = 200) -> str:
    """The last ``lines`` lines that a trial wrote; "" when it wrote none.

    Both names come from the store, never from a request: they are parts of a path.
    """
    return tail(home / "logs" / sweep_id / f"{number}.log", lines)


def tail(path: Path, lines: int) -> str:
    """The last ``lines`` lines of a text file; "" when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_BYTES))
            text = file.read(MAX_BYTES).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "".join(text.splitlines(keepends=True)[-lines:])
