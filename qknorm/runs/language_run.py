"""The run folder of a language model.

runs/NAME/  beside what every run has: characters.json
"""

from __future__ import annotations

from qknorm.data.characters import Characters, CharacterText
from qknorm.data.corpus_report import TextReport
from qknorm.errors import InputError
from qknorm.models.gpt import GPTConfig
from qknorm.runs.language_recipe import GPTRecipe, LanguageRecipe
from qknorm.runs.run import InFolder, Run, other_text


class LanguageRun(Run):
    """A language model on disk."""

    characters_file = InFolder("characters.json")

    @property
    def recipe(self) -> LanguageRecipe:
        return self.recipe_of(LanguageRecipe)

    @property
    def characters(self) -> Characters:
        return Characters.load(self.characters_file)

    @property
    def text(self) -> TextReport:
        """What is known about the text."""
        return TextReport.of_file(self.corpus_file)

    def begin(self, recipe: LanguageRecipe, text: CharacterText) -> None:
        """Fill a new run folder with all but checkpoints."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text.characters.save(self.characters_file)
        TextReport(characters=len(text.numbers), lines=text.lines, sha256=text.sha256).write(self.corpus_file)
        self.save_recipe(recipe)

    def refuse_other_text(self, text: CharacterText) -> None:
        """A run goes on with the text that it was begun with."""
        if self.text.sha256 != text.sha256:
            raise InputError(other_text(self.folder))


def gpt_config(model: GPTRecipe, vocabulary: int) -> GPTConfig:
    """The model that a recipe describes, with the start of g as a number."""
    settings = model.model_dump(exclude={"qk_norm"})
    return GPTConfig(vocabulary, **settings, qk_norm=model.qk_norm.starting_at(scale_start(model)))


def scale_start(model: GPTRecipe) -> float | None:
    """Where g starts; None without one, or where it starts as sharp as plain attention."""
    return model.qk_norm.first_scale(model.context, model.dim // model.heads)
