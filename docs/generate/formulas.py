"""Formulas of docstrings, set: from their plain notation to LaTeX, and by latex2mathml to MathML.

    p_{t+1, i} ~ exp(-sum_s gbreve_{s, i} / zeta)

is read as it stands in a terminal, and on the site as a formula. A name that is no symbol stays a word.
"""

from __future__ import annotations

import re
import textwrap

GREEK = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "lambda",
    "mu",
    "nu",
    "phi",
    "psi",
    "sigma",
    "tau",
    "pi",
    "Delta",
    "Lambda",
]
FUNCTIONS = ["exp", "log", "cos", "sin", "min", "max", "arg"]
SYMBOLS = {name: rf"\{name} " for name in (*GREEK, *FUNCTIONS)} | {
    "lam": r"\lambda ",
    "argmin": r"\operatorname{arg\,min} ",
    "grad": r"\nabla ",
    "sum": r"\sum ",
    "infinity": r"\infty ",
}
ACCENTS = {"bar": r"\bar", "breve": r"\breve", "hat": r"\hat", "tilde": r"\tilde"}
OPERATORS = {
    "<-": r"\leftarrow ",
    "<=": r"\le ",
    ">=": r"\ge ",
    "+-": r"\pm ",
    "||": r"\| ",
    "..": r"\ldots ",
    "~": r"\sim ",
    "'": r"\prime ",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "#": r"\#",
    "&": r"\&",
}
TOKEN = re.compile(
    r"(?P<gap>(?<=[,.:;])\s{2,})|(?P<space>\s+)|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<word>[A-Za-z]+)"
    r"|(?P<sub>_)|(?P<sup>\^)|(?P<op><-|<=|>=|\+-|\|\||\.\.|.)",
    re.DOTALL,
)


def is_formula(block: str) -> bool:
    """Whether an indented block is a formula, and no table of words, command or code."""
    return not re.search(
        r"[`\"]|^\s*(?:fedchord|results|runs|pip|import|from|def)\b|\w\.json|>>>|^\s*\d+ {2,}", block, re.M
    )


def latex(text: str) -> str:
    """One line of plain notation as LaTeX."""
    return _Reader(text.strip()).all()


def mathml(text: str) -> str:
    """A block of plain notation as MathML, one formula a line."""
    from latex2mathml.converter import convert  # an extra: only the site needs it

    lines = "".join(convert(latex(line), display="block") for line in text.splitlines() if line.strip())
    lines = lines.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # a relation, not a letter
    tight = re.sub(r"<mo[^>]*>(&#x0(?:007C|2016);)</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', lines)
    return f'<div class="formula">{tight}</div>'


def set_blocks(text: str, set_one=mathml) -> str:
    """A docstring whose indented formulas are set; other indented blocks stay as they are."""
    found = []
    for block in re.split(r"\n{2,}", text):
        plain = textwrap.dedent(block)
        formula = block.startswith("    ") and is_formula(plain)
        found.append(set_one(plain) if formula else _prose(block))
    return "\n\n".join(found)


def _prose(text: str) -> str:
    """Words in which <p, r> is an inner product and no tag; what is code stays."""
    if text.startswith("    "):
        return text
    parts = text.split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


class _Reader:
    """Reads tokens one after the other; `at` is the place of the next."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def all(self) -> str:
        parts = []
        while self.at < len(self.text):
            parts.append(self._next())
        return re.sub(r"\\ (?:\s*\\ )+", r"\\ ", "".join(parts))  # one space between two words

    def _next(self) -> str:
        found = TOKEN.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        kind, token = found.lastgroup, found.group()
        if kind == "word":
            return self._word(token)
        if kind in ("sub", "sup"):
            return ("_" if kind == "sub" else "^") + "{" + self._script() + "}"
        if kind == "op":
            return self._operator(token)
        if kind == "gap":
            return r" \quad "
        return token if kind == "number" else " "

    def _word(self, word: str) -> str:
        if word == "sqrt" and self._peek() == "(":
            return r"\sqrt{" + latex(self._bracketed()) + "}"
        symbol = _symbol(word)
        if len(word) == 1 and re.match(r"\d\b", self.text[self.at :]):  # C1, b2
            digit, self.at = self.text[self.at], self.at + 1
            return f"{word}_{{{digit}}}"
        if symbol is not None:
            return symbol
        left = r"\ " if self.text[: self.at - len(word)].endswith(" ") else ""
        if len(word) > 2 and self._peek() == "'":  # a genitive, not a prime
            word, self.at = word + "'", self.at + 1
        return rf"{left}\text{{{word}}}" + (r"\ " if self._peek() == " " else "")

    def _operator(self, token: str) -> str:
        after, before = self._peek(), self.text[self.at - 2 : self.at - 1]
        if token == "<" and after.strip():
            return r"\langle "
        if token == ">" and before.strip():
            return r"\rangle "
        return OPERATORS.get(token, token)

    def _script(self) -> str:
        """What stands below or above: in brackets, a word, a number."""
        here = self._peek()
        if here in "({":
            return latex(self._bracketed())
        found = re.compile(r"-?(?:\d+|[A-Za-z]+)").match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        word = found.group()
        if word == "T" and self.text[found.start() - 1] == "^":
            return r"\top"
        is_index = len(word.strip("-")) <= 2 and word != "lr"
        return (_symbol(word) or word) if is_index or _symbol(word) else rf"\text{{{word}}}"

    def _bracketed(self) -> str:
        """What stands in the brackets that begin here."""
        pairs, depth, start = {"(": ")", "{": "}"}, 0, self.at
        opening = self.text[start]
        for place in range(start, len(self.text)):
            depth += (self.text[place] == opening) - (self.text[place] == pairs[opening])
            if depth == 0:
                self.at = place + 1
                return self.text[start + 1 : place]
        raise ValueError(f"brackets do not close: {self.text}")

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]


def _symbol(word: str) -> str | None:
    """A letter, a Greek one, a function, or one of them under an accent; None for other words."""
    if len(word) == 1:
        return word
    if word in SYMBOLS:
        return SYMBOLS[word]
    if re.fullmatch("d[A-Zfl]", word):
        return rf"\partial {word[1]}"
    for ending, accent in ACCENTS.items():
        if word.endswith(ending) and (base := _symbol(word.removesuffix(ending)) if word != ending else None):
            return f"{accent}{{{base.strip()}}}"
    return None
