"""The translator, with a model that has been trained."""

from __future__ import annotations

import io
import random
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch

from qknorm import Translator
from qknorm.data.pipeline import STEPS, TextPipeline
from qknorm.data.subwords import SIGNS, Scheme, Subwords
from qknorm.data.textfiles import read_lines
from qknorm.decoding.beam import BeamSettings, Hypothesis
from qknorm.decoding.decoder import Decoder
from qknorm.decoding.decoders import DECODERS, make_decoder
from qknorm.decoding.sentence import Sentence
from qknorm.decoding.translator import word_links
from qknorm.errors import InputError
from qknorm.models.ensemble import Stepwise
from qknorm.models.translator import Direction, TranslatorModel
from qknorm.runs import checkpoint
from tests.models.test_translator import TINY


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
        [
            "recipe.yaml",
            "pairs.json",
            "tokenizer.json",
            "corpus.json",
            "confidence.json",
            "best",
            "state.json",
            "model.safetensors",
        ],
        1,
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


def test_a_line_is_as_probable_as_its_pieces(translator: Translator) -> None:
    """Of two sentences, between theirs."""
    made = [best for (best,) in translator.translations(["I eat.", "жжж 😀", "The house is red."])]
    made.sort(key=translator.probability)
    both = replace(made[0], parts=[*made[0].parts, *made[-1].parts])
    low, middle, high = map(translator.probability, (made[0], both, made[-1]))
    assert 0 < low < middle < high <= 1
    assert translator.probability(replace(made[0], parts=[])) == 1


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


class TestEnsemble:
    def test_a_run_beside_itself_translates_as_it_does_alone(
        self, translator: Translator, trained_run: Path, lines: list[str]
    ) -> None:
        together = Translator.ensemble(trained_run, trained_run)
        results = [[best for (best,) in one.translations(lines)] for one in (translator, together)]
        alone, both = ([(one.text, one.notes) for one in result] for result in results)
        assert alone == both
        assert [one.score for one in results[0]] == pytest.approx([one.score for one in results[1]], abs=1e-4)
        assert (together.longest, together.directions) == (translator.longest, translator.directions)
        scores = [one.explain(lines[0], "Nin falar.").piece_scores for one in (translator, together)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)

    def test_what_is_longer_than_any_of_them_has_read_is_cut(self, trained_run: Path, tmp_path: Path) -> None:
        other = copied(trained_run, tmp_path, "corpus.json", r'"longest_source": \d+', '"longest_source": 5')
        assert Translator.ensemble(trained_run, other).longest == 5

    @pytest.mark.parametrize(
        ("file", "old", "new", "doubt"),
        [
            ("pairs.json", '"target": "[^"]*"', '"target": "pt"', r"one translates \w+-pt, the other"),
            ("recipe.yaml", "tidy: false", "tidy: true", "they read lines in different ways"),
        ],
    )
    def test_runs_that_do_not_go_together_are_refused(
        self, trained_run: Path, tmp_path: Path, file: str, old: str, new: str, doubt: str
    ) -> None:
        with pytest.raises(InputError, match=f"run and {trained_run} cannot translate together: {doubt}"):
            Translator.ensemble(trained_run, copied(trained_run, tmp_path, file, old, new))


def copied(run: Path, folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of a run, one of whose files is another."""
    shutil.copytree(run, other := folder / "run")
    text, count = re.subn(old, new, (other / file).read_text(encoding="utf-8"))
    assert count
    (other / file).write_text(text, encoding="utf-8")
    return other


@dataclass(frozen=True)
class Careless(Decoder):
    """In place of a search: says what it read with so many changes, and one less in each further hypothesis."""

    changes: int = 3
    options: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:  # noqa: ARG003
        return cls()

    def width(self, sentence: Sentence) -> int:
        return max(sentence.n, 4)

    def decode(
        self,
        model: Stepwise,  # noqa: ARG002
        sentences: Sequence[Sentence],
        direction: Direction,  # noqa: ARG002
    ) -> list[list[Hypothesis]]:
        return [[self._said(sentence, place) for place in range(sentence.n)] for sentence in sentences]

    def _said(self, sentence: Sentence, place: int) -> Hypothesis:
        chance, pieces = random.Random(f"{sentence.key} {place}"), list(sentence.pieces)
        for _ in range(self.changes - place):
            row, other = (chance.randrange(max(len(pieces), 1)) for _ in range(2))
            if chance.random() < 0.4:
                del pieces[row : row + 1]
            elif chance.random() < 0.5:
                pieces[row:row] = pieces[other : other + 1]
            elif pieces:
                pieces[row], pieces[other] = pieces[other], pieces[row]
        return Hypothesis(pieces, -float(place), [0.0] * (len(pieces) + 1))


KEPT = ["%s", "%(a)s", "{0}", "{{x}}", "${x}", "<b>", "</b>", "<br/>", "&amp;", "https://a.org/b", "me@a.org", "\\n"]


def parrot(changes: int, scheme: Scheme = "raw", **options: Any) -> Translator:
    lines = ["a be the house", *(f"a{sign}be {sign} the" for sign in SIGNS[:9])] * 2
    subwords, pipeline = Subwords.learn(lines, 20, scheme), TextPipeline(["keep", "tidy"])
    target_pieces = torch.ones(len(subwords), dtype=torch.bool)
    model = TranslatorModel(TINY, {("en", "gl"): target_pieces}).eval()
    return Translator(model, subwords, pipeline=pipeline, **options).with_decoder(Careless(changes))


def generated(count: int) -> list[str]:
    """Lines of words and placeholders with spaces between them or none, but for what has no other end."""
    chance = random.Random(0)
    words = ["a", "be", "the house", "the", *KEPT, *KEPT]
    ends = {"https://a.org/b": [" ", ", "], "me@a.org": [" ", ". "]}
    lines = [chance.choices(words, k=chance.randrange(1, 9)) for _ in range(count)]
    return ["".join(word + chance.choice(ends.get(word, ["", " "])) for word in line) for line in lines]


class TestKeeping:
    @pytest.mark.parametrize("scheme", ["raw", "words"])
    @pytest.mark.parametrize("changes", [4, 7])
    def test_every_placeholder_is_there_in_ten_thousand_lines(self, scheme: Scheme, changes: int) -> None:
        """As often as in the line, tags and %s in its order, or a note says so: here none has to."""
        lines = generated(2500)
        notes = Counter[str]()
        for line, (best,) in zip(lines, parrot(changes, scheme).translations(lines), strict=True):
            notes.update(best.notes)
            for kept in KEPT:
                assert best.text.count(kept) == line.count(kept)
            order = [re.findall(r"%s|</?b>|<br/>", text) for text in (line, best.text)]
            assert order[0] == order[1]
        repaired, reported = (
            sum(count for note, count in notes.items() if why in note) for why in ("put back", "is not")
        )
        assert 0 < repaired < len(lines)
        assert reported < 0.05 * len(lines), "what touches by now and did not before"

    def test_another_hypothesis_is_taken_before_anything_is_repaired(self) -> None:
        """Here the fourth is what was read, without any change."""
        made = [best for (best,) in parrot(3).translations(generated(100))]
        assert {best.notes for best in made} == {()}
        assert {best.score for best in made} == {0.0, -1.0, -2.0, -3.0}
        assert len(next(parrot(5).translations(["the <b>%s</b> house"], n_best=4))) == 4

    def test_lines_without_any_are_asked_for_no_more_hypotheses(self) -> None:
        results = next(parrot(1).translations(["the house"], n_best=1))
        assert [result.score for result in results] == [0.0]

    def test_white_space_comes_back(self) -> None:
        line = "\u00a0 the\u00a0! %s\u00a0a\t"
        assert parrot(0).translate([line, " \u00a0"]) == [line, ""]

    def test_a_repaired_translation_has_pieces_scores_and_an_alignment_of_its_words(self) -> None:
        translator = parrot(9, taught=True)
        lines = [f"{line} <br class='a b'/> a" for line in generated(20)]
        for line, (best,) in zip(lines, translator.translations(lines), strict=True):
            for part in best.parts:
                assert 0 <= translator.probability(best) <= 1
                assert len(translator.piece_scores(part)) == len(translator.spelled(part.target.pieces))
            words = [len(text.split()) for text in (line, best.text)]
            for source, target in translator.alignment(best):
                assert source < words[0]
                assert target < words[1]

    def test_an_explanation_of_a_given_translation_has_its_signs(self) -> None:
        explained = parrot(0).explain("the %s <b>a</b>", "<b>the</b> %s")
        signs = [piece.strip("▁") for piece in explained.target_pieces if piece.strip("▁") in SIGNS]
        assert signs == [SIGNS[1], SIGNS[2], SIGNS[0]]

    def test_terms_are_in_the_translation(self) -> None:
        terms = {"the house": "a casa", "be": "ser"}
        (best,) = next(parrot(0).keeping(terms=terms).translations(["The house, be the house <b>"]))
        assert (best.text, best.notes) == ("A casa, ser a casa <b>", ())
        lines = [line for line in generated(2000) if "<" not in line]
        for line, (best,) in zip(lines, parrot(7).keeping(terms=terms).translations(lines), strict=True):
            assert best.text.count("a casa") >= len(re.findall(r"(?<!\w)the house(?!\w)", line))

    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_an_ensemble_keeps_as_a_model_does(self, beam_size: int) -> None:
        search = make_decoder("beam", BeamSettings(extra_length=3), 1, beam_size=beam_size)
        together = parrot(0, others=[parrot(0).model], taught=True).with_decoder(search)
        (made,) = together.keeping(terms={"the house": "a casa"}).translate(["the house %s be {0}"])
        assert all(made.count(kept) == 1 for kept in ("a casa", "%s", "{0}"))

    def test_a_model_that_learned_no_signs_can_keep_nothing(self, translator: Translator) -> None:
        with pytest.raises(InputError, match="learned without placeholders"):
            translator.keeping(["x"])
