from __future__ import annotations

import pytest
import torch

from qknorm.ops._random import factor, kept, new_seed

CPU = torch.device("cpu")


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_many_are_kept_as_p_says_in_every_row_and_column(p: float) -> None:
    places = kept(torch.tensor(7), 100, 1000, p, CPU).double()
    for share, several in ((places.mean(), 1e5), (places.mean(0), 100), (places.mean(1), 1000)):
        assert (share - (1 - p)).abs().max() < 5 * (p * (1 - p) / several) ** 0.5
    assert factor(p) == pytest.approx(1 / (1 - p))


def test_neighbours_and_calls_are_drawn_independently() -> None:
    """What operators draw is this, by kernel or twin: test_table.py."""
    first, second = (2 * kept(new_seed(), 1000, 1030, 0.5, CPU).double() - 1 for _ in range(2))
    assert abs(float((first * second).mean())) < 5e-3
    for distance in (1, 2, 16, 999):
        assert abs(float((first[:-distance] * first[distance:]).mean())) < 5 / (first[distance:].numel()) ** 0.5
        assert abs(float((first[:, :-distance] * first[:, distance:]).mean())) < 5 / first[:, distance:].numel() ** 0.5


def test_a_place_is_dropped_or_kept_whatever_lies_beside_it() -> None:
    large = kept(torch.tensor(7), 20, 300, 0.5, CPU)
    assert torch.equal(kept(torch.tensor(7), 3, 50, 0.5, CPU), large[:3, :50])
    assert not torch.equal(large[0], large[1])


def test_everything_may_be_dropped() -> None:
    assert not kept(torch.tensor(7), 3, 50, 1.0, CPU).any()
    assert factor(1.0) == 0


def test_seeds_come_from_torchs_generator() -> None:
    torch.manual_seed(3)
    first, second = new_seed(), new_seed()
    torch.manual_seed(3)
    assert int(new_seed()) == int(first) != int(second)
