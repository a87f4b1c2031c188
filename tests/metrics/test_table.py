from __future__ import annotations

import pytest

from qknorm.errors import InputError
from qknorm.evaluation.scores import scores
from qknorm.metrics.table import METRICS, is_too_short_for_bleu
from qknorm.runs.recipe import make_recipe
from tests.metrics.test_script import CHINESE, JAPANESE, KOREAN, THAI

REFERENCES = ["The red house is very big .", "I am here now , my friend .", "It is late , and the shop is closed ."]
GARBLED = ["The red house is very xx .", "I am xx now , my friend .", "It is late , and the xx is closed ."]
UNLIKE = ["xx yy", "zz", "yy xx zz"]


@pytest.mark.parametrize("name", METRICS)
def test_a_better_translation_scores_better(name: str) -> None:
    metric = METRICS[name]
    best, good, bad = (metric.score(lines, REFERENCES, True) for lines in (REFERENCES, GARBLED, UNLIKE))
    assert best == pytest.approx(100 if metric.more_is_better else 0)
    assert (best > good > bad) if metric.more_is_better else (best < good < bad)


def test_a_test_set_is_scored_by_every_metric() -> None:
    assert list(scores(GARBLED, REFERENCES, tokenized=True).content()) == [*METRICS, "lines", "signature"]


@pytest.mark.parametrize("name", METRICS)
def test_a_checkpoint_can_be_chosen_by_whatever_needs_no_other_text(name: str) -> None:
    content = {"data": {"corpus": "phrasebook-en-gl"}, "training": {"metric": name}}
    if not METRICS[name].of_tokens:
        assert make_recipe(content, [], "mine.yaml").training.metric == name
    else:
        with pytest.raises(InputError, match=r"training\.metric: Input should be 'bleu', 'chrf'"):
            make_recipe(content, [], "mine.yaml")


@pytest.mark.parametrize("references", [CHINESE, JAPANESE, THAI], ids=["zh", "ja", "th"])
def test_without_spaces_a_better_translation_has_more_bleu(references: list[str]) -> None:
    good, bad = (["々" * wrong + line[wrong:] for line in references] for wrong in (1, 4))
    best, better, worse = (METRICS["bleu"].score(lines, references) for lines in (references, good, bad))
    assert best == pytest.approx(100)
    assert 100 > better > worse > 0


SENTENCE = "It is late , and the shop is closed . " * 5


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        *((references, False) for references in (CHINESE, THAI, KOREAN, ["The shop is closed."], [])),
        (["house", "bread", "to read", "the sea", "shop"], True),
        (["房子", "面包", "读书"], True),  # words are those that BLEU counts: two characters each
        (["He left!!", "No, thanks."], False),  # punctuation counts
        (["house", "bread", SENTENCE], True),  # most lines decide, and not how long the others are
        (["house", SENTENCE], False),
    ],
)
def test_most_lines_decide_by_the_words_that_bleu_counts(references: list[str], expected: bool) -> None:
    assert is_too_short_for_bleu(references) == expected


def test_tokens_count_as_they_stand() -> None:
    assert is_too_short_for_bleu(["He left!!", "No, thanks."], tokenized=True)
