"""That CTranslate2 and Hugging Face's `generate` are measured with our very weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from qknorm.data.batches import Batch
from qknorm.data.subwords import BOS, EOS, PAD
from qknorm.decoding.beam import BeamSettings, beam_search
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from qknorm.models.translator import TranslatorConfig, TranslatorModel

SOURCES = [[7, 8, 9, 30, 31], [12], [11, 10, 9, 8, 7, 6, 5, 4]]
NEEDED = "only the extra `bench` installs it"


def small_model(**choices: object) -> TranslatorModel:
    torch.manual_seed(0)
    target_pieces = torch.ones(40, dtype=torch.bool)
    target_pieces[[PAD, BOS, 20, 21, 22]] = False
    config = TranslatorConfig(16, 32, 2, 3, 2, **choices)  # type: ignore[arg-type]
    model = TranslatorModel(config, {("en", "gl"): target_pieces}).eval()
    for parameter in model.parameters():  # biases and norms too, which start at 0 and 1
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def scored_by_ctranslate2(model: TranslatorModel, targets: Sequence[Sequence[int]]) -> list[Tensor]:
    pytest.importorskip("ctranslate2", reason=NEEDED)
    from benchmarks.translators.ctranslate import CTranslate2Decoder, piece_name

    sources, named = ([[*map(piece_name, pieces)] for pieces in side] for side in (SOURCES, targets))
    scored = CTranslate2Decoder(model, BeamSettings()).translator.score_batch(sources, named)
    return [torch.tensor(line.log_probs) for line in scored]


def scored_by_hugging_face(model: TranslatorModel, targets: Sequence[Sequence[int]]) -> list[Tensor]:
    pytest.importorskip("transformers", reason=NEEDED)
    from benchmarks.translators.hugging_face import as_pegasus

    theirs, result = as_pegasus(model), []
    for source, target in zip(SOURCES, targets, strict=True):
        read = Batch.of([source], [[]]).source
        logits = theirs(input_ids=read, decoder_input_ids=torch.tensor([[BOS, *target]])).logits[0]
        result.append(logits.log_softmax(-1)[torch.arange(len(logits)), torch.tensor([*target, EOS])])
    return result


@pytest.mark.parametrize("scored_by", [scored_by_ctranslate2, scored_by_hugging_face])
def test_every_piece_has_the_log_probability_that_we_give_it(scored_by: Callable[..., list[Tensor]]) -> None:
    model = small_model(qk_norm="none", fix_norm=False)
    found = beam_search(model, [*map(Sentence, SOURCES)], BeamSettings(extra_length=9), model.directions[0])
    best = [hypotheses[0] for hypotheses in found]
    theirs = scored_by(model, [hypothesis.pieces for hypothesis in best])
    for scores, hypothesis in zip(theirs, best, strict=True):
        torch.testing.assert_close(scores, torch.tensor(hypothesis.piece_scores), atol=1e-4, rtol=1e-4)


def test_a_model_that_they_cannot_carry_is_refused() -> None:
    pytest.importorskip("transformers", reason=NEEDED)
    from benchmarks.translators.hugging_face import as_pegasus

    with pytest.raises(InputError, match="standard transformer"):
        as_pegasus(small_model(qk_norm="lp"))
