from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qknorm.data.batches import Batch, BatchSampler, DropoutPairs, Encoded, FixedPairs, PairData, plan
from qknorm.data.subwords import BOS, EOS, PAD, UNK, Subwords


def lengths(count: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths like those of a real corpus: skewed, and the two sides alike but not equal."""
    rng = np.random.default_rng(seed)
    source = np.clip(rng.lognormal(3, 0.6, count), 2, 200).astype(np.int64)
    target = np.clip(source * rng.lognormal(0, 0.2, count), 2, 200).astype(np.int64)
    return source, target


def pairs(count: int = 300, seed: int = 0) -> FixedPairs:
    """Row i consists of the number 4 + i repeated, so that a batch shows which rows it has."""
    source, target = lengths(count, seed)
    return FixedPairs(
        Encoded.from_lists([[4 + row] * (length - 1) for row, length in enumerate(source)]),
        Encoded.from_lists([[4 + row] * (length - 1) for row, length in enumerate(target)]),
    )


def rows_of(batch: Batch) -> list[int]:
    return [int(row) - 4 for row in batch.source[:, 0]]


def take(sampler: BatchSampler, count: int) -> list[tuple[int, list[list[int]]]]:
    return [(batch.direction, batch.source.tolist()) for batch in itertools.islice(iter(sampler), count)]


BATCH = Batch.of([[5, 6], [7]], [[8], [9, 10, 11]])


def test_a_batch_is_padded_and_knows_its_lengths() -> None:
    assert BATCH.source.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert BATCH.target_in.tolist() == [[BOS, 8, PAD, PAD], [BOS, 9, 10, 11]]
    assert BATCH.target_out.tolist() == [[8, EOS, PAD, PAD], [9, 10, 11, EOS]]
    assert BATCH.source_mask.tolist() == [[[[True, True, True]]], [[[True, True, False]]]]
    assert BATCH.source_lengths.tolist() == [3, 2]
    assert BATCH.target_lengths.tolist() == [2, 4]
    assert BATCH.target_tokens == 6
    moved = BATCH.to("meta")
    assert moved.source.device.type == moved.target_in.device.type == moved.target_out.device.type == "meta"


def test_word_dropout_drops_its_share_and_spares_special_pieces_and_the_stored_data() -> None:
    before = (BATCH.source.clone(), BATCH.target_in.clone())
    dropped = BATCH.with_word_dropout(1.0)
    assert dropped.source.tolist() == [[UNK, UNK, EOS], [UNK, EOS, PAD]]
    assert dropped.target_in.tolist() == [[BOS, UNK, PAD, PAD], [BOS, UNK, UNK, UNK]]
    assert torch.equal(dropped.target_out, BATCH.target_out)
    assert torch.equal(BATCH.source, before[0])
    assert torch.equal(BATCH.target_in, before[1])
    batch = Batch.of([[9] * 2000] * 5, [[9]] * 5)
    drawn = [batch.with_word_dropout(0.1, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert (drawn[0].source == UNK).float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert torch.equal(drawn[0].source, drawn[1].source)
    assert not torch.equal(drawn[0].source, drawn[2].source)


length_lists = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 120)), min_size=1, max_size=200)


@settings(max_examples=50)
@given(length_lists, st.integers(64, 1024), st.integers(0, 3))
def test_every_row_is_in_exactly_one_batch_and_the_budget_holds(
    sizes: list[tuple[int, int]], budget: int, number: int
) -> None:
    source, target = np.array(sizes).T
    batches = plan(source, target, budget, seed=1, number=number)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * max(source[rows].max(), target[rows].max()) <= budget


def test_neighbours_are_a_matter_of_seed_and_pass() -> None:
    source, target = lengths(5000)

    def companions(seed: int, number: int) -> set[tuple[int, int]]:
        batches = plan(source, target, 2048, seed, number)
        return {two for rows in batches for two in itertools.combinations(rows.tolist(), 2)}

    first = companions(1, 0)
    assert companions(1, 0) == first
    for other in (companions(1, 1), companions(2, 0)):
        assert len(first & other) < 0.7 * len(first)


def test_batches_of_a_small_corpus_are_not_torn_to_pieces_and_short_ones_stand_between_long_ones() -> None:
    for count in (200, 1000, 5000):
        source, target = lengths(count)
        batches = plan(source, target, 4096, 1, 0)
        assert len(batches) <= 5 + 1.6 * np.maximum(source, target).sum() / 4096
    positions = sum(len(rows) * (source[rows].max() + target[rows].max()) for rows in batches)
    assert positions <= 1.2 * (source.sum() + target.sum()), "little of it is padding"
    longest = np.array([source[rows].max() for rows in plan(source, target, 1024, 1, 0)])
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.25


LINES = ["the lower the newer the wider", "a casa máis nova", "newest lowest"] * 10
SUBWORDS = Subwords.learn(LINES, 40, "raw")


def drawn_anew(seed: int = 1) -> DropoutPairs:
    return DropoutPairs(SUBWORDS, LINES, LINES, 0.3, seed)


def test_a_pass_shows_every_row_once_beside_its_own_target() -> None:
    data, seen = pairs(), Counter[int]()
    in_pass = len(plan(data.source.lengths + 1, data.target.lengths + 1, 512, 1, 0))
    for batch in itertools.islice(iter(BatchSampler([data], 512, seed=1)), in_pass):
        assert torch.equal(batch.source[:, 0], batch.target_in[:, 1])
        seen.update(rows_of(batch))
    assert seen == Counter(range(300))


@pytest.mark.parametrize("data", [[pairs()], [pairs(), pairs(50, 1)], [drawn_anew()]], ids=["one", "several", "drawn"])
def test_the_ranks_share_one_stream_that_goes_on_exactly_from_the_state_of_any(data: list[PairData]) -> None:
    expected = take(BatchSampler(data, 128, seed=1), 360)
    for begun in (0, 7, 80):  # within a pass, and after several
        samplers = [BatchSampler(data, 128, 1, rank, 3) for rank in range(3)]
        for sampler in samplers:
            take(sampler, begun)
        state = samplers[0].state_dict()
        assert all(sampler.state_dict() == state for sampler in samplers)
        restored = [BatchSampler(data, 128, 1, rank, 3) for rank in range(3)]
        for sampler in restored:
            sampler.load_state_dict(state)
        shares = zip(*(take(sampler, 40) for sampler in restored), strict=True)
        assert [batch for together in shares for batch in together] == expected[3 * begun : 3 * begun + 120]


def test_small_pairs_are_seen_more_often_than_their_size() -> None:
    large, small = pairs(3000), pairs(100, 1)
    sampler = BatchSampler([large, small], 512, seed=1)
    share = np.mean([direction for direction, _ in take(sampler, 3000)])
    counts = [len(plan(data.source.lengths + 1, data.target.lengths + 1, 512, 1, 0)) for data in (large, small)]
    weights = np.array(counts) ** 0.7
    assert share == pytest.approx(weights[1] / weights.sum(), abs=0.02)
    assert share > 1.5 * counts[1] / sum(counts)


def test_a_text_is_drawn_by_its_weight_and_its_batches_have_its_number() -> None:
    sampler = BatchSampler([pairs(500), pairs(500, 1)], 512, seed=1, weights=[1, 3], numbers=[0, 7])
    drawn = [number for number, _ in take(sampler, 2000)]
    assert set(drawn) == {0, 7}
    assert drawn.count(7) / len(drawn) == pytest.approx(0.75, abs=0.03)


def test_in_the_end_only_ones_own_is_drawn_and_a_position_goes_on_there() -> None:
    data = [pairs(500), pairs(500, 1), pairs(500, 2)]
    sampler, restored = (BatchSampler(data, 512, seed=1, own=[True, False, True]) for _ in range(2))
    sampler.own_from = restored.own_from = 60
    assert {number for number, _ in take(sampler, 60)} == {0, 1, 2}
    restored.load_state_dict(sampler.state_dict())
    rest = take(sampler, 40)
    assert {number for number, _ in rest} == {0, 2}
    assert take(restored, 40) == rest


def test_nothing_to_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        BatchSampler([], 512, 1)
    with pytest.raises(ValueError, match="sentences in each"):
        BatchSampler([FixedPairs(Encoded.from_lists([]), Encoded.from_lists([]))], 512, 1)


def test_pieces_are_drawn_anew_in_each_pass_and_for_each_side_from_the_seed_alone() -> None:
    source, target = drawn_anew().in_pass(0)
    again, second, other = (drawn_anew(seed).in_pass(number)[0] for seed, number in ((1, 0), (1, 1), (2, 0)))
    assert source.numbers.tolist() == again.numbers.tolist()
    assert all(source.numbers.tolist() != different.numbers.tolist() for different in (target, second, other))
    assert [SUBWORDS.decode(source[row].tolist()) for row in range(len(source))] == LINES
