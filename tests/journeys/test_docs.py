"""The documents keep their promises: every command and every Python block in them runs, every link leads somewhere."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import qknorm
from qknorm.cli import app
from qknorm.data import corpora
from qknorm.data.phrasebook import pairs
from qknorm.data.splits import SPLITS
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.experiments.recipe import load_table
from qknorm.runs.recipe import make_recipe, read_recipe
from qknorm.runs.translator_run import TranslatorRun
from qknorm.training import planner
from tests.caches import new_cache
from tests.journeys.conftest import Command
from tests.phrases import write_phrases

ROOT = Path(__file__).parents[2]
IN_SDIST = (ROOT / "PKG-INFO").exists()
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

# What is documented trains for minutes to days. It is run as written but for these settings, which come last and so
# win: they leave a model that has learned nothing, in a second. Whether training learns is tested elsewhere.
SHRUNK = {
    "translation": "dim=16 feed_forward=16 encoder_layers=1 decoder_layers=1 heads=2 merges=100 extra_length=4 "
    "validation_beam_size=1 max_updates=2 validate_every=2",
    "language": "dim=16 layers=1 heads=2 context=16 batch=2 iterations=2 validate_every=2",
    "sweep": "dim=12 layers=1 heads=2 context=16 batch=2 iterations=2 validate_every=1 folds=2 p=[2,3] start=same "
    "--jobs 1",
    "reproduce": "--dry-run",
}
# Commands that are not run here, and why.
NOT_RUN = {
    "quickstart": "it is meant to take minutes, and has a journey of its own",
}
# Folders of runs that a page takes for granted: they stand for those of its reader, trained one way or another.
SUPPOSED_RUNS = {"dot-1", "dot-2", "dot-3", "q-1", "q-2", "q-3"}
# Packages of extras without which a page cannot be run.
NEEDED = {"hugging-face": "transformers", "integrations": "onnxruntime"}
# The first line of a Python block that does not run alone.
CONTINUES = "# continues the block above\n"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: what it is written in, and its text."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    result = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in result]


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def in_backticks(page: Path) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def commands(block: Block) -> Iterator[str]:
    """The lines that call qknorm, in whichever way, without what stands before it."""
    if block.language == "console":
        return  # of docs/commands.md: how each is called, with placeholders
    start = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:torchrun .*?-m |\.venv/bin/)?(qknorm .*)")
    for line in block.text.replace("\\\n", " ").splitlines():
        if result := start.fullmatch(line):
            yield re.sub(r" \[(--[^]]*)]", r" \1", result[1])  # [--option] means that it may be left out


@pytest.fixture(scope="module")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`files` holds all that the pages speak of, `cache` phrases that stand for the named corpora."""
    supplies = tmp_path_factory.mktemp("supplies")
    files = supplies / "files"
    phrases = pairs(400)
    write_phrases(files, train=300, held_out=24)
    for name, chosen in {"mine": phrases, "new": phrases[:5], "reference": phrases[:5]}.items():
        for side, language in enumerate(("en", "gl")):
            write_lines(files / f"{name}.{language}", (pair[side] for pair in chosen))
    others = ("other.en", "other.gl", "related.en", "related.pt", "more.gl")
    for name, language in (file.split(".") for file in others):
        lines = read_lines(files / ("mine.en" if language == "en" else "mine.gl"))
        write_lines(files / f"{name}.{language}", (f"{line} {len(line)}" for line in lines))
    write_lines(files / "words.csv", ["en,gl", "bread,pan", "bread,boroa", "Galicia,Galicia"])
    write_lines(files / "terms.tsv", ["bread\tboroa", "living room\tsalón"])
    for side, language in enumerate(("en", "gl")):
        write_lines(
            files / f"book.{language}",
            (" ".join(pair[side] for pair in phrases[row : row + 5]) for row in range(0, 400, 5)),
        )
    write_lines(files / "my.txt", ["ROMEO:", *read_lines(files / "mine.en")])
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{english}</seg></tuv><tuv xml:lang="gl"><seg>{galician}</seg></tuv></tu>'
        for english, galician, *_ in phrases[:9]
    )
    (files / "memory.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>', encoding="utf-8")
    shutil.copytree(ROOT / "recipes", files / "recipes")
    (files / "my-table.yaml").write_text("{title: Mine, rows: [{like: qknorm}, {name: p3, changes: {model: {p: 3}}}]}")
    (files / "row.yaml").write_text("{name: p3, changes: {model: {p: 3}}}")
    for info in corpora.known():
        published = supplies / "published" / info.name
        if info.languages is None:
            write_lines(published / "input.txt", read_lines(files / "my.txt"))
            continue
        for split, (own, language) in itertools.product(SPLITS, zip(("en", "gl"), info.languages, strict=True)):
            size = 20_000 if split == "train" and info.name.startswith("tatoeba") else 300  # tatoeba-en-es:20k
            lines = itertools.islice(itertools.cycle(read_lines(files / f"{split}.{own}")), size)
            write_lines(published / f"{split}.{language}", lines)
    for info in corpora.known():
        corpora.get(info.name, from_folder=supplies / "published" / info.name, cache=supplies / "cache")
    shutil.copytree(supplies / "published" / "ted-gl-en", files / "DIR")
    return supplies


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(
    page: Path, supplies: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.stem in NEEDED:
        pytest.importorskip(NEEDED[page.stem], reason=f"{page.name} needs an extra of pyproject.toml")
    monkeypatch.setenv("QKNORM_CACHE", new_cache(supplies / "cache"))
    monkeypatch.setattr(planner, "MOST_PASSES", 0.5)  # a run that goes on does not go far
    monkeypatch.setattr(planner, "SHAPES", (planner.Shape(16, 16, 1, 1, 2),))  # nor does it grow
    shutil.copytree(supplies / "files", tmp_path, dirs_exist_ok=True)
    done: set[str] = set()
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "python":
            names = names if block.text.startswith(CONTINUES) else {}
            exec(compile(block.text, f"a block of {page.name}", "exec"), names)
        elif block.language == "yaml":
            _check(block.text, f"a block of {page.name}")
        for line in commands(block):
            if line not in done:
                _run(line, command)
            done.add(line)


def _check(text: str, where: str) -> None:
    """YAML in a page is a recipe, or a table for `qknorm reproduce`."""
    content = yaml.safe_load(text)
    if "rows" not in content:
        make_recipe(content, [], where)
        return
    Path("my-table.yaml").write_text(text, encoding="utf-8")
    load_table("my-table.yaml")


def _run(line: str, command: Command) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    if arguments[0] in NOT_RUN:
        return
    assert not {"|", "&&", ";", "<"} & set(arguments), f"{line}: this test understands > alone"
    written = None
    if ">" in arguments:
        written = Path(arguments[-1])
        assert arguments[-2] == ">", line
        arguments = arguments[:-2]
    for name in SUPPOSED_RUNS & set(re.findall(r"runs/([\w-]+)", line)):
        if not Path("runs", name).exists():
            _suppose_run(name, command)
    done = command(*arguments, *_shrunk(arguments).split(), stdin=b"The house is red.\n")
    assert done.code == 0, f"{line}\n{done.errors}"
    if written is not None:
        written.write_text(done.out, encoding="utf-8")


def _shrunk(arguments: list[str]) -> str:
    if arguments[0] != "train":
        return SHRUNK.get(arguments[0], "")
    if "--src" in arguments:
        return SHRUNK["translation"]
    if Path(arguments[1]).is_dir():
        return ""  # a run goes on with the recipe it was begun with
    return SHRUNK[read_recipe(Path(arguments[1])).get("task", "translation")]


def _suppose_run(name: str, command: Command) -> None:
    """All supposed runs are one and the same, trained when first needed, but for the seed in their recipes."""
    first = Path("runs", "supposed")
    if not first.exists():
        done = command("train", "recipes/phrasebook.yaml", "name=supposed", *SHRUNK["translation"].split())
        assert done.code == 0, done.errors
    run = TranslatorRun(shutil.copytree(first, first.with_name(name)))
    training = run.recipe.training.model_copy(update={"seed": int(name[-1])})
    run.save_recipe(run.recipe.model_copy(update={"training": training}))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_the_text_exist(page: Path) -> None:
    """What stands within a sentence is seldom a whole command, but its name and options must be real."""
    for code in in_backticks(page):
        words = code.split()
        if words[0] != "qknorm" or len(words) == 1:
            continue
        result: Any = typer.main.get_command(app)
        for word in words[1:]:
            if not hasattr(result, "commands"):
                break
            if word.startswith("-"):
                continue
            assert word in result.commands, f"{code}: there is no command {word}"
            result = result.commands[word]
        known = {option for parameter in result.params for option in parameter.opts} | {"--help", "--debug"}
        options = {word for word in words if re.fullmatch("--?[a-z][a-z-]*", word)}
        assert options <= known, f"{code}: there is no option {', '.join(options - known)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_targets_of_make_exist(page: Path) -> None:
    code = [line for block in blocks(page) for line in block.text.splitlines()] + in_backticks(page)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in code:
        if result := re.match(r"(?:\$ )?make ([a-z-]+)", line):
            assert result[1] in targets, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        left_out = IN_SDIST and re.fullmatch(r"(docs/)?measured/.*\.png", path)
        if "://" in link or left_out:
            continue
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in _anchors(target), f"{page.name} links to {link}, but there is no such heading"


def test_the_readme_cites_what_citation_cff_says() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (entry,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "bibtex")
    for field in ("title", "version", "license"):
        assert f"  {field} = {{{cited[field]}}},\n" in entry
    assert cited["version"] == qknorm.__version__


def _anchors(page: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
