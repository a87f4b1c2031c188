"""A newcomer's first command, with tiny models and without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from qknorm.data import corpora
from qknorm.errors import InputError
from qknorm.experiments import quickstart
from qknorm.runs.recipe import Recipe, checked, load_recipe, merged
from tests.caches import new_cache
from tests.journeys.conftest import Command

TINY = {"dim": 16, "feed_forward": 16, "encoder_layers": 1, "decoder_layers": 1, "heads": 2}


def test_two_models_a_verdict_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    result = corpora.get

    def unreachable(name: str, **options: Any) -> corpora.CorpusFolder:
        if name.startswith("tatoeba"):
            raise InputError("the package index cannot be reached")
        return result(name, **options)

    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    monkeypatch.setattr(corpora, "get", unreachable)
    real_recipe = quickstart.recipe

    def tiny_recipe(corpus: corpora.CorpusFolder, system: str) -> Recipe:
        given = real_recipe(corpus, system).model_dump(exclude_unset=True)
        training = {"max_updates": 30, "budget": 512, "validate_every": 30}
        return checked(Recipe, merged(given, {"model": TINY, "training": training}), "tiny")

    monkeypatch.setattr(quickstart, "recipe", tiny_recipe)
    monkeypatch.setattr(quickstart, "WITHOUT_NETWORK", "phrasebook-en-gl:500")
    done = command("quickstart")
    assert done.code == 0, done.errors
    assert "the package index cannot be reached" in done.out
    assert re.search(
        r"BLEU.*\(95 % interval [+-][0-9.]+ to [+-][0-9.]+, p (= [01]\.[0-9]+|≤ 0\.001)\)", _one_line(done.out)
    )
    assert "nothing is said about how another seed would have done" in _one_line(done.out)
    assert done.out.count("reference  ") == quickstart.EXAMPLES
    assert len(re.findall(r"^  (?:echo .*\| )?qknorm ", done.out, re.MULTILINE)) == 3
    folder = tmp_path / "quickstart"
    assert "</html>" in (folder / "report.html").read_text(encoding="utf-8")

    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}
    assert len(kept) == 2
    planned = load_recipe(folder / "plan.yaml").training.model_dump(exclude={"peak"})
    for path in kept:
        assert load_recipe(path.with_name("recipe.yaml")).training.model_dump(exclude={"peak"}) == planned, (
            "one plan for both"
        )
    models = {path.parent.name: load_recipe(path.with_name("recipe.yaml")).model for path in kept}
    assert {name: (model.qk_norm.kind, model.norm) for name, model in models.items()} == {
        "baseline": ("none", "scale"),
        "qknorm": ("lp", "layer"),
    }
    again = command("quickstart")
    assert again.code == 0, again.errors
    assert kept == {path: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}


def _one_line(text: str) -> str:
    return " ".join(text.split())
