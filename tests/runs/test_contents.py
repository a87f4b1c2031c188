"""The contents of a run folder: what earlier versions wrote is read, and what is written has the keys of the design."""

from __future__ import annotations

from qknorm.runs.contents import DirectionParts, ModelParts, Scores, TranslationResult, ValidationLine
from tests.contents import validation


def test_a_validation_has_the_keys_that_other_programs_rely_on() -> None:
    line = validation(measures={"dev_bleu": 2.5, "dev_loss": 3.0}, scales={"encoder.0.attention": [1.0, 2.0]})
    keys = "step seconds tokens_per_second train_loss lr dev_bleu dev_loss scales"
    assert " ".join(line.content()) == keys
    assert ValidationLine.of_text(line.as_text(), "") == line
    assert (line.dev_bleu, line.dev_loss, line.val_loss) == (2.5, 3.0, None)


def test_a_validation_of_an_earlier_version_says_less_of_attention() -> None:
    text = (
        '{"step": 10, "seconds": 1.5, "tokens_per_second": 3.0, "train_loss": 2.0, "lr": 0.1, "val_loss": 2.5, '
        '"attention": [{"entropy": [0.5], "saturated": [0.1], "largest_logit": [3.0], "bound": [6.0], "alpha": [2.0]}]}'
    )
    (layer,) = ValidationLine.of_text(text, "").attention
    assert layer.use_of_bound == [0.5]
    assert layer.g is None


def test_scores_have_the_names_of_the_table_of_metrics() -> None:
    text = '{"bleu": 1.0, "bleu_tokenized": 2.0, "chrf": 3.0, "chrf++": 4.0, "ter": 5.0, "lines": 6, "signature": "s"}'
    scores = Scores.of_text(text, "")
    assert (scores.bleu, scores.measures["bleu_tokenized"], scores.chrf, scores.ter) == (1.0, 2.0, 3.0, 5.0)


def test_a_result_from_before_other_metrics_chose_checkpoints_has_no_score_by_them() -> None:
    text = '{"bleu": 20.0, "best_dev_bleu": 21.0, "updates": 3, "seconds": 1.5}'
    assert TranslationResult.of_text(text, "").best_dev_score is None


def test_the_directions_of_a_model_keep_the_key_of_the_first_runs() -> None:
    directions = [DirectionParts(source=source, target="en", target_pieces=[1]) for source in ("gl", "pt")]
    parts = ModelParts(scale_init=None, vocabulary="v", corpus="c", directions=directions)
    assert [*parts.content()] == ["scale_init", "vocabulary", "corpus", "pairs"]
    assert ModelParts.of_text(parts.as_text(), "") == parts
