"""The recipe of a run: typed, checked, read from YAML. A key that no recipe knows is named with its nearest."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from qknorm.data import corpora
from qknorm.data.pipeline import TextPipeline
from qknorm.data.subwords import Scheme, looks_tokenized
from qknorm.data.textfiles import open_bytes, read_lines, replacing
from qknorm.errors import InputError
from qknorm.metrics.table import METRICS
from qknorm.models.layers import NormKind, Placement
from qknorm.models.translator import TranslatorConfig
from qknorm.optimisation.optimisers import OPTIMISERS
from qknorm.optimisation.schedules import SCHEDULES
from qknorm.runs.choices import OneOf
from qknorm.runs.norm_recipe import LpRecipe, NormRecipe, WithNorm, options_apart
from qknorm.runs.recipe_part import RecipePart

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Precision = Literal["float32", "bf16", "fp16"]


RecipeT = TypeVar("RecipeT", bound=RecipePart)

_TRUTH = "tag:yaml.org,2002:bool"
_RECIPES = Path(__file__).parents[1] / "recipes"
_IN_WORDS = {"tuple_type": "two are wanted, such as [FIRST, SECOND]"}
"""Kinds of mistakes that pydantic tells in the words of a programmer."""
_TAGS = {"target": "back", "words": "words"}
"""By the kind of a borrowed text, its tag unless it has another."""
_LONGEST_SHOWN = 120  # characters of what somebody gave
_KEYS_OF_OTHERS = {
    **dict.fromkeys(("lr", "learning_rate", "max_lr"), ("peak",)),
    **dict.fromkeys(("epochs", "max_epochs", "num_epochs", "steps", "max_steps"), ("max_updates", "iterations")),
    **dict.fromkeys(("batch_size", "max_tokens"), ("budget", "batch")),
    **dict.fromkeys(("warmup_steps", "warmup_updates"), ("warmup",)),
    **dict.fromkeys(("hidden_size", "d_model", "embed_dim"), ("dim",)),
    **dict.fromkeys(("num_heads", "num_attention_heads"), ("heads",)),
    **dict.fromkeys(("num_layers", "layers"), ("encoder_layers", "decoder_layers", "layers")),
    **dict.fromkeys(("vocab_size", "vocabulary"), ("merges",)),
    **dict.fromkeys(("beam", "beams", "num_beams"), ("beam_size",)),
    "attention": ("qk_norm",),
    **dict.fromkeys(("device", "cuda", "gpu"), ()),
}
"""Keys that people know from other programs, and those that mean it here. A GPU is used where there is one."""


class DirectionRecipe(RecipePart):
    """Where the sentences of a language pair are."""

    corpus: str | None = None
    """A named corpus (`qknorm data list`), such as tatoeba-en-es:20k; or else source and target below."""
    source: str | None = None
    """The training text, one sentence a line."""
    target: str | None = None
    """Its translation, line by line."""
    dev: tuple[str, str] | None = None
    """Source and target of the dev set. Without it, some 500 pairs (at most a tenth) are split off the cleaned text."""
    test: tuple[str, str] | None = None
    """Source and target of the test set; split off likewise. No source sentence is in two sets."""
    languages: tuple[str, str] = ("src", "tgt")
    """Codes of the two languages; a named corpus brings its own."""

    @model_validator(mode="before")
    @classmethod
    def _languages_of_corpus(cls, content: Any) -> Any:
        if isinstance(content, dict) and content.get("corpus") and not content.get("languages"):
            name = str(content["corpus"]).partition(":")[0]
            for info in corpora.known():
                if info.name == name and info.languages is not None:
                    return {**content, "languages": info.languages}
        return content

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if not self._has_origin():
            raise ValueError("give either data.corpus, or both data.source and data.target")
        return self

    def _has_origin(self) -> bool:
        return (self.corpus is None) != (self.source is None) and (self.source is None) == (self.target is None)

    def turned(self) -> DirectionRecipe:
        """The opposite direction."""
        dev, test = (files and files[::-1] for files in (self.dev, self.test))
        source, target, languages = self.target, self.source, self.languages[::-1]
        return DirectionRecipe(
            corpus=self.corpus, source=source, target=target, dev=dev, test=test, languages=languages
        )


class BorrowedRecipe(RecipePart):
    """Text that is learned from beside one's own pairs. Nothing of it is held out, and nothing is scored on it."""

    kind: Literal["related", "parallel", "target", "words"]
    """`related`: translations from or into a related language; `parallel`: of one's own two languages, but of another
    kind or quality; `target`: text in the target language alone, which is translated back; `words`: a table of words
    or terms and their translations."""
    source: str | None = None
    """One sentence a line. Of the kind `target`, a back-translation; without it, the plan makes one. Of `words`, the
    first column; without it, a run takes the table apart."""
    target: str
    """Its translation, line by line; or the text in the target language, or the table."""
    languages: tuple[str, str]
    """Codes of the two languages."""
    weight: float = Field(1.0, gt=0)
    """How often it is drawn, as a multiple of what its size would give it."""
    tag: str = ""
    """A word that tells the model this text from one's own; such as news."""

    @property
    def codes(self) -> tuple[str, str]:
        """What the model knows its source by, and its target."""
        tag = self.tag or _TAGS.get(self.kind, "")
        return (f"{self.languages[0]}+{tag}" if tag else self.languages[0]), self.languages[1]

    @property
    def has_opposite(self) -> bool:
        """Whether it may be learned from target to source, too: nobody should learn to write what a model wrote."""
        return self.kind != "target"

    def turned(self) -> BorrowedRecipe:
        """The same text from target to source."""
        assert self.source is not None
        sides = {"source": self.target, "target": self.source}
        return self.model_copy(update={**sides, "languages": self.languages[::-1]})


class DataRecipe(DirectionRecipe):
    """Where the sentences are, which of them are dropped, and how they become pieces."""

    extra: tuple[BorrowedRecipe, ...] = ()
    """Text to borrow from: in a related language, of another kind, in one language alone, or a list of words."""
    pairs: tuple[DirectionRecipe, ...] = ()
    """Several language pairs for one model: a list of the keys above, in place of them, each with other languages."""
    both_ways: bool = False
    """Learn the opposite direction of each pair in the same model."""
    scheme: Scheme = "raw"
    """`words` for text that is already tokenised, `raw` for text as people write it."""
    merges: int = Field(8000, ge=1)
    """Merges of the joint BPE vocabulary."""
    bpe_dropout: float = Field(0.0, ge=0, lt=1)
    """Each merge is skipped with this probability, drawn anew in every pass."""
    max_ratio: float | None = Field(6.0, ge=1)
    """A pair is dropped if one side has more than this many times as many characters as the other; `null`: no limit."""
    max_suspicion: float | None = None
    """A pair is dropped that is more suspect than this (`qknorm data suspects`); 4 drops hardly any of a clean text."""
    keep_duplicates: bool = False
    """Do not drop repeated pairs."""
    keep_copies: bool = False
    """Do not drop a source that equals its target."""
    apart: bool = False
    """Learn from no sentence of which a dev or test set has either side. Plans do; so do `both_ways` and what is
    borrowed."""
    tidy: bool = False
    """Write all text in one way, later on what is translated, too: NFC, single ordinary spaces. Plans do."""
    keep: bool | tuple[str, ...] = False
    """Learn to copy placeholders, tags, links and numbers with units. Plans do. Or a list: regular expressions of what
    is to be kept, too."""

    @property
    def one_way(self) -> tuple[DirectionRecipe, ...]:
        """The one pair, or the several, as they are given."""
        return self.pairs or (self,)

    @property
    def directions(self) -> tuple[DirectionRecipe, ...]:
        """All that are learned: those that are given, then their opposites."""
        return (*self.one_way, *(way.turned() for way in self.one_way)) if self.both_ways else self.one_way

    @property
    def borrowed(self) -> tuple[BorrowedRecipe, ...]:
        """All that is learned from beside them: what is given, then its opposites."""
        turned = (extra.turned() for extra in self.extra if extra.has_opposite) if self.both_ways else ()
        return (*self.extra, *turned)

    @property
    def pipeline(self) -> TextPipeline:
        """What is done to every line."""
        keep = "keep" if self.scheme == "raw" else "keep in tokens"
        names = [name for name, is_done in ((keep, self.keep is not False), ("tidy", self.tidy)) if is_done]
        return TextPipeline(names, () if isinstance(self.keep, bool) else self.keep)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.pairs and (self.corpus or self.source or self.target or self.dev or self.test):
            raise ValueError("with data.pairs, the texts are given in each pair: corpus, or source and target")
        if not self.pairs and not self._has_origin():
            raise ValueError("give either data.corpus, or both data.source and data.target, or data.pairs")
        for text in self.extra:
            own = {code for direction in self.one_way for code in enumerate(direction.languages)}
            if own.isdisjoint(enumerate(text.languages)):
                files = " and ".join(filter(None, (text.source, text.target)))
                raise ValueError(
                    f"{files}: {' and '.join(text.languages)}, neither of which is on this side of your own pairs: "
                    "are the two the wrong way round?"
                )
        names = ["-".join(direction.languages) for direction in self.directions]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            hint = "data.both_ways turns each round" if self.both_ways else "give each its languages, such as [en, gl]"
            raise ValueError(f"two of data.pairs are {twice}; {hint}")
        return self


class ModelRecipe(WithNorm):
    """The shape of the translator; the defaults are the first paper's base model."""

    dim: int = Field(TranslatorConfig.dim, ge=2)
    """Width of the model."""
    feed_forward: int = Field(TranslatorConfig.feed_forward, ge=1)
    """Width inside the feed-forward layers."""
    encoder_layers: int = Field(TranslatorConfig.encoder_layers, ge=1)
    """Layers that read."""
    decoder_layers: int = Field(TranslatorConfig.decoder_layers, ge=1)
    """Layers that write."""
    heads: int = Field(TranslatorConfig.heads, ge=1)
    """Attention heads; they must divide dim."""
    norm: NormKind = TranslatorConfig.norm
    """`layer`, `scale` (one number per norm) or `rms`."""
    placement: Placement = TranslatorConfig.placement
    """Norms before (`pre`) or after (`post`) each sublayer."""
    fix_norm: bool = TranslatorConfig.fix_norm
    """Word vectors of length 1."""
    embedding_init: Literal["random", "counted"] = "random"
    """Where word vectors start: at random, or as a count of the parallel text has them (seconds that save minutes)."""
    qk_norm: NormRecipe = LpRecipe()
    """Queries and keys by their Lp norm, by RMSNorm, by LayerNorm, or plain scaled dot products."""
    scale_percentile: float = Field(97.5, gt=0, le=100)
    """With `scale_init: henry`: L is this percentile of the sentences' lengths in pieces; 100 is the longest."""
    position_dim: int | None = Field(None, ge=2)
    """The width that positions are made in, of a model that was once narrower; it is set when a run grows."""
    dropout: float = Field(TranslatorConfig.dropout, ge=0, lt=1)
    """Of each sublayer's output."""
    attention_dropout: float = Field(TranslatorConfig.attention_dropout, ge=0, lt=1)
    """Of the attention weights."""
    relu_dropout: float = Field(TranslatorConfig.relu_dropout, ge=0, lt=1)
    """Inside the feed-forward layers."""
    embedding_dropout: float = Field(TranslatorConfig.embedding_dropout, ge=0, lt=1)
    """Of the input vectors."""

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """In the first recipes `qk_norm` was called `attention`, and its `none` was `dot`."""
        now = dict(content)
        if "attention" in now:
            former = now.pop("attention")
            now.setdefault("qk_norm", "none" if former == "dot" else former)
        return super().as_written_now(now)

    @model_validator(mode="after")
    def _possible(self) -> ModelRecipe:
        if self.dim % self.heads:
            raise ValueError(f"model.heads ({self.heads}) must divide model.dim ({self.dim})")
        if self.dim % 2:
            raise ValueError(f"model.dim ({self.dim}) must be even: positions are pairs of sine and cosine")
        if self.position_dim is not None and (self.position_dim % 2 or self.position_dim > self.dim):
            raise ValueError(
                f"model.position_dim ({self.position_dim}) must be even and at most model.dim ({self.dim})"
            )
        return self


class AnyTraining(RecipePart):
    """What every training can be told."""

    seed: Seed = 1
    """Of everything that is drawn at random."""
    clip: float = Field(1.0, gt=0, allow_inf_nan=True)
    """The largest gradient norm."""
    precision: Precision = "float32"
    """`bf16` and `fp16` compute in half precision where that is safe (on a CPU: matrix products); fp16 needs a GPU."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too, to the folder `tensorboard` of the run."""
    wandb: bool = False
    """Write the metrics for Weights & Biases too, to the folder `wandb` of the run; WANDB_MODE=online sends them."""


class TrainingRecipe(AnyTraining):
    """How it is trained."""

    budget: int = Field(4096, ge=16)
    """A batch has at most this many positions on its longer side."""
    accumulate: int = Field(1, ge=1)
    """Batches per update and process: 2 on one GPU learn what 1 on each of two does."""
    optimizer: Annotated[str, OneOf(OPTIMISERS)] = "adam"
    """What turns gradients into updates; `muon` needs fewer of them, of larger batches."""
    beta2: float = Field(0.999, gt=0, lt=1)
    """The optimiser's memory of squared gradients."""
    weight_decay: float = Field(0.0, ge=0)
    """Of matrices; never of g, norms and biases."""
    schedule: Annotated[str, OneOf(SCHEDULES)] = "warmup-flat"
    """`warmup-flat` (the paper's), `constant` (its baseline), `vaswani`, `cosine`, or `trapezoid`: up, flat, down."""
    peak: float | None = Field(None, gt=0)
    """The highest learning rate; without it the paper's, 1/√(dim · warmup), or 3e-4 for `constant`."""
    warmup: int = Field(8000, ge=1)
    """Updates until the peak."""
    decay: int | None = Field(None, ge=1)
    """With `trapezoid`: the last this many of max_updates, in which the learning rate falls to zero."""
    own: int = Field(0, ge=0)
    """In the last this many updates nothing is learned from but text of one's own languages without a tag."""
    taught: int = Field(0, ge=0)
    """In the first this many updates one head of attention to the source is taught where a count of the text finds the
    translations of words, with a weight that falls from 1 to 0."""
    label_smoothing: float = Field(TranslatorConfig.label_smoothing, ge=0, lt=1)
    """Spread over the pieces of the target language."""
    word_dropout: float = Field(0.1, ge=0, lt=1)
    """An input piece becomes UNK with this probability."""
    validate_every: int = Field(1000, ge=1)
    """Updates between validations; each saves a checkpoint."""
    max_validations: int = Field(200, ge=1)
    """Training ends after at most this many validations."""
    max_updates: int | None = Field(None, ge=1)
    """At most this many updates."""
    min_rate: float = Field(1e-5, ge=0)
    """Training ends when the decayed learning rate falls below this."""
    stop_after: int | None = Field(None, ge=1)
    """Training ends when this many validations in a row brought no better score; with `trapezoid`, its decay begins."""
    metric: Annotated[str, OneOf(METRICS, lambda metric: not metric.of_tokens)] = "bleu"
    """The dev score by which the best checkpoint is chosen, the learning rate decayed and training ended. Plans take
    `chrf` where most lines are too short for BLEU."""
    average: int = Field(1, ge=1)
    """What is tested: 1 the best checkpoint; N > 1 the mean of the last N checkpoints' weights, if it scores better."""

    @property
    def total_updates(self) -> int:
        """Unless the run ends before."""
        return self.max_updates or self.max_validations * self.validate_every

    @model_validator(mode="after")
    def _decay_fits(self) -> Self:
        if SCHEDULES[self.schedule].ends_in_decay != (self.decay is not None):
            names = " or ".join(name for name, kind in SCHEDULES.items() if kind.ends_in_decay)
            raise ValueError(f"training.schedule={names} and training.decay belong together")
        if self.decay is not None and (self.max_updates is None or self.decay > self.max_updates):
            raise ValueError(f"training.decay ({self.decay}) must not exceed max_updates ({self.max_updates})")
        validated = self.max_validations * self.validate_every
        if self.decay is not None and self.max_updates is not None and validated < self.max_updates:
            raise ValueError(
                f"training.max_updates ({self.max_updates}) would never be reached: the run ends after "
                f"{self.max_validations} validations, {self.validate_every} updates apart; raise max_validations"
            )
        return self


class DecodingRecipe(RecipePart):
    """How it translates."""

    beam_size: int = Field(4, ge=1)
    """Hypotheses per sentence."""
    validation_beam_size: int = Field(4, ge=1)
    """The same during training; 1 is fast."""
    length_penalty: float = Field(0.6, ge=-100, le=100)
    """Exponent of ((5 + length)/6); larger prefers longer translations."""
    extra_length: int = Field(50, ge=1)
    """A translation has at most this many pieces more than its source."""


class AnyRecipe(RecipePart):
    """What the recipes of all tasks have. Each has a `data` of its own, and mostly a `model` and a `training`, too."""

    title: ClassVar[str]
    """Of its keys, in docs/recipes.md."""
    product: ClassVar[str]
    """What comes out, with its article."""
    command: ClassVar[str]
    """What that is used with."""

    task: str
    """What is learned: translation, language, …"""
    name: str = Field("run", coerce_numbers_to_str=True)
    """The run folder is runs/NAME."""
    data: RecipePart


class Recipe(AnyRecipe):
    """One translation run."""

    title: ClassVar[str] = "Translation"
    product: ClassVar[str] = "a translator"
    command: ClassVar[str] = "translate"

    task: Literal["translation"] = "translation"
    """What is learned; `language` is a recipe of another kind."""
    minutes: float | None = Field(None, gt=0)
    """How long the run may take. What the recipe leaves open is planned for it, and stands in the run's own recipe."""
    parent: str | None = None
    """The folder of a run that this one goes on from: with its vocabulary and its weights, at least as large."""
    data: DataRecipe
    model: ModelRecipe = ModelRecipe()
    training: TrainingRecipe = TrainingRecipe()
    decoding: DecodingRecipe = DecodingRecipe()


def save_recipe(recipe: RecipePart, path: Path) -> None:
    with replacing(path) as file:
        file.write(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True).encode())


def merged(*contents: Mapping[str, Any]) -> dict[str, Any]:
    """Contents of recipes laid over each other: of a key, the last one counts."""
    result: dict[str, Any] = {}
    for content in contents:
        for key, value in content.items():
            is_part = isinstance(value, Mapping)
            result[key] = {**options_apart(result.get(key, {})), **options_apart(value)} if is_part else value
    return result


def settled(given: Recipe, begun: Recipe) -> Recipe:
    """A recipe with minutes, and what was planned for it when its run was begun."""
    if any(extra.source is None for extra in given.data.extra):  # what was made of it is where it was put
        data = given.data.model_copy(update={"extra": begun.data.extra})
        given = given.model_copy(update={"data": data})
    if given.minutes is None:
        return given
    asked = given.model_dump(exclude_unset=True, exclude={"minutes"})
    return laid_over_plan(begun.model_dump(exclude={"minutes"}), asked, given.name)


def laid_over_plan(plan: Mapping[str, Any], given: Mapping[str, Any], where: str) -> Recipe:
    """A plan with what was given laid over it; its decay stays only where schedule and updates have room for it."""
    content = merged(plan, given)
    training = content["training"]
    if "decay" not in given.get("training", {}) and training.get("decay") is not None:
        has_decay = training["schedule"] in SCHEDULES and SCHEDULES[training["schedule"]].ends_in_decay
        training["decay"] = min(training["decay"], training["max_updates"]) if has_decay else None
    return checked(Recipe, content, where)


def refuse_changes(begun: RecipePart, given: RecipePart, folder: Path) -> None:
    """A run goes on exactly, so its recipe stays as it was."""
    before, now = flat(begun), flat(given)
    for key in before | now:
        if before.get(key) != now.get(key):
            raise InputError(
                f"{folder} was begun with {key}={before.get(key)}, not {now.get(key)}; "
                f"go on with: qknorm train {shlex.quote(str(folder))} --resume, or choose another name=NAME"
            )


def flat(recipe: RecipePart) -> dict[str, Any]:
    """Every key with its part before it, such as training.seed, and its value."""
    result: dict[str, Any] = {}
    for part, value in recipe.model_dump(mode="json").items():
        if isinstance(value, dict):
            result |= {f"{part}.{key}": within for key, within in options_apart(value).items()}
        else:
            result[part] = value
    return result


class Loader(yaml.SafeLoader):
    """YAML in which `no` is Norwegian: only true and false are truth values, as in its version 1.2."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != _TRUTH]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(_TRUTH, re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe, changed by `key=value` such as training.seed=3, or seed=3 where that is unambiguous."""
    return make_recipe(read_recipe(path), overrides, str(path))


def read_recipe(path: Path) -> dict[str, Any]:
    """The content of a YAML file, or of a recipe that comes with the package; only that it has keys is checked."""
    path = _file_of(path)
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a recipe: it must hold keys such as data and model")
    return content


def read_yaml(path: Path) -> Any:
    """Whatever a YAML file holds."""
    with open_bytes(path) as file:
        try:
            return yaml.load(file.read().decode("utf-8"), Loader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or a date that is none
            raise InputError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from None


def _file_of(path: Path) -> Path:
    """The file itself or, where there is none, the recipe of that name that comes with the package: `phrasebook`."""
    packaged = _RECIPES / f"{path.stem}.yaml"
    is_name = path.suffix in ("", ".yaml") and path.parent in (Path(), Path("recipes"))
    return packaged if is_name and not path.exists() and packaged.is_file() else path


def settings_for_files(source: Path, target: Path, parent: Path | None = None) -> dict[str, Any]:
    """A recipe for somebody's own two files: the rest is planned, and taken over from a parent if there is one."""
    endings = [path.suffix.removeprefix(".") for path in (source, target)]
    are_codes = all(map(_is_code, endings)) and endings[0] != endings[1]
    scheme: Scheme = "words" if all(looks_tokenized(read_lines(path)) for path in (source, target)) else "raw"
    data = {"source": str(source), "target": str(target), "scheme": scheme}
    taken = {} if parent is None else {"parent": str(parent)}
    return {"name": source.stem, **taken, "data": data | ({"languages": endings} if are_codes else {})}


def extra_for_files(
    languages: Sequence[str],
    related: Sequence[tuple[Path, Path]],
    parallel: Sequence[tuple[Path, Path]],
    in_target: Sequence[Path],
    words: Sequence[Path],
) -> list[dict[str, Any]]:
    """The texts that somebody borrows from, as a recipe has them. A related language is known by its file's name."""
    extra: list[dict[str, Any]] = []
    for number, files in enumerate(related, 1):
        unknown = "related" if number == 1 else f"related{number}"
        codes = [_code_of(path) or other for path, other in zip(files, (unknown, languages[1]), strict=True)]
        extra.append({"kind": "related", **_sides(files), "languages": codes})
    extra += [{"kind": "parallel", **_sides(files), "languages": list(languages)} for files in parallel]
    for kind, paths in (("target", in_target), ("words", words)):
        extra += [{"kind": kind, "target": str(path), "languages": list(languages)} for path in paths]
    return extra


def _sides(files: tuple[Path, Path]) -> dict[str, str]:
    return dict(zip(("source", "target"), map(str, files), strict=True))


def _code_of(path: Path) -> str | None:
    """The language in a name such as talks.pt or pt.txt."""
    return next((part for part in (path.suffix.removeprefix("."), path.stem) if _is_code(part)), None)


def _is_code(word: str) -> bool:
    return re.fullmatch("[a-z]{2,3}", word) is not None and word != "txt"


def make_recipe(content: Mapping[str, Any], overrides: Sequence[str], where: str) -> Recipe:
    """A checked recipe of a translation, or one sentence about the first thing that is wrong with it."""
    return checked(Recipe, with_overrides(Recipe, content, overrides), where)


def with_overrides(kind: type[RecipePart], content: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The content changed by `key=value`; nothing is checked yet."""
    changed = {key: options_apart(value) if isinstance(value, dict) else value for key, value in content.items()}
    for override in overrides:
        _apply(override, changed, keys_of(kind))
    return changed


def checked(kind: type[RecipeT], content: Mapping[str, Any], where: str) -> RecipeT:
    """A recipe of this kind, or one sentence about the first thing that is wrong with it."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(error, keys_of(kind))}") from None


def _apply(override: str, content: dict[str, Any], keys: dict[str, set[str]]) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise InputError(f"{override!r} is not a setting; write key=value, such as training.seed=3")
    *parts, leaf = key.split(".")
    if not parts:
        owners = [part for part, known in keys.items() if leaf in known]
        if len(owners) > 1:
            raise InputError(f"{leaf} is a key of {' and '.join(owners)}; write {owners[0]}.{leaf}={text}")
        if not owners:
            raise InputError(f"there is no key {_abbreviated(leaf)}; {_hint(leaf, set().union(*keys.values()))}")
        parts = [owner for owner in owners if owner]
    place = content
    for part in parts:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise InputError(f"there is no key {_abbreviated(key)}: {part} is a value, not a group of keys")
    place.update(options_apart({leaf: _value(key, text)}))


def _value(key: str, text: str) -> Any:
    """What stands behind the = of a setting, as YAML has it."""
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date or a number that cannot be
        reason = " ".join(str(error).split())
        raise InputError(
            f"{_abbreviated(key)}: the value {_abbreviated(text)} is not YAML ({_abbreviated(reason)}); "
            "put it in quotes if it is text"
        ) from None


def _hint(key: str, keys: Collection[str], prefix: str = "") -> str:
    """What somebody may have meant who wrote a key that is not there."""
    meant = [known for known in _KEYS_OF_OTHERS.get(key, ()) if known in keys]
    if meant:
        return f"here it is called {' and '.join(meant)}"
    if key in _KEYS_OF_OTHERS:
        return "a GPU is used where there is one" if not _KEYS_OF_OTHERS[key] else "there is nothing like it here"
    nearest = difflib.get_close_matches(key, sorted(keys), n=1)
    if nearest:
        return f"the nearest is {prefix}{nearest[0]}"
    which = f"those of {prefix.partition('.')[0]}" if prefix else "all"
    return f"docs/recipes.md lists {which}"


def _abbreviated(value: Any) -> str:
    """What somebody gave, for a sentence: not too much of it."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits; a list in itself
        return "of this size"
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def keys_of(recipe: type[RecipePart]) -> dict[str, set[str]]:
    """The keys of each part of a recipe, those of the recipe itself under ""."""
    parts = {name: part.model_fields.keys() | part.short_keys for name, part in parts_of(recipe).items()}
    return {"": set(recipe.model_fields)} | parts


def parts_of(recipe: type[RecipePart]) -> dict[str, type[RecipePart]]:
    """The groups of keys of a recipe, such as model and training."""
    kinds = {name: field.annotation for name, field in recipe.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, RecipePart)}


def _first_problem(error: ValidationError, keys: dict[str, set[str]]) -> str:
    first = error.errors()[0]
    place = _place(first["loc"])
    where = ".".join(place)
    if first["type"] == "extra_forbidden":
        *parts, leaf = place
        if leaf in _KEYS_OF_OTHERS:
            return f"there is no key {_abbreviated(where)}; {_hint(leaf, set().union(*keys.values()))}"
        in_pair = parts[:2] == ["data", "pairs"]
        siblings = set(DirectionRecipe.model_fields) if in_pair else keys.get(".".join(parts), set())
        return f"there is no key {_abbreviated(where)}; {_hint(leaf, siblings, ''.join(f'{part}.' for part in parts))}"
    if first["type"] == "missing":
        return f"{where} is missing"
    message = _IN_WORDS.get(first["type"], first["msg"].removeprefix("Value error, "))
    return (
        f"{where}: {message} (given: {_abbreviated(first['input'])})"
        if first["loc"] and first["type"] != "value_error"
        else message
    )


def _place(loc: Sequence[int | str]) -> list[str]:
    """Where a mistake is: one in an option of `lp` beside it, as options are mostly written."""
    part, *path = map(str, loc) if loc else [""]
    if path[:1] == ["qk_norm"]:
        path = path[2:] if path[1:2] == ["lp"] else path[:1]
    return [part, *path]
