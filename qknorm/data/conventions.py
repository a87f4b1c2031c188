"""How a text is written: as people write it, or with spaces before all signs, and perhaps with HTML's escapes.

Text that is borrowed is brought to the convention of one's own, or a model would learn two of everything.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sacremoses import MosesDetokenizer, MosesTokenizer

from qknorm.data.subwords import looks_tokenized

_ESCAPE = re.compile(r"&(?:apos|quot|amp|lt|gt|#9[13]|#124);")
_LINES_JUDGED = 2000


@dataclass(frozen=True)
class Convention:
    """How one side of a text is written."""

    is_tokenized: bool = False
    is_escaped: bool = False

    @classmethod
    def of(cls, lines: Iterable[str]) -> Convention:
        """That of a text, judged by its start."""
        start = list(itertools.islice(lines, _LINES_JUDGED))
        return cls(looks_tokenized(start), any(map(_ESCAPE.search, start)))

    def of_others(self, lines: Iterable[str], other: Convention, language: str) -> Iterator[str]:
        """Lines that are written in another convention, in this one."""
        code = language.partition("+")[0]
        if other == self or (self.is_tokenized == other.is_tokenized and not other.is_escaped | self.is_escaped):
            yield from lines
        elif self.is_tokenized:
            tokenizer = MosesTokenizer(lang=code)
            for line in lines:
                whole = html.unescape(line) if other.is_escaped else line
                words = whole.split() if other.is_tokenized else tokenizer.tokenize(whole, escape=False)
                yield " ".join(map(tokenizer.escape_xml, words) if self.is_escaped else words)
        else:
            detokenizer = MosesDetokenizer(lang=code)
            for line in lines:
                whole = html.unescape(line) if other.is_escaped else line
                yield detokenizer.detokenize(whole.split(), unescape=False) if other.is_tokenized else whole
