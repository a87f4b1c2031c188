"""That CTranslate2 is measured with our very weights."""

from pathlib import Path

import pytest
import torch

from qknorm.data.subwords import BOS, PAD
from qknorm.decoding.beam import BeamSettings, beam_search
from qknorm.errors import InputError
from qknorm.models.translator import LanguagePair, TranslatorConfig, TranslatorModel

pytest.importorskip("ctranslate2", reason="only the extra `bench` installs it")

from benchmarks.translators.ctranslate import CTranslate2Decoder, piece_name, save_as_ctranslate2

SOURCES = [[7, 8, 9, 30, 31], [12], [11, 10, 9, 8, 7, 6, 5, 4]]


def small_model(**choices: object) -> TranslatorModel:
    torch.manual_seed(0)
    said = torch.ones(40, dtype=torch.bool)
    said[[PAD, BOS, 20, 21, 22]] = False
    config = TranslatorConfig(16, 32, 2, 3, 2, **choices)  # type: ignore[arg-type]
    model = TranslatorModel(config, [LanguagePair(0, 1, said)]).eval()
    for parameter in model.parameters():  # biases and norms too, which start at 0 and 1
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def test_every_piece_has_the_log_probability_that_we_give_it() -> None:
    model = small_model(attention="dot", fix_norm=False)
    found = [hypotheses[0] for hypotheses in beam_search(model, SOURCES, BeamSettings(extra_length=9))]
    sources = [[piece_name(number) for number in source] for source in SOURCES]
    said = [[piece_name(number) for number in hypothesis.pieces] for hypothesis in found]
    scored = CTranslate2Decoder(model, BeamSettings()).translator.score_batch(sources, said)
    for ours, theirs in zip(found, scored, strict=True):
        torch.testing.assert_close(
            torch.tensor(theirs.log_probs), torch.tensor(ours.piece_scores), atol=1e-4, rtol=1e-4
        )


def test_greedy_translations_are_equal() -> None:
    model = small_model(attention="dot", fix_norm=True)
    settings = BeamSettings(beam_size=1, extra_length=9)
    ours = [hypotheses[0].pieces for hypotheses in beam_search(model, SOURCES, settings)]
    theirs = CTranslate2Decoder(model, settings).translate(SOURCES)
    limits = [len(source) + 9 for source in SOURCES]
    assert [pieces[:limit] for pieces, limit in zip(theirs, limits, strict=True)] == ours


def test_a_model_that_it_cannot_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard transformers"):
        save_as_ctranslate2(small_model(attention="lp"), tmp_path)
