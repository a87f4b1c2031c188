"""`qknorm score` and `qknorm compare` as a user meets them."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path

import pytest

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.evaluation import wording
from tests.caches import new_cache
from tests.evaluation.test_scores import corpus
from tests.journeys.conftest import Command
from tests.phrases import write_phrases
from tests.sweeps import TRANSLATORS


@pytest.fixture
def files(command: Command) -> Command:
    """Outputs of two systems, two seeds each, beside their references."""
    for name, noise in (("worse", 0.3), ("better", 0.1)):
        for seed in (1, 2, 3):
            hypotheses, references = corpus(0, noise + seed / 100)
            write_lines(Path(f"{name}-{seed}"), hypotheses)
            write_lines(Path("ref"), references)
    return command


def test_score_and_compare(files: Command) -> None:
    result = json.loads(files("score", "better-1", "ref", "--json").out)
    assert result.keys() == {"bleu", "bleu_tokenized", "chrf", "chrf++", "ter", "lines", "signature"}
    with_source = json.loads(files("score", "better-1", "ref", "--src", "worse-1", "--json").out)
    assert with_source.pop("worst")[0].keys() == {"line", "chrf", "source", "hypothesis", "reference"}
    assert with_source == result
    printed = files("score", "better-1", "ref").out
    assert f"{result['bleu']:.2f}" in printed
    assert result["signature"] in printed
    done = files("compare", "worse-1", "better-1", "--ref", "ref", "--json")
    baseline, better = json.loads(done.out)
    assert [row["name"] for row in (baseline, better)] == ["worse-1", "better-1"]
    assert baseline["p_value"] is None
    assert better["low"] <= better["bleu"] <= better["high"]
    assert better["p_value"] < 0.01


def test_bleu_says_nothing_about_lines_of_a_word(command: Command) -> None:
    write_lines(Path("ref"), ["casa", "pan", "mar"])
    write_lines(Path("hyp"), ["casa", "pan", "sal"])
    for arguments in (("score", "ref", "ref"), ("compare", "hyp", "ref", "--ref", "ref")):
        assert wording.TOO_SHORT in command(*arguments).out
        assert wording.TOO_SHORT not in command(*arguments, "--json").out


CHINESE = {
    "who": {"I": "我", "you": "你", "he": "他", "she": "她", "we": "我们", "they": "他们"},
    "does": {"buy": "买", "sell": "卖", "see": "看", "look for": "找", "want": "要"},
    "what": {"tea": "茶", "books": "书", "flowers": "花", "fish": "鱼", "rice": "米", "paper": "纸", "cloth": "布"},
}


def test_chinese_from_training_to_the_report(command: Command, workplace: Path) -> None:
    """BLEU counts its characters wherever it is computed: for sacrebleu's default each line would be one word."""
    words = list(product(*(part.items() for part in CHINESE.values())))
    random.Random(0).shuffle(words)
    pairs = [(f"Today {who[0]} {does[0]} {what[0]}.", f"今天{who[1]}{does[1]}{what[1]}。") for who, does, what in words]
    for name, chosen in {"train": pairs[24:], "dev": pairs[:12], "test": pairs[12:24]}.items():
        for side, language in enumerate(("en", "gl")):
            write_lines(workplace / f"{name}.{language}", (pair[side] for pair in chosen))
    assert command("train", "recipe.yaml", "merges=40", "peak=0.01", "max_updates=90", "validate_every=45").code == 0
    run = workplace / "runs" / "small"
    tested = json.loads((run / "test" / "scores.json").read_text())
    assert "|tok:zh|" in tested["signature"]
    assert 0 < tested["bleu"] < 100
    assert all(json.loads(line)["dev_bleu"] > 0 for line in read_lines(run / "metrics.jsonl"))
    scored = json.loads(command("score", "runs/small/test/hypotheses.txt", "test.gl", "--json").out)
    assert scored == tested
    ours, perfect = json.loads(command("compare", "runs/small", "test.gl", "--json").out)
    assert ours["bleu"] == pytest.approx(tested["bleu"])
    assert perfect["bleu"] == pytest.approx(100)
    assert perfect["p_value"] < 0.01
    assert command("report", "runs/small", "-o", "report.html").code == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert f"small reached {tested['bleu']:.2f} BLEU" in page
    assert "how many characters, and sequences of up to four characters" in page


def test_compare_several_seeds(files: Command) -> None:
    systems = ["base=worse-1,worse-2,worse-3", "ours=better-1,better-2,better-3"]
    baseline, ours = json.loads(files("compare", *systems, "--ref", "ref", "--json").out)
    assert (baseline["name"], baseline["seeds"], ours["name"], ours["seeds"]) == ("base", 3, "ours", 3)
    assert ours["bleu_sd"] > 0
    assert ours["p_value"] < 0.05
    assert 0 < ours["difference_low"] < ours["difference"] < ours["difference_high"]
    printed = files("compare", *systems, "--ref", "ref").out
    assert f"{ours['bleu']:.2f} ± {ours['bleu_sd']:.2f}" in printed


def test_compare_a_sweep_some_of_whose_seeds_are_not_done(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    write_phrases(tmp_path, train=200, held_out=8)
    Path("translators.yaml").write_text(TRANSLATORS)
    assert command("sweep", "translators.yaml", "--jobs", "1").code == 0
    rows = json.loads(command("compare", "runs/translators", "--json").out)
    assert [(row["seeds"], row["first_seeds_only"]) for row in rows] == [(2, False), (2, False)]
    Path("runs/translators/heads-2_seed-2/result.json").unlink()
    rows = json.loads(command("compare", "runs/translators", "--json").out)
    assert [(row["seeds"], row["first_seeds_only"]) for row in rows] == [(1, True), (1, True)]
    assert wording.FIRST_SEEDS in " ".join(command("compare", "runs/translators").out.split())
    Path("runs/translators/heads-2_seed-1/result.json").unlink()
    (row,) = json.loads(command("compare", "runs/translators", "--json").out)
    assert (row["name"], row["seeds"]) == ("heads 1", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "short", "ref"], "there are 1 translations but 200 references"),
        (["score", "ref", "ref", "--src", "short"], "short has 1 lines but there are 200 translations"),
        (["score", "empty", "empty"], "nothing to score"),
        (["compare", "ref", "--ref", "ref"], "at least two systems"),
        (["compare", "ref", "short", "--ref", "ref"], "short has 1 lines but there are 200 references"),
        (["compare", "ref", "worse-1"], "holds no references; give a file of them"),
        (["compare", "ref", "b=worse-1,worse-2", "--ref", "ref"], "ref has one run but b has several"),
    ],
    ids=str,
)
def test_wrong_calls_get_one_sentence(files: Command, arguments: list[str], message: str) -> None:
    write_lines(Path("short"), ["a"])
    Path("empty").touch()
    done = files(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.errors
    assert done.errors.count("\n") == 1
