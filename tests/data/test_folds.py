from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.folds import TextBlock, consecutive_windows, k_folds, window_starts
from qknorm.errors import InputError


@given(length=st.integers(2, 3000), data=st.data())
def test_folds_cut_the_text_into_even_blocks(length: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, min(length, 20)))
    folds = k_folds(length, count)
    covered = [place for fold in folds for place in range(fold.held_out.start, fold.held_out.end)]
    assert covered == list(range(length))
    assert max(len(fold.held_out) for fold in folds) - min(len(fold.held_out) for fold in folds) <= 1
    for fold in folds:
        train = [place for block in fold.train for place in range(block.start, block.end)]
        assert sorted(train + list(range(fold.held_out.start, fold.held_out.end))) == list(range(length))


@given(length=st.integers(200, 2000), count=st.integers(2, 10), window=st.integers(1, 40))
def test_no_window_crosses_an_edge(length: int, count: int, window: int) -> None:
    for fold in k_folds(length, count):
        for start in window_starts(fold.train, window).tolist():
            assert any(block.start <= start and start + window <= block.end for block in fold.train)


def test_every_place_where_a_window_fits_is_found() -> None:
    assert window_starts([TextBlock(0, 4), TextBlock(10, 12), TextBlock(20, 25)], 3).tolist() == [0, 1, 20, 21, 22]


def test_evaluation_windows_stand_side_by_side() -> None:
    assert consecutive_windows(TextBlock(100, 111), 4).tolist() == [100, 104]
    assert np.diff(consecutive_windows(TextBlock(0, 1000), 64)).tolist() == [64] * 14


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="a window of 65 characters does not fit: the longest stretch of text has 64"):
        window_starts([TextBlock(0, 64), TextBlock(100, 110)], 65)
    with pytest.raises(InputError, match="at least 2 folds"):
        k_folds(100, 1)
    with pytest.raises(InputError, match="cannot be cut into 10 folds"):
        k_folds(9, 10)
