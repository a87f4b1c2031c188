"""The rooms of the package: stairs only go down, the picture in docs/architecture.md is true, and tests mirror them."""

from __future__ import annotations

import ast
import re
import sys
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

TESTS = ROOT / "tests"
# Tests of what is true of a whole room or of the project, and not of one module.
OF_ROOMS = {
    *("test_architecture.py", "test_packaging.py", "test_reference.py", "test_site.py"),
    *("attention/test_mathematics.py", "attention/test_onnx.py", "attention/test_parallel.py"),
    *("ops/test_documented.py", "ops/test_public.py", "ops/test_sanitizers.py", "ops/test_table.py"),
}
# Modules that are seen through another: what is part of something larger, or what only a whole command shows.
TESTED_BY = {
    "attention/torch_masks.py": "attention/test_multihead.py",
    "data/corpus_report.py": "data/test_prepared.py",
    "data/phrasebook.py": "data/test_corpora.py",
    "decoding/decoder.py": "decoding/test_decoders.py",
    "experiments/display.py": "journeys/test_language.py",
    "experiments/quickstart.py": "journeys/test_quickstart.py",
    "experiments/plan.py": "experiments/test_listed.py",
    "experiments/lengths.py": "journeys/test_data.py",
    "experiments/report/section.py": "experiments/report/test_page.py",
    "experiments/report/sections/learning.py": "experiments/report/test_page.py",
    "experiments/report/sections/settings.py": "experiments/report/test_page.py",
    "experiments/report/words.py": "experiments/report/test_page.py",
    "experiments/views/table.py": "experiments/test_spanned.py",
    "formats/document.py": "formats/test_table.py",
    "formats/text.py": "journeys/test_translating.py",
    "hf/norms.py": "hf/test_spec.py",
    "metrics/metric.py": "metrics/test_table.py",
    "ops/_dispatch.py": "ops/test_table.py",
    "processes.py": "journeys/test_processes.py",
    "runs/choices.py": "runs/test_recipe.py",
    "runs/language_recipe.py": "runs/test_any_recipe.py",
    "runs/recipe_part.py": "runs/test_recipe.py",
    "runs/translator_run.py": "runs/test_any_recipe.py",
    "tasks/description.py": "tasks/test_table.py",
    "training/loggers/logger.py": "training/loggers/test_table.py",
    "training/added.py": "journeys/test_adding.py",
    "training/backwards.py": "journeys/test_borrowing.py",
    "training/interruption.py": "training/test_trainer.py",
    "training/parents.py": "journeys/test_adding.py",
    "training/word_lists.py": "journeys/test_borrowing.py",
    "training/planned.py": "journeys/test_planning.py",
    "training/progress.py": "training/test_trainer.py",
    "training/prolonged.py": "training/test_planner.py",
    "training/speed.py": "journeys/test_planning.py",
}


# The library is for programs that have torch, and what torch brings; anything else is imported when it is asked for.
LIBRARY, BROUGHT = ("ops", "attention"), {"torch", "filelock", "qknorm"}
HOMES = qknorm._HOMES
NAME = re.compile(r"qknorm(\.\w+)+\.?")


def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


TREES = {path.relative_to(PACKAGE).as_posix(): syntax(path) for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(file: str) -> str:
    """The room of a file: `ops` of ops/lp.py, `cli` of cli.py."""
    return file.partition("/")[0].removesuffix(".py")


def file_of(module: str) -> str | None:
    """The file of qknorm.ops.lp, or of the module that a name such as qknorm.ops.lp.lp_normalize is in."""
    parts = module.split(".")[1:]
    while parts:
        for file in ("/".join(parts) + ".py", "/".join(parts) + "/__init__.py"):
            if file in TREES:
                return file
        parts.pop()
    return None


def names_imported(tree: ast.AST, file: str) -> Iterator[str]:
    """Whatever a file imports, at its top or inside of functions, or names: `import_module("qknorm.data")`, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} imports from where it lies; say the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            yield node.value.removesuffix(".")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "qknorm":
            yield f"qknorm.{node.attr}"


def imported(file: str) -> set[str]:
    """The files of this package that a file imports; names of `qknorm` itself count as where they live."""
    names = names_imported(TREES[file], file)
    whole = (HOMES.get(name.removeprefix("qknorm."), name) for name in names if name.split(".")[0] == "qknorm")
    return {other for name in whole if (other := file_of(name)) is not None and other != file}


IMPORTED = {file: imported(file) for file in TREES if room_of(file) not in FRONT}


def test_stairs_only_go_down() -> None:
    up = [
        f"{file} imports {other}"
        for file, others in IMPORTED.items()
        for other in others
        if room_of(other) != room_of(file) and HEIGHT[room_of(other)] >= HEIGHT[room_of(file)]
    ]
    assert up == []


@pytest.mark.parametrize(
    "line",
    [
        "from qknorm.hf import layers",
        "from qknorm import hf",
        "import qknorm.hf.layers as layers",
        "def f(): import qknorm.hf",
        "import_module('qknorm.hf.layers')",
        "import_module(f'qknorm.hf.{name}')",
        "import qknorm\nqknorm.hf",
    ],
)
def test_every_way_to_import_is_seen(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TREES, "attention/new.py", ast.parse(f"{line}\nqknorm.Translator"))
    assert {room_of(other) for other in imported("attention/new.py")} == {"hf", "decoding"}


def test_the_library_needs_torch_alone() -> None:
    for file in (file for file in TREES if room_of(file) in LIBRARY):
        tops = [node for node in TREES[file].body if isinstance(node, (ast.Import, ast.ImportFrom))]
        packages = {name.split(".")[0] for node in tops for name in names_imported(node, file)}
        assert packages - sys.stdlib_module_names <= BROUGHT, file


def test_inside_a_room_nothing_goes_in_a_circle() -> None:
    done: set[str] = set()

    def visit(file: str, way: tuple[str, ...]) -> None:
        assert file not in way, " -> ".join((*way, file))
        if file not in done:
            for other in sorted(IMPORTED.get(file, ())):
                if room_of(other) == room_of(file):
                    visit(other, (*way, file))
            done.add(file)

    for file in IMPORTED:
        visit(file, ())


def page() -> str:
    return (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def rooms_of_the_picture() -> dict[str, str]:
    """What docs/architecture.md shows of each room: its name, and the lines about it."""
    (picture,) = re.findall(r"^```\nqknorm/\n(.*?)^```", page(), re.DOTALL | re.MULTILINE)
    package = picture.partition("\ntests/")[0]
    return dict(re.findall(r"^  (\w+)(?:/|\.py) (.*?)(?=^  \w|\Z)", package, re.DOTALL | re.MULTILINE))


def test_the_picture_shows_every_room_and_every_file_and_no_other_room() -> None:
    shown = rooms_of_the_picture()
    assert shown.keys() == {*map(room_of, TREES), "recipes"} - FRONT
    files = [file for file in TREES if "/" in file and not file.endswith("__init__.py")]
    assert [file for file in files if not re.search(rf"\b{Path(file).stem}\b", shown[room_of(file)])] == []


def names_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{node.name}.")


def test_every_hop_of_the_three_walks_exists() -> None:
    """A walk names a file, and mostly a function or class in it."""
    walks = page().partition("## Three walks")[2].partition("\n## ")[0]
    hops = re.findall(r"\| `([\w/.]+)(?:: ([\w.]+))?` \|$", walks, re.MULTILINE)
    assert len(hops) > 20
    assert [(file, name) for file, name in hops if not (PACKAGE / file).is_file()] == []
    assert [(file, name) for file, name in hops if name and name not in names_in(TREES[file].body)] == []


def mirror_of(file: str) -> str:
    """Where the tests of a module are: those of ops/_build.py in ops/test_build.py."""
    module = Path(file)
    return module.with_name(f"test_{module.stem.lstrip('_')}.py").as_posix()


def has_logic(file: str) -> bool:
    """Whether a module does something itself: commands only hand arguments on, and the journeys run them."""
    is_handing_on = room_of(file) in {"commands", "cli"} or file.endswith("__init__.py")
    return not is_handing_on and any(isinstance(node, ast.FunctionDef) for node in ast.walk(TREES[file]))


def test_every_module_has_its_tests() -> None:
    tested = {file: TESTED_BY.get(file, mirror_of(file)) for file in TREES if has_logic(file)}
    assert {file: test for file, test in tested.items() if not (TESTS / test).is_file()} == {}
    assert [file for file in TESTED_BY if file not in TREES or (TESTS / mirror_of(file)).exists()] == []


def test_every_test_has_its_module() -> None:
    mirrors = {mirror_of(file) for file in TREES}
    mirrors |= {mirror_of(str(Path(file).parent)) for file in TREES if file.endswith("/__init__.py")}
    files = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    of_package = {file for file in files if not file.startswith(("journeys/", "benchmarks/"))}
    assert of_package - mirrors == OF_ROOMS
