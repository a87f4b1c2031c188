"""One joint BPE vocabulary for both languages.

Two schemes. `words`, for text that is already tokenised: pieces end in `</w>` where a word ends, the classic scheme
of the papers. `raw`, for text as people write it: a space is part of the piece that follows it, and a character that
was never seen is spelled in bytes, so that decode(encode(line)) == line for every Unicode line.

Learning and plain encoding are done by the `tokenizers` library. BPE-dropout is done here: the library's cannot be
seeded.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Literal

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError

Scheme = Literal["words", "raw"]

PAD, UNK, BOS, EOS = range(4)
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")

_WORD_END = "</w>"
_SPACE = "▁"
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
# The sign that stands for a space may occur in a text, so it is written with an escape, and so is the escape itself.
_ESCAPE = "\ue000"
_ESCAPES = {_ESCAPE: _ESCAPE + "0", _SPACE: _ESCAPE + "1"}
# Stand-ins for "this character at the end of a word" are taken from a private area of Unicode.
_PRIVATE_AREA = range(0xF0000, 0x10FFFE)
SIGNS = "".join(map(chr, range(0xE100, 0xE200)))
"""Each is a piece by itself, or with the space before it: what stands for a placeholder, and is copied."""
# Signs at the end of a word, with what stands before them; tokenised text has a space there but for abbreviations.
_SIGNS = re.compile(r"[^.,][.,](?= |$)")
_LINES_JUDGED, _TOKENIZED = 2000, 0.8
_LEAST_FREQUENCY = 2


def looks_tokenized(lines: Iterable[str]) -> bool:
    """Whether a text has a space before nearly every full stop and comma at the end of a word, judged by its start."""
    signs = [sign for line in itertools.islice(lines, _LINES_JUDGED) for sign in _SIGNS.findall(line)]
    return bool(signs) and sum(sign.startswith(" ") for sign in signs) >= _TOKENIZED * len(signs)


class Subwords:
    """Text to piece numbers and back. Made by `learn` or `load`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        model = json.loads(tokenizer.to_str())["model"]
        self.scheme: Scheme = "words" if model["end_of_word_suffix"] else "raw"
        self._numbers: dict[str, int] = model["vocab"]
        self.pieces: list[str] = sorted(self._numbers, key=self._numbers.__getitem__)
        self._merges: list[tuple[str, str]] = [(left, right) for left, right in model["merges"]]
        self._ranks = {merge: rank for rank, merge in enumerate(self._merges)}

    @classmethod
    def learn(cls, lines: Iterable[str], merges: int, scheme: Scheme) -> Subwords:
        """Learn at most this many merges from the lines of both languages.

        The result depends on the lines alone: the alphabet is sorted, and ties are broken by it.
        """
        words = [_as_raw(line) if scheme == "raw" else line for line in lines]
        return cls(_build(*_learn_merges(words, merges, scheme), scheme))

    def extended(self, lines: Iterable[str], merges: int) -> Subwords:
        """This vocabulary with pieces for characters that it lacks, and at most so many merges of those with others.

        Text without such a character becomes the same pieces as before: all further merges come after the old ones, and
        none of them joins two pieces that were there.
        """
        if sorted(self._numbers.values()) != list(range(len(self))):
            raise InputError("the vocabulary of the parent cannot be extended: the numbers of its pieces have gaps")
        words = Counter(word for line in lines for word in line.split(" "))
        symbols = {word: next(self._words(word), []) for word in words}
        lacking = Counter[str]()
        for word, number in words.items():
            lacking.update(dict.fromkeys(set(symbols[word]).difference(self._numbers), number))
        new = {symbol for symbol, number in lacking.items() if number >= _LEAST_FREQUENCY}
        if not new:
            return self
        signs = sorted(symbol for symbol in new if symbol[0] in SIGNS)
        stretches = Counter[tuple[str, ...]]()
        for word, number in words.items():
            if not new.isdisjoint(symbols[word]):
                pieces = self._merge(symbols[word], 0.0, random.Random())
                stretches.update(dict.fromkeys(_stretches(pieces, new.difference(signs), self._numbers), number))
        further = [
            *_merges_in(stretches, merges),
            *([(_SPACE, sign) for sign in signs] if self.scheme == "raw" else []),
        ]
        return Subwords(_build([*self.pieces, *sorted(new)], [*self._merges, *further], self.scheme))

    def spelling(self, piece: str) -> list[int]:
        """What a piece of another vocabulary is made of in this one, but for what it does not know."""
        is_end = self.scheme == "words" and piece.endswith(_WORD_END)
        symbols = list(piece.removesuffix(_WORD_END) if is_end else piece)
        if is_end:
            symbols[-1] += _WORD_END
        return [number for number in self._number(self._merge(symbols, 0.0, random.Random())) if number != UNK]

    @classmethod
    def load(cls, path: Path, digest: str | None = None) -> Subwords:
        """What `save` wrote. `digest`: what the file's SHA-256 has to be."""
        try:
            content = path.read_bytes()
            subwords = cls(Tokenizer.from_str(content.decode()))
        except FileNotFoundError:
            raise InputError(f"{path} does not exist; a run folder holds its vocabulary there") from None
        except Exception as error:  # the library raises bare Exception
            raise InputError(f"{path} is damaged or no vocabulary of this program: {error}") from None
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise InputError(f"{path} is the vocabulary of another run")
        return subwords

    def save(self, path: Path) -> None:
        """One JSON file that the `tokenizers` library can read too."""
        with replacing(path) as file:
            file.write(self._tokenizer.to_str(pretty=True).encode())

    def is_same_as(self, other: Subwords) -> bool:
        """Whether every text has the same pieces, by the same numbers."""
        return bool(self._tokenizer.to_str() == other._tokenizer.to_str())

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line, without BOS and EOS."""
        texts = [_as_raw(line) for line in lines] if self.scheme == "raw" else list(lines)
        return [encoding.ids for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def encode_with_dropout(self, line: str, dropout: float, rng: random.Random) -> list[int]:
        """BPE-dropout (Provilkov et al. 2020): each merge is skipped with probability `dropout`, each time anew."""
        return [number for symbols in self._words(line) for number in self._number(self._merge(symbols, dropout, rng))]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of some pieces. PAD, BOS and EOS vanish; UNK is shown as ⁇."""
        visible = [number for number in numbers if number not in (PAD, BOS, EOS)]
        pieces = ["⁇" + (_WORD_END if self.scheme == "words" else "") if n == UNK else self.pieces[n] for n in visible]
        if self.scheme == "words":
            spaced = (p.removesuffix(_WORD_END) + " " if p.endswith(_WORD_END) else p for p in pieces)
            return "".join(spaced).removesuffix(" ")
        text: str = self._tokenizer.decoder.decode(pieces)
        return _from_raw(text)

    def word_numbers(self, numbers: Sequence[int]) -> list[int]:
        """Of each piece, the number of the word that it belongs to: words are what spaces separate in the text."""
        words, word, ended = [], -1, True
        for number in numbers:
            piece = self.pieces[number]
            word += ended if self.scheme == "words" else (piece.startswith(_SPACE) or word < 0)
            ended = piece.endswith(_WORD_END) or number == UNK  # which stands for a word by itself, see `decode`
            words.append(word)
        return words

    def within(self, lines: Iterable[str]) -> set[int]:
        """All that BPE-dropout may give for these lines: every piece that is a stretch of one of their words.

        A merge that is skipped makes room for others, so these are more than the parts of the usual pieces.
        """
        longest = max(map(len, self.pieces))
        numbers: set[int] = set()
        for symbols in {tuple(symbols) for line in lines for symbols in self._words(line)}:
            numbers.update(self._number(list(symbols)))
            for start in range(len(symbols)):
                stretches = itertools.accumulate(symbols[start : start + longest])
                numbers.update(self._numbers[text] for text in stretches if text in self._numbers)
        return numbers - {PAD, BOS}  # a text that spells them out does not mean them

    def _words(self, line: str) -> Iterator[list[str]]:
        """The characters of each word, the last one marked, or the first one a space."""
        if self.scheme == "words":
            for word in line.split(" "):
                if word:
                    yield [*word[:-1], word[-1] + _WORD_END]
        else:
            for word in _as_raw(line).replace(" ", " " + _SPACE).split(" ")[1:]:
                yield list(word)

    def _merge(self, symbols: list[str], dropout: float, rng: random.Random) -> list[str]:
        while len(symbols) > 1:
            candidates = [
                (self._ranks[merge], place)
                for place, merge in enumerate(itertools.pairwise(symbols))
                if merge in self._ranks and rng.random() >= dropout
            ]
            if not candidates:
                break
            _, place = min(candidates)
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
        return symbols

    def _number(self, symbols: list[str]) -> Iterator[int]:
        for symbol in symbols:
            if symbol in self._numbers:
                yield self._numbers[symbol]
            elif self.scheme == "words":
                yield UNK
            else:
                yield from (self._numbers[_BYTES[byte]] for byte in symbol.encode())


def _as_raw(line: str) -> str:
    """The line as the raw scheme sees it: the sign for spaces escaped, and a space before the first word."""
    if _SPACE in line or _ESCAPE in line:
        line = "".join(_ESCAPES.get(character, character) for character in line)
    return " " + line


def _from_raw(text: str) -> str:
    text = text.removeprefix(" ")
    if _ESCAPE in text:
        for character, escape in reversed(_ESCAPES.items()):
            text = text.replace(escape, character)
    return text


def _learn_merges(lines: list[str], merges: int, scheme: Scheme) -> tuple[list[str], list[tuple[str, str]]]:
    """The sorted alphabet, and the merges in order."""
    signs = set().union(*lines).intersection(SIGNS)
    if scheme == "words":
        lines, stand_ins = _mark_word_ends(lines, signs)
    else:
        lines, stand_ins = [line.replace(" ", _SPACE) for line in lines], {}
    signs |= {character for character, end in stand_ins.items() if end[0] in signs}
    alphabet = sorted(set().union(*lines, signs) - {" "})
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(scheme)
    learned = _without_reserved(_trained(tokenizer, _between(lines, signs), len(alphabet) - len(signs) + merges))
    with_spaces = [(_SPACE, sign) for sign in sorted(signs)] if scheme == "raw" else []
    merged = [(_spelled(left, stand_ins), _spelled(right, stand_ins)) for left, right in learned]
    return [_spelled(character, stand_ins) for character in alphabet], merged + with_spaces


def _stretches(pieces: Iterable[str], new: AbstractSet[str], known: Container[str]) -> Iterator[tuple[str, ...]]:
    """New symbols of a word with what is beside them: cut between two pieces that were known, and at all others."""
    stretch: list[str] = []
    for piece in pieces:
        is_new = piece in new
        if stretch and not is_new and (piece not in known or stretch[-1] not in new):
            yield tuple(stretch)
            stretch = []
        stretch += [piece] if is_new or piece in known else []
    yield tuple(stretch)


def _merges_in(stretches: Mapping[tuple[str, ...], int], merges: int) -> Iterator[tuple[str, str]]:
    """The most frequent merges in order. A symbol may be a piece of several characters, so each has a stand-in."""
    symbols = sorted(set().union(*stretches))
    stand_ins = dict(zip(map(chr, _PRIVATE_AREA), symbols, strict=False))
    of_symbol = {symbol: character for character, symbol in stand_ins.items()}
    repeated = ("".join(map(of_symbol.__getitem__, one)) for one, number in stretches.items() for _ in range(number))
    learned = _trained(Tokenizer(models.BPE()), repeated, len(symbols) + merges)
    return _without_reserved([(_spelled(left, stand_ins), _spelled(right, stand_ins)) for left, right in learned])


def _spelled(symbol: str, stand_ins: Mapping[str, str]) -> str:
    return "".join(stand_ins.get(character, character) for character in symbol)


def _trained(tokenizer: Tokenizer, lines: Iterable[str], size: int) -> list[tuple[str, str]]:
    """The merges that give at most so many pieces. A pair that occurs once teaches nothing."""
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=_LEAST_FREQUENCY, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    merges: list[tuple[str, str]] = json.loads(tokenizer.to_str())["model"]["merges"]
    return merges


def _between(lines: Iterable[str], signs: Iterable[str]) -> Iterator[str]:
    """What stands between signs, of which no piece is made with others."""
    if not (either := "".join(signs)):
        return iter(lines)
    return itertools.chain.from_iterable(re.split(f"[{either}]", line) for line in lines)


def _without_reserved(merges: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The merges, but none that spells a reserved piece, or the mark of a word's end, out of ordinary text."""
    refused = {*SPECIAL_PIECES, *_BYTES}
    for left, right in merges:
        if (
            left in refused
            or right in refused
            or left + right in refused
            or _WORD_END in left + right.removesuffix(_WORD_END)
        ):
            refused.add(left + right)
        else:
            yield left, right


def _mark_word_ends(lines: list[str], signs: set[str]) -> tuple[list[str], dict[str, str]]:
    """Replace the last character of each word by a stand-in, and say what each stand-in means.

    The library has its own mark for word ends, but numbers the marked characters in the order of a hash table, by
    which it then breaks ties between merges.
    """
    last_characters = sorted({word[-1] for line in lines for word in line.split(" ") if word} | signs)
    in_use = set().union(*lines)
    free = (sign for sign in map(chr, _PRIVATE_AREA) if sign not in in_use)
    stand_in = dict(zip(last_characters, free, strict=False))
    marked = [" ".join(word[:-1] + stand_in[word[-1]] for word in line.split(" ") if word) for line in lines]
    return marked, {sign: character + _WORD_END for character, sign in stand_in.items()}


def _pre_tokenizer(scheme: Scheme) -> Any:
    """Only U+0020 separates words; other spaces are characters."""
    if scheme == "words":
        return pre_tokenizers.Split(Regex(" +"), "removed")
    return pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="never")


def _build(alphabet: list[str], merges: list[tuple[str, str]], scheme: Scheme) -> Tokenizer:
    """Numbers for everything: special pieces, bytes (raw only), the alphabet, then pieces in the order of merging."""
    spelled = dict.fromkeys([*SPECIAL_PIECES, *(_BYTES if scheme == "raw" else ()), *alphabet])
    spelled.update(dict.fromkeys(left + right for left, right in merges))
    vocabulary = {piece: number for number, piece in enumerate(spelled)}
    model = models.BPE(
        vocab=vocabulary,
        merges=merges,
        unk_token=SPECIAL_PIECES[UNK],
        byte_fallback=scheme == "raw",
        **({"end_of_word_suffix": _WORD_END} if scheme == "words" else {}),
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _pre_tokenizer(scheme)
    if scheme == "words":
        tokenizer.decoder = decoders.BPEDecoder(_WORD_END)
    else:
        tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
