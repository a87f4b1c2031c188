from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from qknorm.errors import InputError
from qknorm.runs.any_recipe import load_any_recipe
from qknorm.runs.recipe import load_recipe, make_recipe
from qknorm.runs.translator_run import TranslatorRun

BASE = {"data": {"corpus": "phrasebook-en-gl"}}
TRAPEZOID = {"schedule": "trapezoid", "max_updates": 2000, "decay": 500, "validate_every": 100, "max_validations": 20}


def problem(content: dict[str, object], *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        make_recipe({**BASE, **content}, overrides, "mine.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_defaults_are_the_papers_base_model() -> None:
    recipe = make_recipe(BASE, [], "")
    assert (recipe.model.dim, recipe.model.feed_forward, recipe.model.heads) == (512, 2048, 8)
    assert (recipe.training.budget, recipe.training.warmup, recipe.model.dropout) == (4096, 8000, 0.3)
    assert (recipe.decoding.beam_size, recipe.decoding.length_penalty) == (4, 0.6)


def test_recipes_come_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("phrasebook", "phrasebook.yaml", "recipes/phrasebook.yaml"):
        assert load_recipe(Path(name)).data.corpus == "phrasebook-en-gl"
    (tmp_path / "phrasebook").write_text("data: {corpus: ted-gl-en}")  # a file of one's own comes first
    assert load_recipe(Path("phrasebook")).data.corpus == "ted-gl-en"


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ({"model": {"head": 4}}, [], "mine.yaml: there is no key model.head; the nearest is model.heads"),
        ({"trainning": {}}, [], "mine.yaml: there is no key trainning; the nearest is training"),
        (
            {"training": {"glossary": 4}},
            [],
            "there is no key training.glossary; docs/recipes.md lists those of training",
        ),
        ({}, ["glossary=4"], "there is no key glossary; docs/recipes.md lists all"),
        ({}, ["sed=3"], "there is no key sed; the nearest is seed"),
        ({}, ["seed"], "write key=value"),
        ({"name": "mine"}, ["name.x=3"], "name is a value, not a group of keys"),
        ({"model": {"heads": 7}}, [], "model.heads (7) must divide model.dim (512)"),
        ({"data": {"source": "a"}}, [], "give either data.corpus"),
        ({"training": {"budget": "many"}}, [], "training.budget"),
        ({"model": {"norm": "batch"}}, [], "model.norm"),
        ({}, ["training.optimizer=sgd"], "training.optimizer: Input should be 'adam', 'adamw' or 'muon' (given: sgd)"),
        ({}, ["dev=d.en"], "data.dev: two are wanted, such as [FIRST, SECOND] (given: d.en)"),
        ({}, ["max_ratio=0.5"], "data.max_ratio: Input should be greater than or equal to 1"),
        ({}, ["seed=-1"], "training.seed: Input should be greater than or equal to 0 (given: -1)"),
        ({}, [f"seed={10**23}"], "training.seed: Input should be less than 9223372036854775808"),
        ({}, ["length_penalty=.nan"], "decoding.length_penalty: Input should be a finite number (given: nan)"),
        ({}, ["minutes=.inf"], "minutes: Input should be a finite number"),
        ({}, ["model.p=.nan"], "model.p: Input should be"),
        ({"data": {"corpus": "tatoeba", "pairs": [{"corpus": "tatoeba"}]}}, [], "the texts are given in each pair"),
        ({"data": {"pairs": [{"corpus": "phrasebook-en-gl"}] * 2}}, [], "two of data.pairs are en-gl"),
        (
            {"data": {"pairs": [{"corpus": "ted-gl-en"}, {"corpus": "ted-gl-en", "languages": ["en", "gl"]}]}},
            ["both_ways=true"],
            "two of data.pairs are gl-en; data.both_ways turns each round",
        ),
        ({"data": {"pairs": [{"source": "a"}]}}, [], "both data.source and data.target"),
        ({"data": {"pairs": [{"corpsu": "a"}]}}, [], "no key data.pairs.0.corpsu; the nearest is data.pairs.0.corpus"),
        ({"data": {"pairs": []}}, [], "or data.pairs"),
        ({"training": TRAPEZOID}, ["decay=null"], "training.schedule=trapezoid and training.decay belong together"),
        ({"training": TRAPEZOID}, ["decay=2001"], "training.decay (2001) must not exceed max_updates (2000)"),
        ({"training": TRAPEZOID}, ["max_validations=19"], "training.max_updates (2000) would never be reached"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_sentence(content: dict[str, object], settings: list[str], message: str) -> None:
    assert message in problem(content, *settings)


def test_keys_of_other_programs_are_translated() -> None:
    for key, meant in (
        ("lr", "here it is called peak"),
        ("num_layers", "here it is called encoder_layers and decoder_layers"),
        ("device", "a GPU is used where there is one"),
    ):
        assert problem({}, f"{key}=1") == f"there is no key {key}; {meant}"
        assert problem({"training": {key: 1}}).endswith(f"there is no key training.{key}; {meant}")


VALUES = st.sampled_from(
    ["[1, 2", "!!python/object:x", "*unknown", "2001-13-01", "9" * 5000, "{a: {b: [", "\x00", "!!int x", "- -"]
)
KEYS = st.sampled_from(["training.seed", "model.p", "name", "data.corpus", "data.languages", "dev", "qk_norm"])


@given(KEYS | st.text(max_size=30), VALUES | st.text(max_size=40))
def test_no_setting_is_a_traceback_or_a_long_story(key: str, value: str) -> None:
    sentence = ""
    try:
        make_recipe(BASE, [f"{key}={value}"], "mine.yaml")
    except InputError as error:
        sentence = str(error)
    assert len(sentence) < 600


def test_a_named_corpus_brings_its_languages() -> None:
    assert make_recipe(BASE, [], "").data.languages == ("en", "gl")
    assert make_recipe(BASE, ["languages=[en, pt]"], "").data.languages == ("en", "pt")


def test_pairs_are_given_in_place_of_one() -> None:
    pairs = [{"corpus": "phrasebook-en-gl"}, {"source": "a", "target": "b", "languages": ["gl", "en"]}]
    recipe = make_recipe({"data": {"pairs": pairs}}, [], "")
    assert [direction.languages for direction in recipe.data.directions] == [("en", "gl"), ("gl", "en")]
    assert [direction.corpus for direction in make_recipe(BASE, [], "").data.directions] == ["phrasebook-en-gl"]


def test_settings_change_a_recipe_and_a_name_is_taken_as_it_stands() -> None:
    settings = ["training.seed=7", "heads=4", "max_ratio=null", "name=other"]
    recipe = make_recipe({**BASE, "training": TRAPEZOID}, settings, "")
    assert (recipe.training.seed, recipe.model.heads, recipe.data.max_ratio, recipe.name) == (7, 4, None, "other")
    for name in ("2024", "no", "on", "1", "truelove", "falsetto"):
        assert make_recipe(BASE, [f"name={name}"], "").name == name


def test_no_is_norwegian(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("data: {source: a, target: b, languages: [no, en]}\ntraining: {wandb: on}")
    recipe = load_recipe(tmp_path / "recipe.yaml", ["tensorboard=yes"])
    assert recipe.data.languages == ("no", "en")
    assert recipe.training.wandb
    assert recipe.training.tensorboard


RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
SWEEPS = {"lp-shakespeare", "lp-heads", "learning-rates", "better-start"}  # tests/experiments/test_sweep.py plans them


@pytest.mark.parametrize("path", [path for path in RECIPES if path.stem not in SWEEPS], ids=lambda path: path.stem)
def test_the_recipes_of_the_project_are_valid(path: Path) -> None:
    assert load_any_recipe(path).name == path.stem


@pytest.mark.parametrize("content", ["", "- a\n- b\n", "data: [1", "\xff"])
def test_files_that_are_no_recipes_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "recipe.yaml").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"recipe\.yaml is not a"):
        load_recipe(tmp_path / "recipe.yaml")
    with pytest.raises(InputError, match="does not exist"):
        load_recipe(tmp_path / "nowhere.yaml")


def test_the_former_name_of_qk_norm_is_understood(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("data: {corpus: phrasebook-en-gl}\nmodel: {attention: dot}")
    assert TranslatorRun.open(tmp_path).recipe.model.qk_norm.kind == "none"
    assert load_recipe(tmp_path / "recipe.yaml", ["qk_norm=rms"]).model.qk_norm.kind == "rms"
    assert problem({}, "attention=dot") == "there is no key attention; here it is called qk_norm"
