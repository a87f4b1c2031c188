"""That Hugging Face's `generate` is measured with our very weights."""

import pytest
import torch

from qknorm.data.batches import Batch
from qknorm.data.subwords import BOS, EOS, PAD
from qknorm.decoding.beam import BeamSettings
from qknorm.errors import InputError
from tests.benchmarks.models import SOURCES, best_of, small_model

pytest.importorskip("transformers", reason="only the extra `bench` installs it")

from benchmarks.translators.hugging_face import PegasusDecoder, as_pegasus


def test_every_piece_has_the_log_probability_that_we_give_it() -> None:
    model = small_model(qk_norm="none", fix_norm=False)
    result = best_of(model, BeamSettings(extra_length=9))
    theirs = as_pegasus(model)
    for source, ours in zip(SOURCES, result, strict=True):
        read = Batch.of([source], [[]]).source
        logits = theirs(input_ids=read, decoder_input_ids=torch.tensor([[BOS, *ours.pieces]])).logits[0]
        scores = logits.log_softmax(-1)[torch.arange(len(logits)), torch.tensor([*ours.pieces, EOS])]
        torch.testing.assert_close(scores, torch.tensor(ours.piece_scores), atol=1e-4, rtol=1e-4)


def test_greedy_translations_are_equal() -> None:
    model = small_model(qk_norm="none", fix_norm=True)
    settings = BeamSettings(beam_size=1, extra_length=9)
    ours = [best.pieces for best in best_of(model, settings)]
    theirs = PegasusDecoder(model, settings).translate(SOURCES)
    limits = [len(source) + 9 for source in SOURCES]
    assert [pieces[:limit] for pieces, limit in zip(theirs, limits, strict=True)] == ours
    assert all(PAD not in pieces for pieces in theirs)


def test_a_model_that_it_cannot_carry_is_refused() -> None:
    with pytest.raises(InputError, match="standard transformer"):
        as_pegasus(small_model(qk_norm="lp"))
