from __future__ import annotations

from qknorm.training.validation import Validation


def test_more_of_a_score_is_always_better() -> None:
    for more_is_better, score in ((True, 3.0), (False, -3.0)):
        assert Validation({"dev_ter": 3.0, "dev_loss": 5.0}, "dev_ter", more_is_better).score == score


def test_a_line_has_the_chosen_measure_first_and_those_of_pairs_by_name() -> None:
    measures, by_direction = (
        {"dev_bleu": 20.0, "dev_chrf": 50.0},
        {"en-gl": {"dev_bleu": 19.0}, "gl-en": {"dev_bleu": 21.0}},
    )
    found = Validation(measures, "dev_chrf", True, by_direction).by_name()
    assert list(found.items()) == [
        ("dev_chrf", 50.0),
        ("dev_bleu", 20.0),
        ("dev_bleu en-gl", 19.0),
        ("dev_bleu gl-en", 21.0),
    ]
