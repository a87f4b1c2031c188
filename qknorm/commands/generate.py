"""`qknorm generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def generate(
    run: Annotated[Path, typer.Argument(help="The folder of a trained language model.")],
    prompt: Annotated[str, typer.Option(help="What the text begins with; at most the model's context.")] = "\n",
    tokens: Annotated[int, typer.Option(min=0, help="Characters to write.")] = 300,
    temperature: Annotated[float, typer.Option(min=0, help="Less is bolder; 0 takes the likeliest.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from the k likeliest characters only.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
) -> None:
    """Let a language model continue a prompt, character by character."""
    from qknorm.decoding.language_model import LanguageModel

    characters = LanguageModel.load(run).stream(prompt, tokens, temperature, top_k, seed)
    print(prompt, end="", flush=True)
    for character in characters:
        print(character, end="", flush=True)
    print()
