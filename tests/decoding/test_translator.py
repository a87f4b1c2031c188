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
from qknorm.data.pipeline import TextPipeline
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
    return [*read_lines(trained_run / "test" / "source.txt")][:66]


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
    together = list(translator.translations(lines, lines_at_once=64))
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


def test_n_best_are_different_and_in_order(translator: Translator, lines: list[str]) -> None:
    for result in translator.translations(lines[:8], n_best=3):
        scores = [best.score for best in result]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(best.parts[0].target.pieces) for best in result}) == 3


def test_the_first_of_the_n_best_is_the_translation(translator: Translator, lines: list[str]) -> None:
    n_best = translator.translations(lines[:8], n_best=4)
    assert [best.text for best, *_ in n_best] == translator.translate(lines[:8])


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


def test_an_explanation_fits_its_translation(translator: Translator, lines: list[str]) -> None:
    result = translator.explain(lines[0])
    (best,) = next(translator.translations(lines[:1]))
    assert result.target_pieces == translator.spelled(best.parts[0].target.pieces)
    assert result.piece_scores == pytest.approx(best.parts[0].target.piece_scores, abs=1e-5)
    source, target = len(result.source_pieces), len(result.target_pieces)
    assert result.source_pieces[-1] == result.target_pieces[-1] == "</s>"
    assert result.attention.encoder.shape == (1, 4, source, source)
    assert result.attention.decoder.shape == (2, 4, target, target)
    assert result.attention.cross.shape == (2, 4, target, source)


def test_a_given_translation_can_be_explained(translator: Translator, lines: list[str]) -> None:
    best = translator.explain(lines[0])
    text = translator.subwords.decode([translator.subwords.pieces.index(piece) for piece in best.target_pieces])
    assert text == translator.translate(lines[:1])[0]
    again = translator.explain(lines[0], text)
    if again.target_pieces == best.target_pieces:
        assert again.piece_scores == pytest.approx(best.piece_scores, abs=1e-5)
    worse = translator.explain(lines[0], "Nin falar.")
    assert sum(worse.piece_scores) < sum(best.piece_scores)
    assert translator.explain(lines[0], "ж").piece_scores[1] == -torch.inf


@pytest.mark.parametrize("line", ["", "I eat. " * 60])
def test_only_one_sentence_is_explained_at_a_time(translator: Translator, line: str) -> None:
    with pytest.raises(InputError, match="explain one sentence at a time"):
        translator.explain(line)


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


def test_a_model_of_tidy_text_is_given_tidy_lines(trained_run: Path) -> None:
    """A no-break space, or an accent apart from its letter, is not seen by people, but is another piece."""
    translator = Translator.load(trained_run)
    line, odd = "The café is red.", " The\u00a0cafe\u0301  is\u202fred. "
    assert translator._read(odd).sentences != translator._read(line).sentences, "this run was not told to"
    translator.pipeline = TextPipeline(["tidy"])
    assert translator._read(odd).sentences == translator._read(line).sentences
    assert translator.translate([odd, "\u00a0"]) == [*translator.translate([line]), ""]
    odd_scores, scores = (translator.explain(line, text).piece_scores for text in (" e\u0301 vermello", "é vermello"))
    assert odd_scores == scores


def test_a_model_that_was_not_taught_has_no_alignment(translator: Translator) -> None:
    (best,) = next(translator.translations(["The house is red."]))
    with pytest.raises(InputError, match="was not taught word alignments"):
        translator.alignment(best)
