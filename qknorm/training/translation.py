"""Training a translator: from a recipe to a run folder with a scored model."""

from __future__ import annotations

import shlex
import shutil
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from qknorm import processes
from qknorm.attention.observed import weights_of_head
from qknorm.attention.watch import watch
from qknorm.counting.guide import Guide
from qknorm.counting.kept import counted, translations
from qknorm.data.batches import Batch, BatchSampler, DropoutPairs, PairData
from qknorm.data.importers import Pair
from qknorm.data.prepared import CORPUS, DROPPED, TOKENIZER, Prepared
from qknorm.data.subwords import PAD
from qknorm.data.textfiles import write_lines
from qknorm.decoding.beam import BeamSettings
from qknorm.decoding.translator import Translator
from qknorm.errors import InputError
from qknorm.evaluation.scores import scores
from qknorm.evaluation.wording import TOO_SHORT
from qknorm.metrics.metric import Metric
from qknorm.metrics.script import bleu_tokenizer
from qknorm.metrics.table import METRICS, is_too_short_for_bleu
from qknorm.models.translator import TAUGHT_HEAD, TranslatorModel
from qknorm.optimisation.optimisers import make_optimiser
from qknorm.optimisation.schedules import SCHEDULES, Schedule
from qknorm.runs.contents import Details
from qknorm.runs.recipe import Recipe, refuse_changes, settled
from qknorm.runs.run import other_text, refuse_to_overwrite
from qknorm.runs.translator_run import TranslatorRun
from qknorm.screen import Screen
from qknorm.training.doubts import doubts
from qknorm.training.loggers.table import chosen_loggers
from qknorm.training.planned import planned_recipe
from qknorm.training.prolonged import is_worth_prolonging, prolong
from qknorm.training.sets import Sets, forget_splits, parts_of, prepare_sets, read_sets, vocabulary_digest
from qknorm.training.trainer import Trainer, TrainerSettings
from qknorm.training.validation import Validation

_WATCHED = 16  # sentences of the dev set in which heads are watched
_ALWAYS = ("bleu", "chrf")  # measured, whichever metric is chosen
_MEANINGS = (
    (40, "Most sentences can be used as they are, or almost; check names and numbers."),
    (30, "Most sentences can be understood, and corrected faster than translated anew."),
    (20, "The gist is clear; most sentences have mistakes."),
    (10, "The gist can be guessed; more text would help."),
    (0, "Hardly of use yet; more text would help."),
)
# Galician talks whose English has 18 BLEU of words have 40 of characters.
_OF_CHARACTERS = (
    "BLEU counts characters in this script, which gives far more than words: read some translations to judge."
)
_FEW_LINES = 100  # chance then moves BLEU by more than most changes of a recipe do
_OF_FEW_LINES = "So few lines cannot tell how good it is: other lines would have other scores. Read some translations."


class TranslationTask:
    """What the trainer needs to know about translation."""

    def __init__(
        self, recipe: Recipe, model: TranslatorModel, prepared: Prepared, sets: Sequence[Sets], console: Screen
    ) -> None:
        self.model, self.recipe, self.sets, self.console = model, recipe, sets, console
        training, decoding = recipe.training, recipe.decoding
        data: list[PairData] = [direction.encoded for direction in prepared.directions]
        if recipe.data.bpe_dropout:
            data = [
                DropoutPairs(
                    prepared.subwords, direction.sources, direction.targets, recipe.data.bpe_dropout, training.seed
                )
                for direction in prepared.directions
            ]
        self.batches = BatchSampler(data, training.budget, training.seed, processes.rank(), processes.count())
        settings = BeamSettings(decoding.validation_beam_size, decoding.length_penalty, decoding.extra_length)
        self.guide = Guide(translations(prepared, console)).to(model.languages.device) if training.taught else None
        self._shown = 0
        """Examples so far."""
        self.translators = [Translator(model, prepared.subwords, settings, direction) for direction in model.directions]

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        tokens = batch.target_tokens  # counted before a GPU has them, which would have to be waited for
        batch = batch.to(self.model.languages.device)
        dropped = batch.with_word_dropout(self.recipe.training.word_dropout)
        weight = self._weight_of_guide()
        if self.guide is None or weight <= 0:
            return self.model(dropped), tokens
        with weights_of_head(self.model.taught_attention, TAUGHT_HEAD) as seen:
            loss: Tensor = self.model(dropped)
        lesson = weight * self.guide.loss(seen[0], batch)
        return loss + (lesson - lesson.detach()), tokens  # it teaches, but is not part of what is shown

    def _weight_of_guide(self) -> float:
        """It falls from 1 to 0 over the first updates."""
        training = self.recipe.training
        updates = self.batches.drawn / (training.accumulate * processes.count())
        return 1 - updates / training.taught if training.taught else 0.0

    def validate(self) -> Validation:
        """The mean of the pairs' scores; with several, each pair's too."""
        translations = [
            translator.translate([pair.source for pair in sets.dev])
            for translator, sets in zip(self.translators, self.sets, strict=True)
        ]
        self._show_example(translations)
        by_direction = {
            sets.name: self._scores(lines, sets) for lines, sets in zip(translations, self.sets, strict=True)
        }
        means = {name: sum(own[name] for own in by_direction.values()) / len(by_direction) for name in self._measured()}
        chosen = self.recipe.training.metric
        return Validation(
            {**means, "dev_loss": self._dev_loss()},
            f"dev_{chosen}",
            METRICS[chosen].more_is_better,
            by_direction if len(by_direction) > 1 else {},
            details=Details(entropy=self._entropies()),
        )

    def _measured(self) -> dict[str, Metric]:
        """The chosen metric and those that every run has, by their names in metrics.jsonl."""
        return {f"dev_{name}": METRICS[name] for name in (self.recipe.training.metric, *_ALWAYS)}

    def _scores(self, translations: list[str], sets: Sets) -> dict[str, float]:
        references, tokenized = [pair.target for pair in sets.dev], self.recipe.data.scheme == "words"
        return {name: metric.score(translations, references, tokenized) for name, metric in self._measured().items()}

    def _show_example(self, translations: list[list[str]]) -> None:
        """A sentence, at each validation the next one; from each pair in turn."""
        row, direction = divmod(self._shown, len(self.sets))
        dev = self.sets[direction].dev
        source, reference = dev[row % len(dev)]
        self.console.print(f"  {source}\n  → {translations[direction][row % len(dev)]}\n  = {reference}")
        self._shown += 1

    @torch.no_grad()
    def _entropies(self) -> dict[str, list[float]]:
        """Of each attention layer by its name and each head of it: how diffuse it is, 0 one word, 1 all alike."""
        with watch(self.model, every=1) as seen:
            for pair in self.sets[0].dev[:_WATCHED]:  # one by one: padding looks somewhere, too
                self.model(self._dev_batch([pair], 0))
        names = seen.looks[0].layers
        return {
            name: torch.tensor([look.layers[name]["entropy"] for look in seen.looks]).nanmean(0).tolist()
            for name in names
        }

    @torch.no_grad()
    def _dev_loss(self) -> float:
        """The loss per token, over all directions."""
        total, tokens = 0.0, 0
        for direction, sets in enumerate(self.sets):
            for start in range(0, len(sets.dev), 64):
                batch = self._dev_batch(sets.dev[start : start + 64], direction)
                total += float(self.model(batch)) * batch.target_tokens
                tokens += batch.target_tokens
        return total / tokens

    def _dev_batch(self, pairs: Sequence[Pair], direction: int) -> Batch:
        """Sentences of a dev set as a batch. Pieces outside of the target vocabulary are not asked for."""
        subwords = self.translators[0].subwords
        encoded = [subwords.encode([pair[side] for pair in pairs]) for side in (0, 1)]
        batch = Batch.of(encoded[0], encoded[1], direction).to(self.model.languages.device)
        vocabulary = self.model.target_vocabulary(self.model.directions[direction])
        known = (batch.target_out == PAD) | torch.isin(batch.target_out, vocabulary)
        return replace(batch, target_out=torch.where(known, batch.target_out, PAD))


def train(recipe: Recipe, folder: Path, console: Screen, resume: bool, more_minutes: float | None = None) -> None:
    """Train from the beginning, or go on where an interrupted run stands; then translate and score the test set.

    more_minutes: a run that has ended goes on for this long.
    """
    run = TranslatorRun(folder)
    if resume:
        recipe = settled(recipe, TranslatorRun.open(folder).recipe)
        refuse_changes(run.recipe, recipe, folder)
    else:
        processes.from_first(partial(_make_room, run, recipe))
        if recipe.minutes is not None:
            try:
                recipe = processes.from_first(partial(planned_recipe, recipe, folder, console))
            except KeyboardInterrupt:
                console.print("\nStopped while the plan was made: nothing has been trained, and there is no run yet.")
                raise
    settings = settings_of(recipe)
    torch.manual_seed(recipe.training.seed)
    sets, prepared = processes.first_then_others(lambda: _make_ready(run, recipe, resume))
    if more_minutes is not None:  # only now: whatever can be wrong has been looked for
        recipe = processes.from_first(partial(prolong, run, more_minutes, sets, prepared, console))
        settings = settings_of(recipe)
    model = run.make_model().to(processes.device())
    _introduce(model, run, sets, prepared, console)
    if not resume and processes.rank() == 0:
        _warn(run, recipe, sets, prepared)
    task = TranslationTask(recipe, model, prepared, sets, console)
    trainer = Trainer(task, make_optimiser(model, recipe.training), _schedule(recipe), settings, folder, console)
    is_resumed = resume and trainer.resume()
    if resume:
        console.print(trainer.where_it_goes_on())
    if not is_resumed and recipe.model.embedding_init == "counted":
        # Of the first process: rounding on another machine may turn them.
        count = partial(counted, prepared, recipe.model.dim, recipe.training.seed, console)
        vectors = processes.from_first(count)
        model.embedding.start_at(torch.from_numpy(vectors))
    try:
        trainer.train()
    except KeyboardInterrupt:
        command = processes.command_to_resume(folder, processes.count())
        console.print(f"\nSaved after update {trainer.progress.step:,}. Go on with: {command}")
        raise
    if processes.rank() == 0:
        _score_tests(run, sets, console)
        _say_what_is_next(run.folder, is_worth_prolonging(recipe, prepared, trainer.progress), console)


def _make_ready(run: TranslatorRun, recipe: Recipe, resume: bool) -> tuple[list[Sets], Prepared]:
    """Read the corpus, and begin the run folder (the first process does)."""
    begins = not resume and processes.rank() == 0
    sets = read_sets(recipe.data, run.data_folder)
    prepared = prepare_sets(sets, recipe.data)
    if begins:
        _start(run, recipe, sets, prepared)
    elif run.parts.corpus != prepared.folder.name:
        raise InputError(other_text(run.folder))
    elif run.parts.vocabulary != vocabulary_digest(prepared):
        raise InputError(
            f"{run.folder} cannot go on: its text had to be prepared anew, and the vocabulary came out otherwise; "
            "install the version of tokenizers that it was begun with, or choose another name=NAME"
        )
    return sets, prepared


def _make_room(run: TranslatorRun, recipe: Recipe) -> None:
    """A new run takes nothing from an earlier attempt that failed before it was a run: it may have had other text."""
    refuse_to_overwrite(run)
    forget_splits(recipe.data, run.data_folder)


def _start(run: TranslatorRun, recipe: Recipe, sets: Sequence[Sets], prepared: Prepared) -> None:
    """Fill a new run folder with all but checkpoints. The recipe comes last: with it the folder is a run."""
    run.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(prepared.folder / CORPUS, run.corpus_file)
    shutil.copyfile(prepared.folder / TOKENIZER, run.tokenizer_file)
    for own, prepared_direction in zip(sets, prepared.directions, strict=True):
        shutil.copyfile(prepared_direction.folder / DROPPED, run.dropped_file(_code(own, sets)))
    parts_of(recipe, sets, prepared).write(run.pairs_file)
    run.save_recipe(recipe)


def _introduce(
    model: TranslatorModel, run: TranslatorRun, sets: Sequence[Sets], prepared: Prepared, console: Screen
) -> None:
    kept, read = (sum(direction.report[key] for direction in prepared.directions) for key in ("kept", "read"))
    dev, test = sum(len(own.dev) for own in sets), sum(len(own.test) for own in sets)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"{kept:,} of {read:,} pairs to learn from, {dev:,} for dev, {test:,} for test; "
        f"{len(prepared.subwords):,} pieces, {parameters:,} parameters"
    )
    for own, direction in zip(sets, prepared.directions, strict=True):
        if dropped := Counter(direction.report["dropped"]):
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common())
            console.print(f"dropped: {reasons}; every line is in {run.dropped_file(_code(own, sets))}")


def _warn(run: TranslatorRun, recipe: Recipe, sets: Sequence[Sets], prepared: Prepared) -> None:
    """Of what looks wrong with the text."""
    for given, own, direction in zip(recipe.data.directions, sets, prepared.directions, strict=True):
        for doubt in doubts(given, own, direction, run.dropped_file(_code(own, sets))):
            warnings.warn(doubt, stacklevel=2)


def _code(direction: Sets, sets: Sequence[Sets]) -> str:
    """What the files of a language pair have in their names: nothing, unless there are several."""
    return direction.name if len(sets) > 1 else ""


def _schedule(recipe: Recipe) -> Schedule:
    training = recipe.training
    kind = SCHEDULES[training.schedule]
    peak = training.peak or kind.usual_peak(recipe.model.dim, training.warmup)
    warmup = training.warmup if kind.warms_up else 0
    return kind(peak, warmup, training.total_updates, decay=training.decay or 0)


def settings_of(recipe: Recipe) -> TrainerSettings:
    """What the trainer of this recipe is told."""
    training = recipe.training
    return TrainerSettings(
        validate_every=training.validate_every,
        max_validations=training.max_validations,
        max_updates=training.max_updates,
        min_rate=training.min_rate,
        stop_after=training.stop_after,
        accumulate=training.accumulate,
        clip=training.clip,
        validation_decay=not SCHEDULES[training.schedule].ends_in_decay,
        precision=training.precision,
        average=training.average,
        loggers=chosen_loggers(training),
    )


def _score_tests(run: TranslatorRun, sets: Sequence[Sets], console: Screen) -> None:
    """Translate each pair's test set: into test/, or into test/en-gl/ and so on if there are several."""
    translator = Translator.load(run.folder, sets[0].name)
    for direction in sets:
        test = run.test_set(_code(direction, sets))
        sources, references = [pair.source for pair in direction.test], [pair.target for pair in direction.test]
        translated = [best for best, *_ in translator.with_direction(direction.name).translations(sources)]
        translations = [best.text for best in translated]
        test.scores_file.unlink(missing_ok=True)  # of a run that was prolonged: they are not those of the new lines
        for path, lines in ((test.source, sources), (test.references, references), (test.hypotheses, translations)):
            write_lines(path, lines)
        tokenized = run.recipe.data.scheme == "words"
        values = scores(translations, references, tokenized, direction.languages[1])
        values.write(test.scores_file)
        label = f"test {direction.name}" if len(sets) > 1 else "test"
        told = ", ".join(f"{METRICS[name].label} {values.measures[name]:.2f}" for name in _ALWAYS)
        console.print(f"{label}: {told} ({values.lines:,} lines)")
        for note, number in Counter(note for best in translated for note in best.notes).items():
            console.print(f"  {note} ({number:,} lines)")
        console.print(f"  {meaning_of(values.bleu, references, tokenized)}")


def _say_what_is_next(folder: Path, is_worth_prolonging: bool, console: Screen) -> None:
    name = shlex.quote(str(folder))
    lines = [
        f"The model is {folder}. Next:",
        f"  qknorm translate {name} FILE       translate a text file, line by line",
        f"  qknorm report {name}               look at scores, curves and examples in a browser",
    ]
    if is_worth_prolonging:
        lines.append(f"  qknorm train {name} --minutes 60   let it learn on; it says when a new run would be better")
    console.print("\n".join(lines))


def meaning_of(bleu: float, references: Sequence[str], tokenized: bool) -> str:
    """What a score promises to a reader, roughly: BLEU depends on the text, and compares systems on the same text."""
    if is_too_short_for_bleu(references, tokenized):
        return TOO_SHORT
    if len(references) < _FEW_LINES:
        return _OF_FEW_LINES
    if bleu_tokenizer(references) == "char":
        return _OF_CHARACTERS
    return next(meaning for least, meaning in _MEANINGS if bleu >= least)
