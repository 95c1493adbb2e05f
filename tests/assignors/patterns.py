"""Patterns at random: what Java's syntax has, in all orders, and some that it does not have."""

from random import Random

CHARACTERS = ["a", "b", "t", "A", "T", "0", "9", "_", "-", ".", "a", "b", "&", "^", "]", "}", "\u017f", "\u00e9", " "]
CLASSES = [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\h", r"\H", r"\v", r"\V", r"\R"]
PROPERTIES = [
    "L", "{L}", "{Lu}", "{IsLl}", "{Alpha}", "{Punct}", "{IsAlphabetic}", "{IsLatin}", "{InBasicLatin}", "{Lower}",
    "{Pd}", "{gc=N}", "{sc=latin}", "{XDigit}", "{IsPunctuation}", "{javaUpperCase}", "{Graph}", "{IsUpper}",
    "{IsWord}", "{alpha}",
]  # fmt: skip
ESCAPES = [
    r"\.", r"\-", r"\_", r"\x61", r"\x{62}", r"\u0061", r"\0141", r"\07", r"\c!", r"\n", r"\e", r"\a", r"\Qa.b\E",
    r"\Q\E", r"\Q1]\E", r"\&", r"\[", r"\]",
]  # fmt: skip
ANCHORS = ["^", "$", r"\A", r"\z", r"\Z", r"\G", r"\b", r"\B"]
REFERENCES = [r"\1", r"\1", r"\2", r"\11", r"\k<n>"]
FLAGS = ["i", "-i", "m", "s", "u", "iu", "d", "U", "iU", "i-s", "-", ""]
QUANTIFIERS = ["?", "*", "+", "{2}", "{0,1}", "{1,2}", "{2,}", "{0}"]
GROUPS = ["(", "(", "(?:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>"]
WRONG = [
    "(?x)", "(?P<n>a)", "(?'n'a)", "(?#a)", r"\Qa", r"\E", r"\y", r"\u", r"\x", r"\08", "{,2}", "{2,1}", "{", "(", ")",
    "[", "**", r"\k<o>", r"\2", r"\X", r"\N{DIGIT ONE}", r"\b{g}", r"\p{Greek}", r"\p{IsGreek}", r"\ud83d", "\\",
]  # fmt: skip


class Patterns:
    """An endless source of patterns."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pattern(self, depth: int = 3) -> str:
        sequences = [self._sequence(depth) for _ in range(self._one_of([1, 1, 1, 2, 3]))]
        return "|".join(sequences)

    def _one_of(self, several):
        return self._random.choice(several)

    def _sequence(self, depth: int) -> str:
        return "".join(self._quantified(self._atom(depth)) for _ in range(self._one_of([0, 1, 1, 2, 2, 3])))

    def _quantified(self, atom: str) -> str:
        if self._random.random() < 0.65:
            return atom
        return atom + self._one_of(QUANTIFIERS) + self._one_of(["", "", "?", "+"])

    def _atom(self, depth: int) -> str:
        kind = self._random.random()
        if depth and kind < 0.4:
            opened = self._one_of([*GROUPS, f"(?{self._one_of(FLAGS)}:"])
            return f"{opened}{self.pattern(depth - 1)})"
        if kind < 0.65:
            return self._one_of("aabbt.")
        if kind < 0.77:
            return self._class(2)
        if kind < 0.995:
            simple = [
                CHARACTERS,
                CLASSES,
                ESCAPES,
                ANCHORS,
                REFERENCES,
                [f"(?{self._one_of(FLAGS)})", self._property()],
            ]
            return self._one_of(self._one_of(simple))
        return self._one_of(WRONG)

    def _property(self) -> str:
        return self._one_of(["\\p", "\\P"]) + self._one_of(PROPERTIES)

    def _class(self, depth: int) -> str:
        parts = [self._in_class(depth) for _ in range(self._one_of([1, 2, 3, 4]))]
        return f"[{self._one_of(['', '', '^'])}{''.join(parts)}]"

    def _in_class(self, depth: int) -> str:
        kind = self._random.random()
        if depth and kind < 0.2:
            return self._class(depth - 1)
        if kind < 0.35:
            return "&&"
        if kind < 0.45:
            return self._one_of(
                ["a-b", "a-z", "A-Z", "0-9", "+-a", "-", "B-t", r"\x61-\x{74}", "--b", r"\d-t", r"\v-b", r"\v-\n"]
            )
        return self._one_of(self._one_of([CHARACTERS, "abt", CLASSES, ESCAPES, [self._property()]]))
