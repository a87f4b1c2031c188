"""The translator, with a model that has been trained."""

from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from qknorm import Translator
from qknorm.data.pipeline import STEPS, TextPipeline
from qknorm.data.textfiles import read_lines
from qknorm.decoding.decoders import DECODERS, make_decoder
from qknorm.decoding.translator import word_links
from qknorm.errors import InputError
from qknorm.runs import checkpoint


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


@pytest.fixture(scope="module")
def lines(trained_run: Path) -> list[str]:
    return [*read_lines(trained_run / "test" / "source.txt")][:30]


def test_loading_reads_each_file_once_and_the_optimiser_never(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What safetensors reads by itself would not be seen here, so it may not."""
    opened = Counter[str]()

    def counted(file: Any, *arguments: Any, **options: Any) -> Any:
        opened[Path(file).name] += 1
        return opening(file, *arguments, **options)

    opening = io.open
    monkeypatch.setattr(io, "open", counted)
    for name in ("load_file", "safe_open"):
        monkeypatch.delattr(checkpoint, name)
    Translator.load(trained_run)
    assert opened == dict.fromkeys(
        ["recipe.yaml", "pairs.json", "tokenizer.json", "corpus.json", "best", "state.json", "model.safetensors"], 1
    )


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_translation_does_not_depend_on_its_batch(translator: Translator, lines: list[str], decoder: str) -> None:
    translator = translator.with_decoder(make_decoder(decoder, translator.settings, n_best=1))
    together = list(translator.translations(lines, lines_at_once=28))
    for lines_at_once in (1, 7):
        result = list(translator.translations(lines, lines_at_once=lines_at_once))
        assert [best.text for best, *_ in result] == [best.text for best, *_ in together]
        assert [best.score for best, *_ in result] == pytest.approx([best.score for best, *_ in together], abs=1e-4)
    if decoder != "sampling":  # a sample depends on the number of its line
        order = random.Random(0).sample(range(len(lines)), len(lines))
        shuffled = translator.translate([lines[row] for row in order])
        assert shuffled == [together[row][0].text for row in order]


def test_one_string_is_refused(translator: Translator) -> None:
    with pytest.raises(TypeError, match="takes a list of lines"):
        translator.translate("one string")


def test_n_best_are_different_and_in_order_and_the_first_is_the_translation(
    translator: Translator, lines: list[str]
) -> None:
    results = list(translator.translations(lines[:8], n_best=3))
    for result in results:
        scores = [best.score for best in result]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(best.parts[0].target.pieces) for best in result}) == 3
    assert [best.text for best, *_ in results] == translator.translate(lines[:8])


def test_a_long_line_is_translated_sentence_by_sentence(translator: Translator, lines: list[str]) -> None:
    short = [line for line in lines if line.endswith(".")][:12]
    one_line, *sentences = translator.translate([" ".join(short), *short])
    assert one_line == " ".join(filter(None, sentences))


def test_a_long_sentence_is_cut_with_a_note(translator: Translator) -> None:
    endless = "the house is red and " * 60
    (short,), (blank,), (cut,) = translator.translations(["I eat.", "", endless])
    assert short.notes == blank.notes == ()
    (note,) = cut.notes
    assert note.startswith(f"a sentence of more than {translator.longest} pieces")
    assert len(cut.text) > 200


def test_an_explanation_fits_its_translation_or_a_given_one(translator: Translator, lines: list[str]) -> None:
    (best,) = next(translator.translations(lines[:1]))
    result, again = translator.explain(lines[0]), translator.explain(lines[0], best.text)
    assert result.target_pieces == again.target_pieces == translator.spelled(best.parts[0].target.pieces)
    assert result.source_pieces[-1] == result.target_pieces[-1] == "</s>"
    for explanation in (result, again):
        assert explanation.piece_scores == pytest.approx(best.parts[0].target.piece_scores, abs=1e-5)
    source, target = len(result.source_pieces), len(result.target_pieces)
    assert result.attention.encoder.shape == (1, 4, source, source)
    assert result.attention.decoder.shape == (2, 4, target, target)
    assert result.attention.cross.shape == (2, 4, target, source)
    assert sum(translator.explain(lines[0], "Nin falar.").piece_scores) < sum(result.piece_scores)
    assert translator.explain(lines[0], "ж").piece_scores[1] == -torch.inf
    for several_or_none in ("", "I eat. " * 60):
        with pytest.raises(InputError, match="explain one sentence at a time"):
            translator.explain(several_or_none)


def test_words_are_linked_by_the_sum_over_their_pieces() -> None:
    """Source: two words of one and two pieces, then EOS. Target: one word of two pieces, one that looks at EOS, EOS."""
    weights = torch.tensor(
        [[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.3, 0.0], [0.1, 0.2, 0.0, 0.7], [0.9, 0.0, 0.0, 0.1]], dtype=torch.float32
    )
    assert word_links(weights, [0, 1, 1], [0, 0, 1]) == [(1, 0)]
    assert word_links(weights[:, [0, 3]], [0], [0, 0, 1]) == [(0, 0)]
    assert word_links(torch.ones(1, 1), [], []) == []


def test_the_words_of_parts_are_those_of_the_joined_line(translator: Translator) -> None:
    encode = translator.subwords.encode
    assert translator._first_words(encode(["I eat.", "The house is red.", "Yes."])) == [0, 2, 6]
    assert translator._first_words(encode(["一二。", "三四 五。", "六"])) == [0, 0, 1]
    assert translator._first_words([]) == []


class Stars:
    """Stars at the end of a line are kept from the model, and are there again in the translation."""

    def before(self, line: str) -> tuple[str, int]:
        return line.rstrip("*"), line.count("*")

    def after(self, line: str, mark: int) -> str:
        return line + mark * "*"


def test_a_model_reads_lines_as_it_learned_to_and_its_translations_are_put_back(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A no-break space, or an accent apart from its letter, is not seen by people, but is another piece."""
    monkeypatch.setitem(STEPS, "stars", Stars())
    line, odd = "The café is red.", " The\u00a0cafe\u0301  is\u202fred. "
    given = Translator(translator.model, translator.subwords, pipeline=TextPipeline(["tidy", "stars"]))
    (plain,) = given.translate([line])
    assert given.translate([odd, "\u00a0", line + "***"]) == [f" {plain} ", "", plain + "***"]
    odd_scores, scores = (given.explain(line, text).piece_scores for text in (" e\u0301 vermello", "é vermello"))
    assert odd_scores == scores
    odd_scores, scores = (translator.explain(line, text).piece_scores for text in (" e\u0301 vermello", "é vermello"))
    assert odd_scores != scores, "this run was not told to"


def test_a_model_that_was_not_taught_has_no_alignment(translator: Translator) -> None:
    (best,) = next(translator.translations(["The house is red."]))
    with pytest.raises(InputError, match="was not taught word alignments"):
        translator.alignment(best)
