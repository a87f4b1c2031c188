"""The rooms of the package: stairs only go down, the picture in docs/architecture.md is true, and tests mirror them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import qknorm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "qknorm"

# From the ground up; rooms of one line stand side by side and do not import each other.
ORDER = [
    {"errors", "cache", "memory", "screen", "__init__", "__main__"},
    {"ops"},
    {"attention"},
    {"hf"},
    {"processes"},
    {"data"},
    {"counting", "formats", "models", "optimisation", "metrics"},
    {"runs"},
    {"evaluation"},
    {"decoding"},
    {"training"},
    {"tasks"},
    {"experiments"},
    {"commands"},
    {"cli"},
]
HEIGHT = {room: floor for floor, rooms in enumerate(ORDER) for room in rooms}
# The package as somebody imports it: its names lie above, and are fetched when they are asked for.
FRONT = {"__init__", "__main__"}
MODULES = sorted(PACKAGE.rglob("*.py"))

TESTS = ROOT / "tests"
# Tests of what is true of a whole room or of the project, and not of one module.
OF_ROOMS = {
    *("test_architecture.py", "test_packaging.py", "test_site.py"),
    *("attention/test_mathematics.py", "attention/test_onnx.py", "attention/test_parallel.py"),
    *("ops/test_documented.py", "ops/test_public.py", "ops/test_sanitizers.py", "ops/test_table.py"),
}
# Modules that are seen through another: what is part of something larger, or what only a whole command shows.
TESTED_BY = {
    "attention/torch_masks.py": "attention/test_multihead.py",
    "data/phrasebook.py": "data/test_corpora.py",
    "experiments/papers/views.py": "experiments/papers/test_output.py",
    "experiments/display.py": "journeys/test_language.py",
    "experiments/quickstart.py": "journeys/test_quickstart.py",
    "experiments/report/material.py": "experiments/report/test_contests.py",
    "experiments/sweep/about.py": "experiments/sweep/test_grid.py",
    "experiments/sweep/answer.py": "experiments/sweep/test_rates.py",
    "experiments/sweep/views.py": "experiments/sweep/test_rates.py",
    "formats/document.py": "formats/test_table.py",
    "formats/text.py": "journeys/test_translating.py",
    "hf/norms.py": "hf/test_spec.py",
    "metrics/metric.py": "metrics/test_table.py",
    "ops/_dispatch.py": "ops/test_table.py",
    "processes.py": "journeys/test_processes.py",
    "runs/recipe_part.py": "runs/test_recipe.py",
    "tasks/description.py": "tasks/test_table.py",
    "training/loggers/logger.py": "training/loggers/test_table.py",
    "training/planned.py": "journeys/test_planning.py",
    "training/speed.py": "journeys/test_planning.py",
}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports: at its top, in functions, by a string, or through the front."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "qknorm":
            yield from ({home_of(f"{node.module}.{alias.name}") for alias in node.names} - {""}) or {node.module}
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "qknorm")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "qknorm":
            yield home_of(f"qknorm.{node.attr}") or "qknorm"
        elif isinstance(node, ast.Constant) and re.fullmatch(r"qknorm(\.\w+)+\.?", str(node.value)):
            yield str(node.value).removesuffix(".")


def home_of(name: str) -> str:
    """The module that a name is, or that has what the front calls so; "" if it is neither."""
    place = ROOT / name.replace(".", "/")
    is_module = place.with_suffix(".py").exists() or (place / "__init__.py").exists()
    return name if is_module else qknorm._HOMES.get(name.removeprefix("qknorm."), "")


@pytest.mark.parametrize(
    "line",
    [
        "from qknorm.hf.layers import from_hf",
        "from qknorm.hf import from_hf",
        "from qknorm import hf",
        "import qknorm.hf",
        "def late():\n    import qknorm\n    qknorm.hf.from_hf()",
        "importlib.import_module('qknorm.hf.layers')",
        "importlib.import_module(f'qknorm.hf.{name}')",
    ],
)
def test_an_import_is_seen_however_it_is_written(line: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(line)
    assert "hf" in {room_of(module) for module in imported(tmp_path / "module.py")}
    (tmp_path / "module.py").write_text("import qknorm\nqknorm.Translator")
    assert "decoding" in {room_of(module) for module in imported(tmp_path / "module.py")}


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
    result = re.findall(r"^  (\w+)(?:/|\.py) (.*?)(?=^  \w|\Z)", package, re.DOTALL | re.MULTILINE)
    return dict(result)


def test_the_picture_shows_every_room_and_no_other() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert rooms_of_the_picture().keys() == {*rooms, "recipes"} - FRONT


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_picture_shows_every_file(path: Path) -> None:
    room, *inside = path.relative_to(PACKAGE).parts
    if inside and path.name != "__init__.py":
        assert re.search(rf"\b{path.stem}\b", rooms_of_the_picture()[room])


def hops() -> list[tuple[str, str]]:
    """What the walks of docs/architecture.md name: a file, and a function or class in it or nothing."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    walks = page.partition("## Three walks")[2].partition("\n## ")[0]
    return [(file, name) for file, name in re.findall(r"\| `([\w/.]+)(?:: ([\w.]+))?` \|$", walks, re.MULTILINE)]


def names_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{node.name}.")


@pytest.mark.parametrize(("file", "name"), hops())
def test_every_hop_of_a_walk_exists(file: str, name: str) -> None:
    text = (PACKAGE / file).read_text(encoding="utf-8")
    assert not name or name in set(names_in(ast.parse(text).body))


def test_there_are_three_walks() -> None:
    assert len(hops()) > 20


def mirror_of(path: Path) -> str:
    """Where the tests of a module are: those of ops/_build.py in ops/test_build.py."""
    module = path.relative_to(PACKAGE)
    return module.with_name(f"test_{module.stem.lstrip('_')}.py").as_posix()


def has_logic(path: Path) -> bool:
    """Whether a module does something itself: commands only hand arguments on, and the journeys run them."""
    is_handing_on = path.relative_to(PACKAGE).parts[0] in {"commands", "cli.py"} or path.name == "__init__.py"
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return any(isinstance(node, ast.FunctionDef) for node in nodes) and not is_handing_on


@pytest.mark.parametrize(
    "path", [path for path in MODULES if has_logic(path)], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_every_module_has_its_tests(path: Path) -> None:
    module = path.relative_to(PACKAGE).as_posix()
    assert (TESTS / TESTED_BY.get(module, mirror_of(path))).is_file()
    assert module not in TESTED_BY or not (TESTS / mirror_of(path)).exists()


def test_every_test_has_its_module() -> None:
    mirrors = {mirror_of(path) for path in MODULES} | {
        mirror_of(path.parent) for path in MODULES if path.name == "__init__.py" and path.parent != PACKAGE
    }
    files = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    of_package = {file for file in files if not file.startswith(("journeys/", "benchmarks/"))}
    assert of_package - mirrors == OF_ROOMS
    assert {(PACKAGE / module).is_file() for module in TESTED_BY} == {True}
