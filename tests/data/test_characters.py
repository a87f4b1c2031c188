from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from qknorm.data.characters import Characters, CharacterText, WindowSampler
from qknorm.data.folds import TextBlock
from qknorm.errors import InputError


@pytest.fixture
def text(tmp_path: Path) -> CharacterText:
    (tmp_path / "text").write_text("".join(chr(97 + i % 26) for i in range(520)) + "\n")
    return CharacterText.read(tmp_path / "text")


def test_text_becomes_numbers_and_back(tmp_path: Path) -> None:
    characters = Characters.of("héllo\n😀")
    characters.save(tmp_path / "characters.json")
    again = Characters.load(tmp_path / "characters.json")
    assert again.decode(again.encode("oléh\n😀").tolist()) == "oléh\n😀"
    assert again.known == sorted(again.known)


def test_an_unseen_character_is_named_and_an_empty_text_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the character 'é' \(U\+00E9, number 3 of the text\)"):
        Characters.of("abc").encode("abé")
    for content in ("", "\n\n", "  \n"):
        (tmp_path / "text").write_text(content)
        with pytest.raises(InputError, match="is empty"):
            CharacterText.read(tmp_path / "text")


def test_targets_follow_the_inputs(text: CharacterText) -> None:
    inputs, targets = text.windows([0, 7], 5)
    assert text.characters.decode(inputs[1].tolist()) == "hijkl"
    assert text.characters.decode(targets[1].tolist()) == "ijklm"


def test_windows_stay_within_their_blocks(text: CharacterText) -> None:
    sampler = WindowSampler(text, [TextBlock(0, 20), TextBlock(100, 130)], 9, 64, 0)
    windows = set()
    for _, targets in islice(sampler, 30):
        assert targets.shape == (64, 9)
        windows |= {tuple(row) for row in targets.tolist()}
    allowed = {tuple(text.numbers[i + 1 : i + 10].tolist()) for i in [*range(11), *range(100, 121)]}
    assert windows == allowed


def test_the_sampler_goes_on_where_it_was(text: CharacterText) -> None:
    whole = list(islice(WindowSampler(text, [TextBlock(0, 520)], 9, 4, 7), 6))
    first = WindowSampler(text, [TextBlock(0, 520)], 9, 4, 7)
    list(islice(first, 3))
    second = WindowSampler(text, [TextBlock(0, 520)], 9, 4, 7)
    second.load_state_dict(first.state_dict())
    for (a, _), (b, _) in zip(whole[3:], second, strict=False):
        assert torch.equal(a, b)


def test_processes_share_each_batch(text: CharacterText) -> None:
    whole = WindowSampler(text, [TextBlock(0, 520)], 9, 5, 7)
    shares = [WindowSampler(text, [TextBlock(0, 520)], 9, 5, 7, rank, 2) for rank in (0, 1)]
    for (expected, _), (first, _), (second, _) in islice(zip(whole, *shares, strict=False), 3):
        assert (len(first), len(second)) == (3, 2)
        assert sorted([*first.tolist(), *second.tolist()]) == sorted(expected.tolist())
