"""The rooms of the package: stairs only go down, and the picture of them in docs/architecture.md is true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "qknorm"

# From the ground up; rooms of one line stand side by side and do not import each other.
ORDER = [
    {"errors", "cache", "memory", "screen", "__init__", "__main__"},
    {"ops"},
    {"attention"},
    {"processes"},
    {"data"},
    {"counting", "models"},
    {"runs"},
    {"evaluation"},
    {"decoding"},
    {"training"},
    {"experiments"},
    {"commands"},
    {"cli"},
]
HEIGHT = {room: floor for floor, rooms in enumerate(ORDER) for room in rooms}
# The package as somebody imports it: its names lie above, and are fetched when they are asked for.
FRONT = {"__init__", "__main__"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports, at its top or inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "qknorm":
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inside if (ROOT / name.replace(".", "/")).with_suffix(".py").exists()}
            yield from modules or {node.module}
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "qknorm")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_stairs_only_go_down(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room in FRONT:
        return
    for module in imported(path):
        other = room_of(module)
        if other not in FRONT:
            assert other == room or HEIGHT[other] < HEIGHT[room], f"{room} imports {module}, which is not below it"


def test_inside_a_room_nothing_goes_in_a_circle() -> None:
    edges = {}
    for path in MODULES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        own = {module for module in imported(path) if module.startswith(f"qknorm.{room_of(name)}.")}
        edges[name] = {module for module in own if module != name}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join((*way, module))
        if module not in done:
            for other in sorted(edges.get(module, ())):
                visit(other, (*way, module))
            done.add(module)

    for module in edges:
        visit(module, ())


def rooms_of_the_picture() -> dict[str, str]:
    """What docs/architecture.md shows of each room: its name, and the lines about it."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"^```\nqknorm/\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    package = picture.partition("\ntests/")[0]
    found = re.findall(r"^  (\w+)(?:/|\.py) (.*?)(?=^  \w|\Z)", package, re.DOTALL | re.MULTILINE)
    return dict(found)


def test_the_picture_shows_every_room_and_no_other() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert rooms_of_the_picture().keys() == {*rooms, "recipes"} - FRONT


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_picture_shows_every_file(path: Path) -> None:
    room, *inside = path.relative_to(PACKAGE).parts
    if inside and path.name != "__init__.py":
        assert re.search(rf"\b{path.stem}\b", rooms_of_the_picture()[room])
