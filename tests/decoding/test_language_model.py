from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from qknorm import LanguageModel
from qknorm.data.characters import Characters
from qknorm.decoding.language_model import draw
from qknorm.errors import InputError
from qknorm.models.gpt import GPT, GPTConfig
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.language_run import LanguageRun, gpt_config


@pytest.fixture(params=[{"qk_norm": None}, {"qk_norm": {"kind": "lp", "p": 3.0}}])
def writer(request: pytest.FixtureRequest) -> LanguageModel:
    torch.manual_seed(1)
    model = GPT(GPTConfig(26, context=12, layers=2, heads=2, dim=16, **request.param))
    for parameter in model.parameters():  # away from the start, where all characters are equally likely
        torch.nn.init.normal_(parameter, std=0.5) if parameter.dim() == 2 else None
    return LanguageModel(model, Characters.of("abcdefghijklmnopqrstuvwxyz"))


def test_the_same_seed_gives_the_same_text(writer: LanguageModel) -> None:
    text = writer.generate("abc", tokens=50, seed=3)
    assert text.startswith("abc")
    assert len(text) == 53
    assert writer.generate("abc", tokens=50, seed=3) == text
    assert writer.generate("abc", tokens=50, seed=4) != text
    assert "".join(writer.stream("abc", 50, seed=3)) == text[3:]


def test_the_cache_changes_nothing(writer: LanguageModel) -> None:
    """Each character is the likeliest after the window that is visible: all, or what followed the last restart.

    Where two are equally likely but for rounding, either will do.
    """
    text = writer.generate("abc", tokens=60, temperature=0)
    begin = 0
    for place in range(3, 63):
        if place - begin > 12:
            begin = place - 6
        window = writer.characters.encode(text[begin:place])[None]
        with torch.no_grad():
            logits = writer.model.step(window, writer.model.start())[0]
        assert logits[writer.characters.known.index(text[place])] >= logits.max() - 1e-4


def test_one_choice_is_the_likeliest(writer: LanguageModel) -> None:
    likeliest = writer.generate("x", tokens=30, temperature=0)
    assert writer.generate("x", tokens=30, top_k=1, seed=5) == likeliest
    assert writer.generate("x", tokens=30, temperature=1e-30, seed=5) == likeliest


@pytest.mark.parametrize("temperature", [1e-45, 1e-320, 5e-324])
def test_no_temperature_is_too_small(temperature: float) -> None:
    assert draw(torch.tensor([0.0, 2.0, 1.0]), temperature, None, torch.Generator()) == 1


def test_characters_are_drawn_as_often_as_they_are_likely() -> None:
    logits, generator = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.Generator().manual_seed(0)
    drawn = torch.tensor([draw(logits, 2.0, 3, generator) for _ in range(4000)])
    expected = torch.tensor([-math.inf, 0.5, 1.0, 1.5]).softmax(0)
    torch.testing.assert_close(torch.bincount(drawn, minlength=4) / 4000, expected, atol=0.03, rtol=0)


def test_a_run_without_its_optimiser_generates(tmp_path: Path) -> None:
    model = {"layers": 1, "heads": 1, "dim": 8, "context": 12}
    recipe = LanguageRecipe.model_validate({"data": {"file": "gone.txt"}, "model": model})
    run, writer = LanguageRun(tmp_path), LanguageModel(GPT(gpt_config(recipe.model, 3)), Characters.of("abc"))
    run.save_recipe(recipe)
    writer.characters.save(run.characters_file)
    saved = run.checkpoints.save(1, writer.model, torch.optim.Adam(writer.model.parameters()), {})
    (saved / "optimizer.safetensors").unlink()
    assert LanguageModel.load(tmp_path).generate("ab", 9, seed=0) == writer.generate("ab", 9, seed=0)


@pytest.mark.parametrize(
    ("prompt", "arguments", "message"),
    [
        ("abC", {}, "the character 'C'"),
        ("", {}, "a prompt has 1 to 12 characters"),
        ("a" * 13, {}, "a prompt has 1 to 12 characters.*this one has 13"),
        ("a", {"tokens": -1}, "tokens must be at least 0"),
        ("a", {"tokens": 2**63}, "tokens must be .* below 2"),
        ("a", {"seed": 2**64}, "too large"),
        ("a", {"seed": -(2**63) - 1}, "too large"),
        ("a", {"temperature": -0.5}, "temperature must be"),
        ("a", {"temperature": math.nan}, "temperature must be"),
        ("a", {"top_k": 0}, "top_k must be at least 1"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    writer: LanguageModel, prompt: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        writer.generate(prompt, **arguments)
