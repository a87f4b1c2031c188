"""Training a translator: from a recipe to a run folder with a scored model."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from qknorm.attention.scale import henry_scale
from qknorm.data import corpora
from qknorm.data.batches import Batch, BatchSampler, DropoutPairs, PairData
from qknorm.data.cleaning import Rules
from qknorm.data.importers import Pair, read_aligned
from qknorm.data.prepared import PairFiles, Prepared, prepare
from qknorm.data.textfiles import replacing, write_lines
from qknorm.decoding.beam import BeamSettings
from qknorm.decoding.translator import Translator
from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu, scores
from qknorm.models.translator import TranslatorModel
from qknorm.training.recipe import DataRecipe, Recipe, save_recipe
from qknorm.training.run import ModelParts, Run
from qknorm.training.schedules import Schedule, peak_of_paper
from qknorm.training.trainer import Limits, Trainer

_SPLIT_OFF = 500  # pairs for dev, and as many for test, but at most a tenth of the corpus each
_EXAMPLES = 3
_BASELINE_RATE = 3e-4


@dataclass(frozen=True)
class Sets:
    """The held-out sentences of a run, and where the training text lies."""

    train: PairFiles
    dev: list[Pair]
    test: list[Pair]


class TranslationTask:
    """What the trainer needs to know about translation."""

    def __init__(self, recipe: Recipe, model: TranslatorModel, prepared: Prepared, dev: list[Pair], console: Console):
        self.model, self.recipe, self.dev, self.console = model, recipe, dev, console
        (pair,) = prepared.pairs
        dropout, seed = recipe.data.bpe_dropout, recipe.training.seed
        data: PairData = pair.encoded
        if dropout:
            data = DropoutPairs(prepared.subwords, pair.sources, pair.targets, dropout, seed)
        self.batches = BatchSampler([data], recipe.training.budget, seed)
        settings = BeamSettings(
            recipe.decoding.validation_beam_size, recipe.decoding.length_penalty, recipe.decoding.extra_length
        )
        self.translator = Translator(model, prepared.subwords, settings)

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        dropped = batch.to(self.model.languages.device).with_word_dropout(self.recipe.training.word_dropout)
        return self.model(dropped), batch.target_tokens

    def validate(self) -> dict[str, float]:
        sources, references = [pair.source for pair in self.dev], [pair.target for pair in self.dev]
        translations = self.translator.translate(sources)
        for source, translation, reference in list(zip(sources, translations, references, strict=True))[:_EXAMPLES]:
            self.console.print(f"  {source}\n  → {translation}\n  = {reference}", highlight=False, markup=False)
        score = bleu(translations, references, tokenized=self.recipe.data.scheme == "words")
        return {"dev_bleu": score, "dev_loss": self._dev_loss()}

    @torch.no_grad()
    def _dev_loss(self) -> float:
        subwords, total, tokens = self.translator.subwords, 0.0, 0
        for start in range(0, len(self.dev), 64):
            part = self.dev[start : start + 64]
            encoded = [subwords.encode([pair[side] for pair in part]) for side in (0, 1)]
            batch = Batch.of(encoded[0], encoded[1]).to(self.model.languages.device)
            known = (batch.target_out == 0) | torch.isin(batch.target_out, self.model.said(0))
            batch = Batch(batch.source, batch.target_in, torch.where(known, batch.target_out, 0))
            total += float(self.model(batch)) * batch.target_tokens
            tokens += batch.target_tokens
        return total / tokens


def train(recipe: Recipe, folder: Path, console: Console, resume: bool) -> None:
    """Train from the beginning, or go on where an interrupted run stands; then translate and score the test set."""
    run = Run(folder)
    if resume:
        recipe = Run.open(folder).recipe
    elif (folder / "recipe.yaml").exists():
        raise InputError(f"{folder} holds a run already; go on with --resume, or choose another name=NAME")
    torch.manual_seed(recipe.training.seed)
    sets = _sets(recipe.data, folder)
    prepared = prepare([sets.train], recipe.data.merges, recipe.data.scheme, Rules(), corpora.cache_folder())
    if not resume:
        _start(run, recipe, prepared)
    model = run.make_model().to("cuda" if torch.cuda.is_available() else "cpu")
    _introduce(model, prepared, console)
    task = TranslationTask(recipe, model, prepared, sets.dev, console)
    trainer = Trainer(task, _schedule(recipe), _limits(recipe), folder, console)
    if resume and trainer.resume():
        console.print(f"going on after update {trainer.progress.step:,}")
    try:
        trainer.train()
    except KeyboardInterrupt:
        console.print(f"\nSaved after update {trainer.progress.step:,}. Go on with: qknorm train {folder} --resume")
        raise
    _score_test(run, sets.test, console)


def _sets(data: DataRecipe, folder: Path) -> Sets:
    """The named corpus, or one's own files; what is missing of dev and test is split off and kept in the run folder."""
    if data.corpus is not None:
        corpus = corpora.get(data.corpus)
        dev, test = corpus.files("dev"), corpus.files("test")
        train = corpus.files("train")
    else:
        assert data.source is not None
        assert data.target is not None
        train = (Path(data.source), Path(data.target))
        if data.dev is None or data.test is None:
            train, dev, test = _split_off(train, folder / "data")
        else:
            dev, test = (Path(data.dev[0]), Path(data.dev[1])), (Path(data.test[0]), Path(data.test[1]))
    files = PairFiles(*train, held_out=(dev, test))
    held_out = [
        [pair for pair in read_aligned(*two) if pair.source.strip() and pair.target.strip()] for two in (dev, test)
    ]
    return Sets(files, held_out[0], held_out[1])


_Files = tuple[Path, Path]


def _split_off(files: _Files, folder: Path) -> tuple[_Files, _Files, _Files]:
    """Every n-th pair to dev, the one after it to test, the rest to train: the same whenever it is done."""
    splits = {name: (folder / f"{name}.source", folder / f"{name}.target") for name in ("train", "dev", "test")}
    if not all(path.exists() for two in splits.values() for path in two):
        pairs = list(read_aligned(*files))
        if len(pairs) < 30:
            raise InputError(f"{files[0]} has {len(pairs)} lines; at least 30 are needed to learn and to test")
        every = max(10, len(pairs) // _SPLIT_OFF)
        chosen = {"dev": pairs[0::every], "test": pairs[1::every]}
        chosen["train"] = [pair for row, pair in enumerate(pairs) if row % every > 1]
        for name, two in splits.items():
            for side, path in enumerate(two):
                write_lines(path, (pair[side] for pair in chosen[name]))
    return splits["train"], splits["dev"], splits["test"]


def _start(run: Run, recipe: Recipe, prepared: Prepared) -> None:
    """Fill a new run folder with all but checkpoints. The recipe comes last: with it the folder is a run."""
    run.folder.mkdir(parents=True, exist_ok=True)
    for name in ("corpus.json", "dropped.tsv", "tokenizer.json"):
        shutil.copyfile(prepared.folder / name, run.folder / name)
    start = recipe.model.scale_init
    scale_init = (
        henry_scale(max(prepared.length(), 2.0)) if start == "henry" else None if start == "comparable" else start
    )
    said = prepared.target_pieces(bpe_dropout=recipe.data.bpe_dropout > 0)
    run.save_parts(ModelParts(said.nonzero().flatten().tolist(), scale_init))
    save_recipe(recipe, run.folder / "recipe.yaml")


def _introduce(model: TranslatorModel, prepared: Prepared, console: Console) -> None:
    report = prepared.pairs[0].report
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"{report['kept']:,} of {report['read']:,} pairs, {len(prepared.subwords):,} pieces, {parameters:,} parameters",
        highlight=False,
    )


def _schedule(recipe: Recipe) -> Schedule:
    training = recipe.training
    peak = training.peak
    if peak is None:
        baseline = training.schedule == "constant"
        peak = _BASELINE_RATE if baseline else peak_of_paper(recipe.model.dim, training.warmup)
    warmup = 0 if training.schedule == "constant" else training.warmup
    total = training.max_updates or training.max_validations * training.validate_every
    return Schedule(training.schedule, peak, warmup, total)


def _limits(recipe: Recipe) -> Limits:
    training = recipe.training
    return Limits(
        training.validate_every,
        training.max_validations,
        training.max_updates,
        training.min_rate,
        training.stop_after,
        training.accumulate,
        training.clip,
    )


def _score_test(run: Run, test: list[Pair], console: Console) -> None:
    translations = Translator.load(run.folder).translate([pair.source for pair in test])
    references = [pair.target for pair in test]
    write_lines(run.folder / "test" / "source.txt", (pair.source for pair in test))
    write_lines(run.folder / "test" / "references.txt", references)
    write_lines(run.folder / "test" / "hypotheses.txt", translations)
    found = scores(translations, references, run.recipe.data.scheme == "words", run.recipe.data.languages[1])
    with replacing(run.folder / "test" / "scores.json") as file:
        file.write(json.dumps(found, indent=1).encode())
    console.print(f"test: BLEU {found['bleu']:.2f}, chrF {found['chrf']:.2f} ({found['lines']:,} lines)")
