"""WordPiece: text to the numbers of a vocabulary, as BERT's lower-case models have it (Devlin et al., 2019).

Text is cleaned (control characters go, every blank is a space, Chinese characters stand alone), accents and capitals
go, punctuation marks are words of their own, and every word is cut from the left into the longest pieces that the
vocabulary has; pieces after the first carry `##`. A word that cannot be cut, or has more than 100 characters, is
`[UNK]`. Nothing but the vocabulary file is needed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedchord.check import fail, require

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
LONGEST_WORD = 100
_IDEOGRAPHS = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def read_vocabulary(owner: str, path: Path) -> dict[str, int]:
    """The number of each piece: a piece per line, numbered from 0. `[PAD]` must be 0, which is what padding is."""
    try:
        pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise fail(owner, f"{path} is damaged: expected a piece per line") from None
    known = {piece: number for number, piece in enumerate(pieces)}
    require(len(known) == len(pieces), owner, f"{path} is damaged: a piece occurs twice")
    for needed in (PAD, UNKNOWN, START, END):
        require(needed in known, owner, f"{path} is no WordPiece vocabulary: it has no {needed}")
    require(known[PAD] == 0, owner, f"{path}: {PAD} must be in the first line, got line {known[PAD] + 1}")
    return known


def pair(first: list[int], second: list[int], vocabulary: Mapping[str, int], longest: int) -> list[int]:
    """[CLS] first [SEP] second [SEP] with at most `longest` numbers: the longer text is shortened until both are alike,
    then both (where the room is odd, the longer one keeps one more)."""
    room = longest - 3
    short = min(len(first), len(second), room // 2)
    rest = room - short
    kept = (short, rest) if len(first) <= len(second) else (rest, short)
    start, end = vocabulary[START], vocabulary[END]
    return [start, *first[: kept[0]], end, *second[: kept[1]], end]


class WordPiece:
    """Text to numbers; words that were met before are remembered."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary, self._met = vocabulary, dict[str, list[int]]()

    def __call__(self, text: str) -> list[int]:
        """The numbers of a text, without `[CLS]` and `[SEP]`."""
        numbers: list[int] = []
        for word in _words(text):
            if word not in self._met:
                self._met[word] = self._pieces(word)
            numbers += self._met[word]
        return numbers

    def _pieces(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word) <= LONGEST_WORD:
            mark = "##" if start else ""
            stops = range(len(word), start, -1)
            stop = next((stop for stop in stops if mark + word[start:stop] in self._vocabulary), None)
            if stop is None:
                break
            found.append(self._vocabulary[mark + word[start:stop]])
            start = stop
        return found if start == len(word) else [self._vocabulary[UNKNOWN]]


def _words(text: str) -> Iterator[str]:
    """Words and punctuation marks, in lower case and without accents."""
    spaced = "".join(_cleaned(letter) for letter in text)
    plain = "".join(c for c in unicodedata.normalize("NFD", spaced) if unicodedata.category(c) != "Mn").lower()
    for word in plain.split():
        start = 0
        for at, letter in enumerate(word):
            if _is_mark(letter):
                if start < at:
                    yield word[start:at]
                yield letter
                start = at + 1
        if start < len(word):
            yield word[start:]


def _cleaned(letter: str) -> str:
    code = ord(letter)
    if letter in "\t\n\r" or unicodedata.category(letter) == "Zs":
        return " "
    if code in (0, 0xFFFD) or unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cs"):
        return ""
    return f" {letter} " if any(low <= code <= high for low, high in _IDEOGRAPHS) else letter


def _is_mark(letter: str) -> bool:
    code = ord(letter)
    ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_mark or unicodedata.category(letter)[0] == "P"
