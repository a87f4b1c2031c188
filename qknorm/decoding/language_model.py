"""LanguageModel: a trained run as a writer of text, one character at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from qknorm.data.characters import Characters
from qknorm.errors import InputError
from qknorm.models.gpt import GPT
from qknorm.processes import command_to_resume
from qknorm.runs.language_run import LanguageRun, gpt_config


class LanguageModel:
    """Continues texts. The same seed gives the same text."""

    def __init__(self, model: GPT, characters: Characters) -> None:
        self.model, self.characters = model.eval(), characters

    @classmethod
    def load(cls, folder: str | Path) -> LanguageModel:
        """The best checkpoint of a run folder."""
        run = LanguageRun.open(Path(folder))
        recipe, characters = run.recipe, run.characters
        model = GPT(gpt_config(recipe.model, len(characters)))
        if run.checkpoints.load_best(model) is None:
            raise InputError(f"{folder} has no checkpoint yet; go on with: {command_to_resume(run.folder)}")
        return cls(model.to("cuda" if torch.cuda.is_available() else "cpu"), characters)

    def generate(
        self,
        prompt: str,
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> str:
        """The prompt and `tokens` further characters."""
        return prompt + "".join(self.stream(prompt, tokens, temperature, top_k, seed))

    def stream(
        self, prompt: str, tokens: int, temperature: float = 1.0, top_k: int | None = None, seed: int | None = None
    ) -> Iterator[str]:
        """The characters after the prompt, each as soon as it is drawn.

        temperature: 1 is the model's own distribution, less is bolder, 0 takes the likeliest. top_k: only the k
        likeliest are drawn from. Wrong arguments are an InputError at the call, not at the first character.
        """
        if not 0 <= tokens < 2**63:
            raise InputError(f"tokens must be at least 0 and below 2**63, not {tokens:.6g}")
        if seed is not None and not -(2**63) <= seed < 2**64:
            raise InputError(f"a seed has at most 64 bits; {seed:.6g} is too large")
        if not 0 <= temperature < math.inf:
            raise InputError(f"temperature must be a number from 0 up, not {temperature}")
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k must be at least 1, not {top_k}")
        context = self.model.config.context
        if not 1 <= len(prompt) <= context:
            raise InputError(
                f"a prompt has 1 to {context} characters, which is what this model sees at a time; "
                f"this one has {len(prompt)}"
            )
        numbers: list[int] = self.characters.encode(prompt).tolist()
        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        return self._stream(numbers, tokens, temperature, top_k, generator)

    def _stream(
        self, numbers: list[int], tokens: int, temperature: float, top_k: int | None, generator: torch.Generator
    ) -> Iterator[str]:
        device, context = self.model.positions.weight.device, self.model.config.context
        caches, unread = self.model.start(), numbers
        for _ in range(tokens):
            if caches[0].length + len(unread) > context:
                # Positions are learned, so a full window cannot slide: its later half is read again as a new one.
                # That costs one reading per half a window, where sliding would cost one per character.
                caches, unread = self.model.start(), numbers[-max(1, context // 2) :]
            with torch.inference_mode():
                logits = self.model.step(torch.tensor([unread], device=device), caches)[0]
            number = draw(logits.float().cpu(), temperature, top_k, generator)
            numbers.append(number)
            unread = [number]
            yield self.characters.known[number]


def draw(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    """One number from logits (vocabulary,)."""
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -math.inf)
    # The largest is subtracted first, and in double precision: a tiny temperature must make neither infinities nor 0/0.
    probabilities = ((logits - logits.max()).double() / temperature).softmax(-1)
    return int(torch.multinomial(probabilities, 1, generator=generator))
