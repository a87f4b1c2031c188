from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qknorm.data.batches import Batch, BatchSampler, DropoutPairs, Encoded, FixedPairs, plan
from qknorm.data.subwords import BOS, EOS, PAD, UNK, Subwords
from qknorm.data.textfiles import read_lines
from tests.texts import benchmark_text


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


def take(sampler: BatchSampler, count: int) -> list[tuple[int, list[int]]]:
    return [(batch.direction, rows_of(batch)) for batch in itertools.islice(iter(sampler), count)]


class TestBatch:
    batch = Batch.of([[5, 6], [7]], [[8], [9, 10, 11]])

    def test_layout(self) -> None:
        assert self.batch.source.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
        assert self.batch.target_in.tolist() == [[BOS, 8, PAD, PAD], [BOS, 9, 10, 11]]
        assert self.batch.target_out.tolist() == [[8, EOS, PAD, PAD], [9, 10, 11, EOS]]

    def test_masks_and_lengths(self) -> None:
        assert self.batch.source_mask.shape == (2, 1, 1, 3)
        assert self.batch.source_mask[1, 0, 0].tolist() == [True, True, False]
        assert self.batch.source_lengths.tolist() == [3, 2]
        assert self.batch.target_lengths.tolist() == [2, 4]
        assert self.batch.target_tokens == 6

    def test_it_moves_between_devices(self) -> None:
        moved = self.batch.to("meta")
        assert moved.source.device.type == moved.target_in.device.type == moved.target_out.device.type == "meta"

    def test_word_dropout_spares_special_pieces_and_the_stored_data(self) -> None:
        before = (self.batch.source.clone(), self.batch.target_in.clone())
        dropped = self.batch.with_word_dropout(1.0)
        assert dropped.source.tolist() == [[UNK, UNK, EOS], [UNK, EOS, PAD]]
        assert dropped.target_in.tolist() == [[BOS, UNK, PAD, PAD], [BOS, UNK, UNK, UNK]]
        assert torch.equal(dropped.target_out, self.batch.target_out)
        assert torch.equal(self.batch.source, before[0])
        assert torch.equal(self.batch.target_in, before[1])

    def test_word_dropout_drops_its_share_and_can_be_repeated(self) -> None:
        batch = Batch.of([[9] * 2000] * 5, [[9]] * 5)
        drawn = [batch.with_word_dropout(0.1, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
        assert (drawn[0].source == UNK).float().mean().item() == pytest.approx(0.1, abs=0.01)
        assert torch.equal(drawn[0].source, drawn[1].source)
        assert not torch.equal(drawn[0].source, drawn[2].source)


length_lists = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 120)), min_size=1, max_size=200)


class TestPlan:
    @settings(max_examples=50)
    @given(length_lists, st.integers(64, 1024), st.integers(0, 3))
    def test_every_row_is_in_exactly_one_batch_and_the_budget_holds(
        self, sizes: list[tuple[int, int]], budget: int, number: int
    ) -> None:
        source, target = np.array(sizes).T
        batches = plan(source, target, budget, seed=1, number=number)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
        for rows in batches:
            assert len(rows) == 1 or len(rows) * max(source[rows].max(), target[rows].max()) <= budget

    def test_it_depends_on_seed_and_pass_alone(self) -> None:
        source, target = lengths(2000)
        first, again = (plan(source, target, 1024, 1, 5) for _ in range(2))
        assert [rows.tolist() for rows in first] == [rows.tolist() for rows in again]
        for seed, number in ((2, 5), (1, 6)):
            other = plan(source, target, 1024, seed, number)
            assert [rows.tolist() for rows in other] != [rows.tolist() for rows in first]

    def test_neighbours_do_not_meet_in_every_pass(self) -> None:
        source, target = lengths(5000)

        def companions(number: int) -> set[tuple[int, int]]:
            batches = plan(source, target, 2048, 1, number)
            return {two for rows in batches for two in itertools.combinations(rows.tolist(), 2)}

        first, second = companions(0), companions(1)
        assert len(first & second) < 0.7 * len(first)

    @pytest.mark.parametrize("count", [200, 1000, 5000])
    def test_batches_of_a_small_corpus_are_not_torn_to_pieces(self, count: int) -> None:
        source, target = lengths(count)
        batches = plan(source, target, 4096, 1, 0)
        assert len(batches) <= 5 + 1.6 * np.maximum(source, target).sum() / 4096

    def test_short_and_long_batches_are_mixed(self) -> None:
        source, target = lengths(5000)
        longest = np.array([source[rows].max() for rows in plan(source, target, 1024, 1, 0)])
        assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.25

    def test_little_padding_on_a_real_corpus(self) -> None:
        ted = benchmark_text("ted-gl-en")
        lines = [list(read_lines(ted / name)) for name in ("train.gl", "train.en")]
        subwords = Subwords.learn([*lines[0], *lines[1]], 3000, "words")
        source, target = (Encoded.from_lists(subwords.encode(side)).lengths + 1 for side in lines)
        for number in range(3):
            batches = plan(source, target, 4096, 1, number)
            positions = sum(len(rows) * (source[rows].max() + target[rows].max()) for rows in batches)
            assert positions <= 1.08 * (source.sum() + target.sum())
            assert len(batches) <= 1.6 * np.maximum(source, target).sum() / 4096


class TestSampler:
    def test_a_pass_shows_every_row_once(self) -> None:
        sampler = BatchSampler([pairs()], 512, seed=1)
        in_pass = sampler.batches_in_pass
        for _ in range(2):
            seen = [row for _, rows in take(sampler, in_pass) for row in rows]
            assert sorted(seen) == list(range(300))
        assert sampler.finished_passes == 2

    def test_targets_belong_to_their_sources(self) -> None:
        for batch in itertools.islice(iter(BatchSampler([pairs()], 512, seed=1)), 10):
            assert torch.equal(batch.source[:, 0], batch.target_in[:, 1])

    @pytest.mark.parametrize("taken", [0, 1, 17, 60, 150])
    @pytest.mark.parametrize("several", [False, True])
    def test_a_restored_position_goes_on_exactly(self, taken: int, several: bool) -> None:
        data = [pairs(), pairs(50, 1)] if several else [pairs()]
        sampler = BatchSampler(data, 512, seed=1)
        take(sampler, taken)
        state = sampler.state_dict()
        expected = take(sampler, 40)
        restored = BatchSampler(data, 512, seed=1)
        restored.load_state_dict(state)
        assert take(restored, 40) == expected

    def test_the_ranks_share_one_stream(self) -> None:
        alone = take(BatchSampler([pairs(), pairs(50, 1)], 512, seed=1), 60)
        shared = [take(BatchSampler([pairs(), pairs(50, 1)], 512, 1, rank, 3), 20) for rank in range(3)]
        assert [batch for together in zip(*shared, strict=True) for batch in together] == alone

    def test_the_state_of_any_rank_restores_all(self) -> None:
        samplers = [BatchSampler([pairs()], 512, 1, rank, 2) for rank in range(2)]
        for sampler in samplers:
            take(sampler, 7)
        state = samplers[0].state_dict()
        assert samplers[1].state_dict() == state
        for rank, sampler in enumerate(samplers):
            restored = BatchSampler([pairs()], 512, 1, rank, 2)
            restored.load_state_dict(state)
            assert take(restored, 20) == take(sampler, 20)

    def test_small_pairs_are_seen_more_often_than_their_size(self) -> None:
        large, small = pairs(3000), pairs(100, 1)
        sampler = BatchSampler([large, small], 512, seed=1)
        share = np.mean([direction for direction, _ in take(sampler, 3000)])
        counts = [len(plan(data.source.lengths + 1, data.target.lengths + 1, 512, 1, 0)) for data in (large, small)]
        weights = np.array(counts) ** 0.7
        assert share == pytest.approx(weights[1] / weights.sum(), abs=0.02)
        assert share > 1.5 * counts[1] / sum(counts)

    def test_nothing_to_sample_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one pair"):
            BatchSampler([], 512, 1)
        with pytest.raises(ValueError, match="sentences in each"):
            BatchSampler([FixedPairs(Encoded.from_lists([]), Encoded.from_lists([]))], 512, 1)


class TestDropoutPairs:
    lines = ["the lower the newer the wider", "a casa máis nova", "newest lowest"] * 10
    subwords = Subwords.learn(lines, 40, "raw")

    def data(self, seed: int = 1) -> DropoutPairs:
        return DropoutPairs(self.subwords, self.lines, self.lines, 0.3, seed)

    def test_each_pass_is_drawn_anew_and_can_be_drawn_again(self) -> None:
        first, again, second = (self.data().in_pass(number)[0].numbers.tolist() for number in (0, 0, 1))
        assert first == again
        assert first != second
        assert self.data(seed=2).in_pass(0)[0].numbers.tolist() != first

    def test_source_and_target_are_drawn_apart_and_the_text_is_whole(self) -> None:
        source, target = self.data().in_pass(0)
        assert source.numbers.tolist() != target.numbers.tolist()
        assert [self.subwords.decode(source[row].tolist()) for row in range(len(source))] == self.lines

    def test_a_sampler_over_them_can_be_restored(self) -> None:
        sampler = BatchSampler([self.data()], 128, seed=1)
        stream = iter(sampler)
        for _ in range(sampler.batches_in_pass + 2):
            next(stream)
        restored = BatchSampler([self.data()], 128, seed=1)
        restored.load_state_dict(sampler.state_dict())
        for batch, again in zip(itertools.islice(stream, 5), itertools.islice(iter(restored), 5), strict=True):
            assert torch.equal(batch.source, again.source)
            assert torch.equal(batch.target_out, again.target_out)
