"""The parts of the comparison of quality that need neither minutes nor JoeyNMT."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import quality
from benchmarks.quality import JOEYNMT, OURS, draw, kept_or_made, languages_of, markdown, prepare, verdict
from benchmarks.quality_systems import Clock, Contest, Outcome, Validation, best_by, joeynmt
from benchmarks.translators import Size
from qknorm.data.textfiles import write_lines
from qknorm.errors import InputError
from qknorm.screen import Screen

SIZE = Size(dim=64, feed_forward=128, encoder_layers=2, decoder_layers=3, heads=4)


def contest(tokenized: bool = False) -> Contest:
    return Contest(Path("text"), "gl", "en", tokenized, 1)


def outcome(minutes: float, **bleu: float) -> Outcome:
    """Test BLEU by minutes, given as m20=5.0."""
    tests = {name.removeprefix("m"): {"bleu": value, "chrf": 30.0, "updates": 7} for name, value in bleu.items()}
    facts = {
        "updates": 7,
        "target pieces/s": 1234.5,
        "parameters": 6_000_000,
        "minutes validating": 9.4,
        "size": SIZE.shape,
    }
    return Outcome(minutes, [Validation(minutes / 2, 3, 1.0), Validation(minutes, 7, 2.0)], tests, facts)


def result(ours: list[Outcome], theirs: Outcome) -> dict[str, Any]:
    return {
        "machine": {"threads": 1},
        "side by side": 2,
        "minutes": 60.0,
        "text": {
            "name": "ted-gl-en",
            "pair": ["gl", "en"],
            "tokenized": True,
            "pairs": {"train": 11_233, "dev": 742, "test": 1_112},
        },
        "size": {"merges": 3000, **replace(SIZE, dim=256, feed_forward=1024, encoder_layers=3).shape},
        "systems": {OURS: [asdict(run) for run in ours], JOEYNMT: [asdict(theirs)]},
    }


def test_validations_of_joeynmt_are_read_with_all_their_measures() -> None:
    text = (
        "Steps: 400\tloss: 4.98131\tacc: 0.03509\tppl: 145.66496\tbleu: 0.01661\tLR: 0.00030000\t*\n"
        "Steps: 800\tloss: 4.80567\tacc: 0.02480\tppl: 122.20188\tbleu: 10.07670\tLR: 0.00030000\t\n"
    )
    result = joeynmt.parse_validations(text)
    assert list(result) == [400, 800]
    assert result[800] == {"loss": 4.80567, "acc": 0.0248, "ppl": 122.20188, "bleu": 10.0767, "lr": 0.0003}


@pytest.mark.parametrize(("tokenized", "pretokenizer"), [(True, "none"), (False, "moses")])
def test_joeynmt_gets_our_size_and_merges_and_tokenises_what_is_not(
    tokenized: bool, pretokenizer: str, tmp_path: Path
) -> None:
    made = joeynmt.config(contest(tokenized), SIZE, 3000, tmp_path)
    joeynmt.save_config(made, tmp_path / "config.yaml")
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == made
    for side, language, stack, layers in (("src", "gl", "encoder", 2), ("trg", "en", "decoder", 3)):
        text, model = made["data"][side], made["model"][stack]
        tokenizer = text["tokenizer_cfg"]
        assert (text["lang"], tokenizer["num_merges"], tokenizer["pretokenizer"]) == (language, 3000, pretokenizer)
        assert (model["num_layers"], model["num_heads"], model["ff_size"]) == (layers, 4, 128)
        assert model["hidden_size"] == model["embeddings"]["embedding_dim"] == 64


def test_the_best_checkpoint_is_that_of_the_minutes() -> None:
    curve = [Validation(10, 1, 3.0), Validation(20.5, 2, 5.0), Validation(30, 3, 4.0), Validation(60, 4, 6.0)]
    best = [best_by(minutes, curve) for minutes in (5, 10, 20, 30, 60)]
    assert [found and found.updates for found in best] == [None, 1, 2, 2, 4]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time on the wall, in seconds."""
    result = [0.0]
    monkeypatch.setattr("benchmarks.quality_systems.time.monotonic", lambda: result[0])
    return result


def test_validations_are_due_at_equal_parts_of_minutes_that_stand_still_during_each(now: list[float]) -> None:
    clock = Clock(minutes=1, validations=6)
    now[0] = 9.9
    assert not clock.is_due
    now[0] = 10.0
    assert clock.is_due
    with clock.stopped():
        now[0] = 110.0
    assert (clock.seconds, clock.validating) == (10.0, 100.0)
    now[0] = 119.9
    assert not clock.is_due
    now[0] = 159.0
    with clock.stopped():
        now[0] = 169.0
    assert (clock.is_due, clock.is_over) == (False, False)
    now[0] = 170.0
    assert clock.is_due
    assert clock.is_over


def test_the_table_has_a_row_for_each_system_and_one_for_their_ratio() -> None:
    ours = [outcome(60, m60=20.0), outcome(30, m30=15.0), outcome(20, m20=12.0), outcome(10, m10=6.0)]
    table = markdown(result(ours, outcome(60, m10=1.0, m20=4.0, m30=6.0, m60=8.0)))
    assert "| qknorm | 6.00 | 12.00 | 15.00 | 20.00 | 30.00 | 7 | 1,234 | 6,000,000 |" in table
    assert "| JoeyNMT 2.3 | 1.00 | 4.00 | 6.00 | 8.00 | 30.00 |" in table
    assert "| qknorm × JoeyNMT 2.3 | 6.00 | 3.00 | 2.50 | 2.50 |" in table
    assert "11,233 pairs" in table
    assert "2 systems side by side, 1 thread each" in table.lower()
    assert "validations (9 minutes) and its test were not counted" in table
    # A time before the first validation is an empty cell, of which there is one for each time of the table.
    assert "| JoeyNMT 2.3 | – | – | – | 8.00 |" in markdown(result(ours, outcome(60, m60=8.0)))
    assert all((part * quality.VALIDATIONS).is_integer() for part in quality.PARTS)
    recipe = {"model": {"dim": 192}, "training": {"precision": "bf16"}}
    table = markdown(result([replace(ours[-1], facts={"recipe": recipe})], outcome(60)))
    assert "Its planner chose d = 192 for 10 minutes." in table
    assert "in bfloat16 in the runs of 10 minutes" in table


def test_the_goals_are_met_in_each_way_or_what_was_missed_is_named(tmp_path: Path) -> None:
    theirs, good = outcome(60, m30=6.0, m60=8.0), [outcome(60, m60=16.0), outcome(30, m30=12.0)]
    thirds = [outcome(20, m20=8.0), outcome(10, m10=6.0)]
    for ours in (good, thirds, [outcome(60, m60=9.0), outcome(30, m30=9.0), *thirds]):
        assert verdict(result(ours, theirs)) == []
    late = [replace(good[0], took=66.0), good[1]]
    low = [outcome(60, m60=9.0), outcome(30, m30=13.0), outcome(20, m20=7.9)]
    for ours, joeynmt_had, expected in (
        (low, theirs, "60 minutes: 9.00 BLEU against 8.00"),
        (late, theirs, "qknorm took 66.0 minutes where it had 60"),
        (good, outcome(60, m60=8.0), "30 minutes: JoeyNMT 2.3 had no translation of the test set by then"),
    ):
        (missed,) = verdict(result(ours, joeynmt_had))
        assert missed.startswith(expected)
    draw(result(good, outcome(60)), tmp_path / "quality.png")
    assert (tmp_path / "quality.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="another size"):
        quality._check_size(replace(SIZE, dim=128), {JOEYNMT: [theirs]})


def test_a_finished_system_is_not_run_again_and_one_that_was_only_begun_is(tmp_path: Path) -> None:
    half, calls = tmp_path / "joeynmt-1" / "model" / "5.ckpt", []
    half.parent.mkdir(parents=True)
    half.touch()

    def work(folder: Path) -> Outcome:
        calls.append(folder)
        return outcome(1, m1=8.0)

    for _ in range(2):
        assert kept_or_made(work, tmp_path / "joeynmt-1", Screen(quiet=True)) == outcome(1, m1=8.0)
    assert len(calls) == 1
    assert not half.exists()


def write_text(folder: Path, lines: int = 3) -> None:
    for split in ("train", "dev", "test"):
        write_lines(folder / f"{split}.gl", ["Ola , mundo ."] * lines)
        write_lines(folder / f"{split}.en", ["Hello , world ."] * (lines - 1) + [" "])


def test_pairs_with_a_blank_side_are_left_out_and_another_text_is_not_mixed_in(tmp_path: Path) -> None:
    write_text(tmp_path / "ted-gl-en")
    assert languages_of(tmp_path / "ted-gl-en", None) == ("gl", "en")
    assert languages_of(tmp_path / "ted-gl-en", "en-gl") == ("en", "gl")
    write_text(tmp_path / "talks")
    with pytest.raises(InputError, match="PAIR=en-gl or PAIR=gl-en"):
        languages_of(tmp_path / "talks", None)
    made = prepare(tmp_path / "ted-gl-en", None, 1, tmp_path / "out")
    assert made.lines("test", "gl") == ["Ola , mundo ."] * 2
    assert made.references == ["Hello , world ."] * 2
    assert made.tokenized
    write_text(tmp_path / "ted-gl-en", lines=4)
    with pytest.raises(InputError, match="another text"):
        prepare(tmp_path / "ted-gl-en", None, 1, tmp_path / "out")
