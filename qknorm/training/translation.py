"""Training a translator: from a recipe to a run folder with a scored model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from qknorm import processes
from qknorm.counting.guide import Guide
from qknorm.counting.kept import counted, translations
from qknorm.data.batches import Batch, BatchSampler, DropoutPairs, PairData
from qknorm.data.prepared import Prepared
from qknorm.data.subwords import PAD
from qknorm.data.textfiles import replacing, write_lines
from qknorm.decoding.beam import BeamSettings
from qknorm.decoding.translator import Translator
from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu, chrf, scores
from qknorm.models.translator import TranslatorModel
from qknorm.runs.recipe import Recipe, refuse_changes, save_recipe, settled
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.training.planned import planned_recipe
from qknorm.training.schedules import Schedule, peak_of_paper
from qknorm.training.sets import Sets, parts_of, prepare_sets, read_sets
from qknorm.training.trainer import Limits, Trainer

_EXAMPLES = 1  # shown at each validation
_BASELINE_RATE = 3e-4
_MEANINGS = (
    (40, "Most sentences can be used as they are, or almost; check names and numbers."),
    (30, "Most sentences can be understood, and corrected faster than translated anew."),
    (20, "The gist is clear; most sentences have mistakes."),
    (10, "The gist can be guessed; more text or more time would help."),
    (0, "Hardly of use yet: more text or more time is needed."),
)


class TranslationTask:
    """What the trainer needs to know about translation."""

    def __init__(
        self, recipe: Recipe, model: TranslatorModel, prepared: Prepared, sets: Sequence[Sets], console: Screen
    ) -> None:
        self.model, self.recipe, self.sets, self.console = model, recipe, sets, console
        training, decoding = recipe.training, recipe.decoding
        data: list[PairData] = [pair.encoded for pair in prepared.pairs]
        if recipe.data.bpe_dropout:
            data = [
                DropoutPairs(prepared.subwords, pair.sources, pair.targets, recipe.data.bpe_dropout, training.seed)
                for pair in prepared.pairs
            ]
        self.batches = BatchSampler(data, training.budget, training.seed, processes.rank(), processes.count())
        settings = BeamSettings(decoding.validation_beam_size, decoding.length_penalty, decoding.extra_length)
        self.guide = Guide(translations(prepared, console)).to(model.languages.device) if training.taught else None
        self.translators = [Translator(model, prepared.subwords, settings, pair=pair) for pair in range(len(sets))]

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        batch = batch.to(self.model.languages.device)
        dropped = batch.with_word_dropout(self.recipe.training.word_dropout)
        weight = self._weight_of_guide()
        if self.guide is None or weight <= 0:
            return self.model(dropped), batch.target_tokens
        shown: list[Tensor] = []
        loss: Tensor = self.model(dropped, shown.append)
        lesson = weight * self.guide.loss(shown[0], batch)
        return loss + (lesson - lesson.detach()), batch.target_tokens  # it teaches, but is not part of what is shown

    def _weight_of_guide(self) -> float:
        """It falls from 1 to 0 over the first updates."""
        training = self.recipe.training
        updates = self.batches.drawn / (training.accumulate * processes.count())
        return 1 - updates / training.taught if training.taught else 0.0

    def validate(self) -> dict[str, float]:
        """The mean of the pairs' scores; with several, each pair's too."""
        translations = [
            translator.translate([pair.source for pair in sets.dev])
            for translator, sets in zip(self.translators, self.sets, strict=True)
        ]
        self._show_examples(translations)
        tokenized, chosen = self.recipe.data.scheme == "words", self.recipe.training.metric
        means: dict[str, float] = {}
        by_pair: dict[str, float] = {}
        for name, score in (("bleu", partial(bleu, tokenized=tokenized)), ("chrf", chrf)):
            scores = [
                score(lines, [pair.target for pair in sets.dev])
                for lines, sets in zip(translations, self.sets, strict=True)
            ]
            means[f"dev_{name}"] = sum(scores) / len(scores)
            if len(self.sets) > 1:
                by_pair |= {f"dev_{name} {sets.name}": value for sets, value in zip(self.sets, scores, strict=True)}
        return {f"dev_{chosen}": means[f"dev_{chosen}"], **means, "dev_loss": self._dev_loss(), **by_pair}

    def _show_examples(self, translations: list[list[str]]) -> None:
        """A few sentences, from each pair in turn."""
        for example in range(_EXAMPLES):
            row, pair = divmod(example, len(self.sets))
            if row < len(self.sets[pair].dev):
                source, reference = self.sets[pair].dev[row]
                shown = f"  {source}\n  → {translations[pair][row]}\n  = {reference}"
                self.console.print(shown)

    @torch.no_grad()
    def _dev_loss(self) -> float:
        """Per token, over all pairs. Pieces that the model cannot say are left out."""
        subwords, total, tokens = self.translators[0].subwords, 0.0, 0
        for pair, sets in enumerate(self.sets):
            for start in range(0, len(sets.dev), 64):
                part = sets.dev[start : start + 64]
                encoded = [subwords.encode([sentences[side] for sentences in part]) for side in (0, 1)]
                batch = Batch.of(encoded[0], encoded[1], pair).to(self.model.languages.device)
                known = (batch.target_out == PAD) | torch.isin(batch.target_out, self.model.said(pair))
                batch = replace(batch, target_out=torch.where(known, batch.target_out, PAD))
                total += float(self.model(batch)) * batch.target_tokens
                tokens += batch.target_tokens
        return total / tokens


def train(recipe: Recipe, folder: Path, console: Screen, resume: bool) -> None:
    """Train from the beginning, or go on where an interrupted run stands; then translate and score the test set."""
    run = Run(folder)
    if resume:
        recipe = settled(recipe, Run.open(folder).recipe)
        refuse_changes(run.recipe, recipe, folder)
    else:
        processes.from_first(partial(_make_room, run))
        if recipe.minutes is not None:
            recipe = processes.from_first(partial(planned_recipe, recipe, folder, console))
    limits = limits_of(recipe)
    torch.manual_seed(recipe.training.seed)
    sets, prepared = processes.first_then_others(lambda: _make_ready(run, recipe, resume))
    model = run.make_model().to(processes.device())
    _introduce(model, prepared, console)
    task = TranslationTask(recipe, model, prepared, sets, console)
    trainer = Trainer(task, _schedule(recipe), limits, folder, console)
    if resume and trainer.resume():
        console.print(f"going on after update {trainer.progress.step:,}")
    elif recipe.model.embedding_init == "counted":
        vectors = counted(prepared, recipe.model.dim, recipe.training.seed, console)
        model.embedding.start_at(torch.from_numpy(vectors))
    try:
        trainer.train()
    except KeyboardInterrupt:
        command = processes.command_to_resume(folder, processes.count())
        console.print(f"\nSaved after update {trainer.progress.step:,}. Go on with: {command}")
        raise
    if processes.rank() == 0:
        _score_tests(run, sets, console)


def _make_ready(run: Run, recipe: Recipe, resume: bool) -> tuple[list[Sets], Prepared]:
    """Read the corpus, and begin the run folder (the first process does)."""
    begins = not resume and processes.rank() == 0
    sets = read_sets(recipe.data, run.folder / "data")
    prepared = prepare_sets(sets, recipe.data)
    if begins:
        _start(run, recipe, sets, prepared)
    elif run.parts.corpus != prepared.folder.name:
        raise InputError(f"the text has changed since {run.folder} was begun; a run cannot go on with another text")
    return sets, prepared


def _make_room(run: Run) -> None:
    """A new run takes nothing from an earlier attempt that failed before it was a run: it may have had other text."""
    if (run.folder / "recipe.yaml").exists():
        raise InputError(f"{run.folder} holds a run already; go on with --resume, or choose another name=NAME")
    shutil.rmtree(run.folder / "data", ignore_errors=True)


def _start(run: Run, recipe: Recipe, sets: Sequence[Sets], prepared: Prepared) -> None:
    """Fill a new run folder with all but checkpoints. The recipe comes last: with it the folder is a run."""
    run.folder.mkdir(parents=True, exist_ok=True)
    for name in ("corpus.json", "tokenizer.json"):
        shutil.copyfile(prepared.folder / name, run.folder / name)
    for one, pair in zip(sets, prepared.pairs, strict=True):
        name = "dropped.tsv" if len(sets) == 1 else f"dropped-{one.name}.tsv"
        shutil.copyfile(pair.folder / "dropped.tsv", run.folder / name)
    run.save_parts(parts_of(recipe, sets, prepared))
    save_recipe(recipe, run.folder / "recipe.yaml")


def _introduce(model: TranslatorModel, prepared: Prepared, console: Screen) -> None:
    kept, read = (sum(pair.report[key] for pair in prepared.pairs) for key in ("kept", "read"))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"{kept:,} of {read:,} pairs, {len(prepared.subwords):,} pieces, {parameters:,} parameters")


def _schedule(recipe: Recipe) -> Schedule:
    training = recipe.training
    peak = training.peak
    if peak is None:
        baseline = training.schedule == "constant"
        peak = _BASELINE_RATE if baseline else peak_of_paper(recipe.model.dim, training.warmup)
    warmup = 0 if training.schedule == "constant" else training.warmup
    total = training.max_updates or training.max_validations * training.validate_every
    return Schedule(training.schedule, peak, warmup, total, decay=training.decay or 0)


def limits_of(recipe: Recipe) -> Limits:
    """When a run of this recipe ends."""
    training = recipe.training
    return Limits(
        training.validate_every,
        training.max_validations,
        training.max_updates,
        training.min_rate,
        training.stop_after,
        training.accumulate,
        training.clip,
        validation_decay=training.schedule != "trapezoid",
        precision=training.precision,
        average=training.average,
        tensorboard=training.tensorboard,
    )


def _score_tests(run: Run, sets: Sequence[Sets], console: Screen) -> None:
    """Translate each pair's test set: into test/, or into test/en-gl/ and so on if there are several."""
    for one in sets:
        folder = run.folder / "test" / (one.name if len(sets) > 1 else "")
        sources, references = [pair.source for pair in one.test], [pair.target for pair in one.test]
        translations = Translator.load(run.folder, one.name).translate(sources)
        for name, lines in (("source", sources), ("references", references), ("hypotheses", translations)):
            write_lines(folder / f"{name}.txt", lines)
        found = scores(translations, references, run.recipe.data.scheme == "words", one.languages[1])
        with replacing(folder / "scores.json") as file:
            file.write(json.dumps(found, indent=1).encode())
        shown = f"test {one.name}" if len(sets) > 1 else "test"
        console.print(f"{shown}: BLEU {found['bleu']:.2f}, chrF {found['chrf']:.2f} ({found['lines']:,} lines)")
        console.print(f"  {_meaning_of(found['bleu'])}")
    console.print(
        f"The model is {run.folder}. Next:\n"
        f"  qknorm translate {run.folder} FILE       translate a text file, line by line\n"
        f"  qknorm report {run.folder}               look at scores, curves and examples in a browser"
        + ("" if run.recipe.training.decay is None else f"\n  qknorm train {run.folder} --minutes 60   let it learn on")
    )


def _meaning_of(bleu: float) -> str:
    """What a score promises to a reader, roughly: BLEU depends on the text, and compares systems on the same text."""
    return next(meaning for least, meaning in _MEANINGS if bleu >= least)
