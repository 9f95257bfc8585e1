"""Which rooms the packages have, and which rooms each imports: read from the sources."""

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: From the top to the ground: each imports those after it.
PACKAGES = ("ndsweep", "service", "dashboards", "sweeps", "worker", "ndadam")


@dataclass
class Room:
    """A folder, or a module beside the folders of a package."""

    package: str
    name: str
    #: First sentence of its docstring.
    holds: str
    #: Its modules; 1 for a module.
    num_modules: int
    #: Rooms of the same package that its modules import, also where they do so late.
    imports: set[str] = field(default_factory=set)
    #: Rooms that its docstring allows.
    allowed: set[str] = field(default_factory=set)

    @property
    def path(self) -> str:
        return f"{self.package}/{self.name}"

    @property
    def is_folder(self) -> bool:
        return (ROOT / self.path).is_dir()


@cache
def rooms() -> dict[str, dict[str, Room]]:
    """Every room by package and name."""
    return {package: _rooms_of(package) for package in PACKAGES}


def floors(package: str) -> list[list[Room]]:
    """Rooms of a package from the top: each floor imports only floors below it."""
    found = rooms()[package]
    height: dict[str, int] = {}

    def measure(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            raise ValueError(f"rooms of {package} import each other: {' > '.join((*above, name))}")
        if name not in height:
            below = [measure(other, (*above, name)) for other in found[name].imports]
            height[name] = 1 + max(below, default=-1)
        return height[name]

    for name in found:
        measure(name)
    top = max(height.values())
    return [[found[n] for n in sorted(found) if height[n] == h] for h in range(top, -1, -1)]


def _rooms_of(package: str) -> dict[str, Room]:
    folder = ROOT / package
    found = {}
    for entry in sorted(folder.iterdir()):
        modules = [m for m in entry.rglob("*.py")] if entry.is_dir() else [entry]
        modules = [m for m in modules if m.suffix == ".py" and "__pycache__" not in m.parts]
        if not modules or entry == folder / "__init__.py":
            continue
        opening = entry / "__init__.py" if entry.is_dir() else entry
        words = ast.get_docstring(ast.parse(opening.read_text("utf-8"))) or ""
        room = Room(
            package=package,
            name=entry.stem,
            holds=words.partition("\n")[0],
            num_modules=sum(m.name != "__init__.py" for m in modules),
            allowed=_allowed(words),
        )
        for module in modules:
            room.imports |= _imported(module, package) - {room.name}
        found[room.name] = room
    for room in found.values():
        room.imports &= set(found)
    return found


def _allowed(words: str) -> set[str]:
    """The rooms that a docstring names after "May import:"."""
    _, _, listed = words.partition("May import:")
    return {name.strip() for name in listed.partition(".")[0].split(",") if name.strip()}


def _imported(module: Path, package: str) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith(f"{package}.")}
