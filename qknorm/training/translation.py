"""Training a translator: from a recipe to a run folder with a scored model."""

from __future__ import annotations

import shlex
import shutil
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
from qknorm.data.prepared import DROPPED, TOKENIZER, Prepared
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
from qknorm.runs.contents import Calibrations, Details
from qknorm.runs.recipe import Recipe, refuse_changes, settled
from qknorm.runs.run import other_text, refuse_to_overwrite
from qknorm.runs.translator_run import TranslatorRun
from qknorm.screen import Screen
from qknorm.training.backwards import with_back_translations
from qknorm.training.calibration import calibrated
from qknorm.training.doubts import doubts, of_any_text, of_borrowed
from qknorm.training.loggers.table import chosen_loggers
from qknorm.training.parents import as_child, doubts_about_parent, take_over, vocabulary_file
from qknorm.training.planned import planned_recipe
from qknorm.training.prolonged import is_worth_prolonging, prolong
from qknorm.training.sets import parts_of, prepared_text, vocabulary_digest
from qknorm.training.trainer import Trainer, TrainerSettings
from qknorm.training.validation import Validation
from qknorm.training.word_lists import with_word_lists

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

    def __init__(self, recipe: Recipe, model: TranslatorModel, prepared: Prepared, console: Screen) -> None:
        self.model, self.recipe, self.prepared, self.console = model, recipe, prepared, console
        training, decoding = recipe.training, recipe.decoding
        self.batches = batches_of(recipe, prepared, model)
        self.ends_after(training.total_updates)
        settings = BeamSettings(decoding.validation_beam_size, decoding.length_penalty, decoding.extra_length)
        self.guide = Guide(translations(prepared, console)).to(model.languages.device) if training.taught else None
        dev = [direction.dev.encoded for direction in prepared.directions]
        self.dev = [(list(pairs.source), list(pairs.target)) for pairs in dev]
        """The pieces of each direction's dev set."""
        self._shown = 0
        """Examples so far."""
        own = model.directions[: len(prepared.directions)]
        pipeline = recipe.data.pipeline
        self.translators = [
            Translator(model, prepared.subwords, settings, direction, pipeline=pipeline) for direction in own
        ]

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

    def ends_after(self, updates: int) -> None:
        """Nothing that is borrowed is learned from in the last updates."""
        training = self.recipe.training
        if training.own:
            self.batches.own_from = max(updates - training.own, 0) * training.accumulate * processes.count()

    def validate(self) -> Validation:
        """The mean of the pairs' scores; with several, each pair's too."""
        directions = self.prepared.directions
        translations = [
            translator.translate(direction.dev.sources)
            for translator, direction in zip(self.translators, directions, strict=True)
        ]
        self._show_example(translations)
        by_direction = {
            direction.files.name: self._scores(lines, direction.dev.targets)
            for lines, direction in zip(translations, directions, strict=True)
        }
        means = {
            name: sum(scores[name] for scores in by_direction.values()) / len(by_direction) for name in self._measured()
        }
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

    def _scores(self, translations: list[str], references: list[str]) -> dict[str, float]:
        tokenized = self.recipe.data.scheme == "words"
        return {name: metric.score(translations, references, tokenized) for name, metric in self._measured().items()}

    def _show_example(self, translations: list[list[str]]) -> None:
        """A sentence, at each validation the next one; from each pair in turn."""
        row, number = divmod(self._shown, len(translations))
        dev = self.prepared.directions[number].dev
        row %= len(dev)
        self.console.print(f"  {dev.sources[row]}\n  → {translations[number][row]}\n  = {dev.targets[row]}")
        self._shown += 1

    @torch.no_grad()
    def _entropies(self) -> dict[str, list[float]]:
        """Of each attention layer by its name and each head of it: how diffuse it is, 0 one word, 1 all alike."""
        with watch(self.model, every=1) as seen:
            for row in range(min(_WATCHED, len(self.dev[0][0]))):
                self.model(self._dev_batch(slice(row, row + 1), 0))  # one by one: padding looks somewhere, too
        names = seen.looks[0].layers
        return {
            name: torch.tensor([look.layers[name]["entropy"] for look in seen.looks]).nanmean(0).tolist()
            for name in names
        }

    @torch.no_grad()
    def _dev_loss(self) -> float:
        """The loss per token, over all directions."""
        total, tokens = 0.0, 0
        for number, (sources, _) in enumerate(self.dev):
            for start in range(0, len(sources), 64):
                batch = self._dev_batch(slice(start, start + 64), number)
                total += float(self.model(batch)) * batch.target_tokens
                tokens += batch.target_tokens
        return total / tokens

    def _dev_batch(self, rows: slice, number: int) -> Batch:
        """Sentences of a dev set as a batch. Pieces outside of the target vocabulary are not asked for."""
        sources, targets = self.dev[number]
        batch = Batch.of(sources[rows], targets[rows], number).to(self.model.languages.device)
        vocabulary = self.model.target_vocabulary(self.model.directions[number])
        known = (batch.target_out == PAD) | torch.isin(batch.target_out, vocabulary)
        return replace(batch, target_out=torch.where(known, batch.target_out, PAD))


def batches_of(recipe: Recipe, prepared: Prepared, model: TranslatorModel) -> BatchSampler:
    """What this process learns: one's own pairs, and what is borrowed by its weight."""
    training, dropout = recipe.training, recipe.data.bpe_dropout
    sets = [text.train for text in prepared.texts]
    data: list[PairData] = [train.encoded for train in sets]
    if dropout:
        data = [DropoutPairs(prepared.subwords, train.sources, train.targets, dropout, training.seed) for train in sets]
    weights = [1.0] * len(prepared.directions) + [extra.weight for extra in recipe.data.borrowed]
    number_of = {direction.name: direction.number for direction in model.directions}
    numbers = [number_of[text.files.name] for text in prepared.texts]
    rank, count = processes.rank(), processes.count()
    codes = {direction.files.languages for direction in prepared.directions}
    own = [text.files.languages in codes for text in prepared.texts]
    return BatchSampler(data, training.budget, training.seed, rank, count, weights, numbers, own)


def train(recipe: Recipe, folder: Path, console: Screen, resume: bool, more_minutes: float | None = None) -> None:
    """Train from the beginning, or go on where an interrupted run stands; then translate and score the test set.

    more_minutes: a run that has ended goes on for this long.
    """
    run = TranslatorRun(folder)
    planned: Prepared | None = None
    if resume:
        recipe = settled(recipe, TranslatorRun.open(folder).recipe)
        refuse_changes(run.recipe, recipe, folder)
    else:
        processes.from_first(partial(refuse_to_overwrite, run))
        recipe = with_word_lists(as_child(recipe), folder)
        recipe = with_back_translations(recipe, folder, console, train)
        if recipe.minutes is not None:
            recipe, planned = _planned(recipe, console)
    settings = settings_of(recipe)
    torch.manual_seed(recipe.training.seed)
    prepared = processes.first_then_others(lambda: planned or _prepared(run, recipe, resume))
    if not resume:
        processes.from_first(partial(_start, run, recipe, prepared))
    if more_minutes is not None:  # only now: whatever can be wrong has been looked for
        recipe = processes.from_first(partial(prolong, run, more_minutes, prepared, console))
        settings = settings_of(recipe)
    model = run.make_model().to(processes.device())
    _introduce(model, run, prepared, console)
    if not resume:
        _say_doubts(run, recipe, prepared, console)
    task = TranslationTask(recipe, model, prepared, console)
    trainer = Trainer(task, make_optimiser(model, recipe.training), _schedule(recipe), settings, folder, console)
    is_resumed = resume and trainer.resume()
    if not is_resumed and recipe.parent is not None:
        take_over(model, prepared.subwords, Path(recipe.parent))
    elif not is_resumed and recipe.model.embedding_init == "counted":
        # Of the first process: rounding on another machine may turn them.
        count = partial(counted, prepared, recipe.model.dim, recipe.training.seed, console)
        vectors = processes.from_first(count)
        model.embedding.start_at(torch.from_numpy(vectors))
    trainer.train()
    if processes.rank() == 0:
        _score_tests(run, prepared, console)
        pair = prepared.code(prepared.directions[0])
        _say_what_is_next(run.folder, pair, is_worth_prolonging(recipe, prepared, trainer.progress), console)


def _planned(recipe: Recipe, console: Screen) -> tuple[Recipe, Prepared | None]:
    """The recipe with all that its minutes decide; and, in the process that planned, the text as it was made ready."""
    prepared: Prepared | None = None

    def plan() -> Recipe:
        nonlocal prepared
        planned, prepared = planned_recipe(recipe, console)
        return planned

    try:
        return processes.from_first(plan), prepared
    except KeyboardInterrupt:
        console.print("\nStopped while the plan was made: nothing has been trained, and there is no run yet.")
        raise


def _prepared(run: TranslatorRun, recipe: Recipe, resume: bool) -> Prepared:
    """The text, made ready; a run that is resumed must have begun with the same."""
    if not resume:
        return prepared_text(recipe.data, vocabulary=vocabulary_file(recipe))
    parts = run.parts
    prepared = prepared_text(recipe.data, earlier=run.earlier_sets, vocabulary=run.taken_vocabulary)
    if parts.corpus != prepared.key:
        raise InputError(other_text(run.folder))
    if parts.vocabulary != vocabulary_digest(prepared):
        raise InputError(
            f"{run.folder} cannot go on: its text had to be prepared anew, and the vocabulary came out otherwise; "
            "install the version of tokenizers that it was begun with, or choose another name=NAME"
        )
    return prepared


def _start(run: TranslatorRun, recipe: Recipe, prepared: Prepared) -> None:
    """Fill a new run folder with all but checkpoints. The recipe comes last: with it the folder is a run."""
    run.folder.mkdir(parents=True, exist_ok=True)
    prepared.report.write(run.corpus_file)
    shutil.copyfile(prepared.folder / TOKENIZER, run.tokenizer_file)
    if taken := vocabulary_file(recipe):
        shutil.copyfile(taken, run.parent_tokenizer_file)
    for text in prepared.as_read:
        shutil.copyfile(text.folder / DROPPED, run.dropped_file(prepared.code(text)))
    parts_of(recipe, prepared).write(run.pairs_file)
    run.save_recipe(recipe)


def _introduce(model: TranslatorModel, run: TranslatorRun, prepared: Prepared, console: Screen) -> None:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"{_sums(prepared)}; {len(prepared.subwords):,} pieces, {parameters:,} parameters")
    for report, files in ((text.report, text.files) for text in prepared.as_read if text.files.is_borrowed):
        console.print(f"borrowed, {files.name}: {report.kept:,} of {report.read:,} pairs of {files.source}")
    for text in prepared.as_read:
        if dropped := Counter(text.report.dropped):
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common())
            console.print(f"dropped: {reasons}; every line is in {run.dropped_file(prepared.code(text))}")
    if near := sum(text.report.near_copies or 0 for text in prepared.as_read):
        console.print(f"{near:,} pairs to learn from share six words in a row with dev or test")


def _sums(prepared: Prepared) -> str:
    """What became of the pairs that were read, in numbers that add up."""
    directions = [text for text in prepared.as_read if not text.files.is_borrowed]
    reports = [direction.report for direction in directions]
    read, kept = sum(report.read for report in reports), sum(report.kept for report in reports)
    dropped = sum(sum(report.dropped.values()) for report in reports)
    split_off = Counter[str]()
    for report in reports:
        split_off.update(report.split_off or {})
    sets = {name: sum(len(direction.held_out[name]) for direction in directions) for name in ("dev", "test")}
    parts = [f"{dropped:,} dropped", *(f"{count:,} for {name}" for name, count in split_off.items())]
    given = [f"{sets[name] - split_off[name]:,} for {name}" for name in sets if sets[name] > split_off[name]]
    beside = f"; beside them {', '.join(given)}" if given else ""
    both_ways = ", both ways" if len(directions) < len(prepared.directions) else ""
    return f"{read:,} pairs read: {', '.join(parts)}, {kept:,} to learn from{both_ways}{beside}"


def _say_doubts(run: TranslatorRun, recipe: Recipe, prepared: Prepared, console: Screen) -> None:
    """What looks wrong with the text."""
    for given, direction in zip(recipe.data.one_way, prepared.as_read, strict=False):  # then come those borrowed
        for doubt in doubts(given, direction, run.dropped_file(prepared.code(direction))):
            console.print(f"warning: {doubt}")
    for text in prepared.as_read[len(recipe.data.one_way) :]:
        of_all = of_any_text(text, run.dropped_file(prepared.code(text)))
        for doubt in (*of_all, *of_borrowed(text, prepared.directions[0])):
            console.print(f"warning: {doubt}")
    if recipe.parent is not None:
        for doubt in doubts_about_parent(Path(recipe.parent), prepared):
            console.print(f"warning: {doubt}")


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


def _score_tests(run: TranslatorRun, prepared: Prepared, console: Screen) -> None:
    """Translate each pair's test set: into test/, or into test/en-gl/ and so on if there are several."""
    translator = Translator.load(run.folder, prepared.directions[0].files.name)
    _calibrate(run, prepared, translator)
    for direction in prepared.directions:
        code = prepared.code(direction)
        test = run.test_set(code)
        sources, references = direction.test.sources, direction.test.targets
        translated = [best for best, *_ in translator.with_direction(direction.files.name).translations(sources)]
        translations = [best.text for best in translated]
        test.scores_file.unlink(missing_ok=True)  # of a run that was prolonged: they are not those of the new lines
        for path, lines in ((test.source, sources), (test.references, references), (test.hypotheses, translations)):
            write_lines(path, lines)
        tokenized = run.recipe.data.scheme == "words"
        values = scores(translations, references, tokenized, direction.files.languages[1])
        values.write(test.scores_file)
        label = f"test {code}".strip()
        told = ", ".join(f"{METRICS[name].label} {values.measures[name]:.2f}" for name in _ALWAYS)
        console.print(f"{label}: {told} ({values.lines:,} lines)")
        for note, number in Counter(note for best in translated for note in best.notes).items():
            console.print(f"  {note} ({number:,} lines)")
        console.print(f"  {meaning_of(values.bleu, references, tokenized)}")


def _calibrate(run: TranslatorRun, prepared: Prepared, translator: Translator) -> None:
    """Each pair's translations are compared with what its dev set says."""
    by_direction = {
        text.files.name: calibrated(translator.with_direction(text.files.name), text.dev.sources, text.dev.targets)
        for text in prepared.directions
    }
    Calibrations(by_direction=by_direction).write(run.confidence_file)


def _say_what_is_next(folder: Path, pair: str, is_worth_prolonging: bool, console: Screen) -> None:
    """pair: one of several, of which `translate` wants to be told."""
    name, choice = shlex.quote(str(folder)), f" --pair {pair}" if pair else ""
    lines = [
        f"The model is {folder}. Next:",
        f"  qknorm translate {name}{choice} FILE       translate a text file, line by line",
        f"  qknorm report {name}               look at scores, curves and examples in a browser",
    ]
    if is_worth_prolonging:
        lines.append(
            f"  qknorm train {name} --minutes 60   let it learn on, as a larger model if there is time for one"
        )
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
