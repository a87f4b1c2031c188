"""That CTranslate2 is measured with our very weights."""

from pathlib import Path

import pytest
import torch

from qknorm.decoding.beam import BeamSettings
from qknorm.errors import InputError
from tests.benchmarks.models import SOURCES, best_of, small_model

pytest.importorskip("ctranslate2", reason="only the extra `bench` installs it")

from benchmarks.translators.ctranslate import CTranslate2Decoder, piece_name, save_as_ctranslate2


def test_every_piece_has_the_log_probability_that_we_give_it() -> None:
    model = small_model(qk_norm="none", fix_norm=False)
    result = best_of(model, BeamSettings(extra_length=9))
    sources = [[piece_name(number) for number in source] for source in SOURCES]
    targets = [[piece_name(number) for number in hypothesis.pieces] for hypothesis in result]
    scored = CTranslate2Decoder(model, BeamSettings()).translator.score_batch(sources, targets)
    for ours, theirs in zip(result, scored, strict=True):
        torch.testing.assert_close(
            torch.tensor(theirs.log_probs), torch.tensor(ours.piece_scores), atol=1e-4, rtol=1e-4
        )


def test_greedy_translations_are_equal() -> None:
    model = small_model(qk_norm="none", fix_norm=True)
    settings = BeamSettings(beam_size=1, extra_length=9)
    ours = [best.pieces for best in best_of(model, settings)]
    theirs = CTranslate2Decoder(model, settings).translate(SOURCES)
    limits = [len(source) + 9 for source in SOURCES]
    assert [pieces[:limit] for pieces, limit in zip(theirs, limits, strict=True)] == ours


def test_a_model_that_it_cannot_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard transformers"):
        save_as_ctranslate2(small_model(qk_norm="lp"), tmp_path)
