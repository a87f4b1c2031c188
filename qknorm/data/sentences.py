"""Where sentences end, in any script that marks it."""

from __future__ import annotations

import re

_CLOSING = "\"'”’»)\\]」』）】"
# Where scripts put a space after a sentence, it takes one to end it: 3.14 and example.org go on.
_END = re.compile(rf"(?:[.!?…؟۔।॥]+ ?[{_CLOSING}]*(?=\s)|[。！？။។៕።།]+[{_CLOSING}]*)\s*")
_OPENING = "\"'“‘«„([¿¡"
# Titles, and what stands before a number, in some languages.
_TITLES = re.compile(
    r"(Mrs?|Ms|Drs?|Dra|Prof|Sra?|Sres|Ste?|Sta|Mme|Mlle|Hr|Fr|Dhr|Mevr|Nr|No|Núm|Art|Fig|Vol|Cap|vs|cf|pp|ca|bzw)\."
)
_NUMBER = re.compile(r"\W*(?:\d{1,3}|[IVXLC]{1,6})\.")  # of a list or a chapter


def sentences(line: str) -> list[str]:
    """The sentences of a line, none of them blank."""
    parts: list[str] = []
    start = 0
    for match in _END.finditer(line):
        if _is_end(line[start : match.end()].strip(), line[match.end() : match.end() + 1]):
            parts.append(line[start : match.end()].strip())
            start = match.end()
    return [part for part in (*parts, line[start:].strip()) if part]


def _is_end(sentence: str, following: str) -> bool:
    """Nothing ends before a small letter, after an abbreviation, or after a number that stands by itself."""
    word = re.split(r"\s", sentence[-20:])[-1].lstrip(_OPENING)
    return not (following.islower() or _is_abbreviation(word) or _NUMBER.fullmatch(sentence))


def _is_abbreviation(word: str) -> bool:
    """Dr. and such, initials as in J. or U.S., and e.g."""
    *letters, rest = word.split(".")
    are_single = not rest and all(len(letter) == 1 and letter.isalpha() for letter in letters)
    return bool(_TITLES.fullmatch(word)) or (are_single and (len(letters) > 1 or word[:1].isupper()))
