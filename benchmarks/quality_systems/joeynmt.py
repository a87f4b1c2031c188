"""JoeyNMT 2.3 from the package index: its settings for us, and what its files say afterwards. It runs elsewhere.

The recipe is what its repository publishes for IWSLT'14 German–English (configs/iwslt14_deen_bpe.yaml, the model of 19
million parameters): Moses tokens, joint subword-nmt, AdamW at a rate of 3e-4 that falls by 0.7 on a plateau, batches of
4,096 positions, dropout 0.3, label smoothing 0.1, norms before each sublayer, tied embeddings, a beam of 5.
Ours are the size, the merges, upper case, pairs of up to 128 pieces (62 there), and when it validates and stops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.quality_systems import Contest, Outcome, Validation, best_by, run_logged, write_copy
from benchmarks.translators import Size
from qknorm.data.textfiles import read_lines
from qknorm.evaluation.scores import bleu, scores

_LAUNCHER = "benchmarks.quality_systems.joeynmt_launcher"
_LONGEST = 128


def run(
    contest: Contest,
    size: Size,
    merges: int,
    minutes: float,
    views: Iterable[float],
    validations: int,
    python: Path,
    folder: Path,
) -> Outcome:
    """Train once; then see what came of it."""
    settings = config(contest, size, merges, folder)
    for language in (contest.source, contest.target):
        for split in ("train", "dev", "test"):  # it would also end a line at U+2028 and the like
            lines = (" ".join(line.splitlines()) for line in contest.lines(split, language))
            write_copy(list(lines), folder / f"{split}.{language}")
    save_config(settings, folder / "config.yaml")
    order: list[str | Path] = ["train", folder / "config.yaml", str(minutes), str(validations)]
    run_logged([python, "-m", _LAUNCHER, *order], folder / "log.txt", contest.threads)
    return outcome_of(contest, settings, size, minutes, views, python, folder)


def outcome_of(
    contest: Contest,
    settings: Mapping[str, Any],
    size: Size,
    minutes: float,
    views: Iterable[float],
    python: Path,
    folder: Path,
) -> Outcome:
    """Translate the test set with the best checkpoint of each view."""
    model = folder / "model"
    reports = [json.loads(line) for line in read_lines(folder / "validations.jsonl")]
    validated = parse_validations((model / "validations.txt").read_text(encoding="utf-8"))
    references = contest.lines("dev", contest.target)
    translations = {report["updates"]: list(read_lines(model / f"{report['updates']}.hyps")) for report in reports}
    curve = [
        Validation(
            report["minutes"], report["updates"], bleu(translations[report["updates"]], references, contest.tokenized)
        )
        for report in reports
    ]
    # It chooses by its own dev BLEU, which is of the text as it stands.
    by_its_own = [Validation(point.minutes, point.updates, validated[point.updates]["bleu"]) for point in curve]
    tests = {}
    for view in views:
        chosen = best_by(view, by_its_own)
        if chosen is not None:
            hypotheses = _translate_test(settings, chosen.updates, python, contest, folder)
            result = scores(hypotheses, contest.references, contest.tokenized, contest.target)
            tests[f"{view:g}"] = result.content() | {"updates": chosen.updates}
    for checkpoint in model.glob("*.ckpt"):  # a hundred megabytes each
        checkpoint.unlink()
    last = reports[-1] if reports else {}
    told = ("updates", "target pieces/s", "minutes validating", "parameters", "pieces")
    facts = {
        **{key: last[key] for key in told if last},
        "size": size.shape,
        "its own dev BLEU": {str(point.updates): point.bleu for point in by_its_own},
        "settings": {part: settings[part] for part in ("testing", "training", "model")},  # the rest names folders
    }
    return Outcome(minutes, curve, tests, facts)


def _translate_test(
    settings: Mapping[str, Any], updates: int, python: Path, contest: Contest, folder: Path
) -> list[str]:
    output = folder / f"best-{updates}"
    written = output.with_suffix(".test")
    if not written.exists():
        data = {key: value for key, value in settings["data"].items() if key not in ("train", "dev")}
        testing = settings["testing"] | {"load_model": str(folder / "model" / f"{updates}.ckpt")}
        path = folder / f"test-{updates}.yaml"
        save_config({**settings, "data": data, "testing": testing}, path)
        run_logged([python, "-m", _LAUNCHER, "test", path, output], folder / "log.txt", contest.threads)
    return list(read_lines(written))


def config(contest: Contest, size: Size, merges: int, folder: Path) -> dict[str, Any]:
    """Its configuration file: the published recipe with our size and text."""

    def side(language: str) -> dict[str, Any]:
        return {
            "lang": language,
            "max_length": _LONGEST,
            "lowercase": False,
            "normalize": False,
            "level": "bpe",
            "voc_min_freq": 1,
            "voc_file": str(folder / "vocabulary.txt"),
            "tokenizer_type": "subword-nmt",
            "tokenizer_cfg": {
                "num_merges": merges,
                "codes": str(folder / "merges.txt"),
                "pretokenizer": "none" if contest.tokenized else "moses",
            },
        }

    def stack(layers: int) -> dict[str, Any]:
        return {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": size.heads,
            "embeddings": {"embedding_dim": size.dim, "scale": True, "dropout": 0.0},
            "hidden_size": size.dim,
            "ff_size": size.feed_forward,
            "dropout": 0.3,
            "layer_norm": "pre",
            "activation": "relu",
        }

    specials = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    return {
        "name": "quality",
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder / "model"),
        "use_cuda": False,
        "random_seed": 42,
        "data": {
            **{split: str(folder / split) for split in ("train", "dev", "test")},
            "dataset_type": "plain",
            "src": side(contest.source),
            "trg": side(contest.target),
            "special_symbols": {f"{name}_token": text for name, text in specials.items()}
            | {f"{name}_id": number for number, name in enumerate(specials)},
        },
        "testing": {
            "n_best": 1,
            "beam_size": 5,
            "beam_alpha": 1.0,
            "batch_size": 1024,
            "batch_type": "token",
            "max_output_length": 100,
            "eval_metrics": ["bleu"],
            "return_prob": "none",
            "return_attention": False,
            "sacrebleu_cfg": {"tokenize": "13a"},
        },
        "training": {
            "optimizer": "adamw",
            "normalization": "tokens",
            "adam_betas": [0.9, 0.999],
            "scheduling": "plateau",
            "patience": 5,
            "decrease_factor": 0.7,
            "loss": "crossentropy",
            "learning_rate": 0.0003,
            "learning_rate_min": 1e-8,
            "weight_decay": 0.0,
            "label_smoothing": 0.1,
            "batch_size": 4096,
            "batch_type": "token",
            "early_stopping_metric": "bleu",
            "epochs": 1_000_000,  # the clock ends it
            "validation_freq": 1,  # the launcher lets through those that are due
            "logging_freq": 1,
            "overwrite": True,
            "shuffle": True,
            "print_valid_sents": [],
            "keep_best_ckpts": -1,
        },
        "model": {
            "initializer": "xavier_uniform",
            "bias_initializer": "zeros",
            "init_gain": 1.0,
            "embed_initializer": "xavier_uniform",
            "embed_init_gain": 1.0,
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack(size.encoder_layers),
            "decoder": stack(size.decoder_layers),
        },
    }


def save_config(content: Mapping[str, Any], path: Path) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True), encoding="utf-8")


def parse_validations(text: str) -> dict[int, dict[str, float]]:
    """Its validations.txt: for each number of updates the measures that it wrote, such as bleu and ppl."""
    result = {}
    for line in text.splitlines():
        measures = {name.lower(): float(value) for name, value in re.findall(r"(\w+): ([-\w.]+)", line)}
        if "steps" in measures:
            result[int(measures.pop("steps"))] = measures
    return result
