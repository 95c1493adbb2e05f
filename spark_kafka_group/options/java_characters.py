r"""Characters and classes of Java's regular expressions, as sets of the characters that topics' names have.

A name of a topic has letters, digits, ``.``, ``_`` and ``-`` of ASCII. What a class finds of all other characters does
not matter, so each class, property or escape is a set of these 65.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterator
from typing import NoReturn

from spark_kafka_group.text.foreign_text import excerpt

LETTERS, DIGITS = frozenset(string.ascii_letters), frozenset(string.digits)
NAME = LETTERS | DIGITS | frozenset("._-")
NOTHING: frozenset[str] = frozenset()
_LOWER, _UPPER = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase)
_WORD, _PUNCTUATION = LETTERS | DIGITS | {"_"}, frozenset("._-")

_CLASSES = {"d": DIGITS, "w": _WORD, "s": NOTHING, "h": NOTHING, "v": NOTHING}
_CONTROLS = {"a": "\a", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SAME_IN_UNICODE = {"\u017f": "s", "\u212a": "k", "\u0130": "i", "\u0131": "i"}
"""All characters beyond ASCII that Java takes for letters of it, where the flags i and u are set."""

_CATEGORIES = (
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs",
    "Pd", "Ps", "Pe", "Pc", "Po", "Sm", "Sc", "Sk", "So", "Pi", "Pf",
)  # fmt: skip
_OF_UNICODE = {
    "ALPHABETIC": LETTERS, "LETTER": LETTERS, "LOWERCASE": _LOWER, "UPPERCASE": _UPPER, "TITLECASE": NOTHING,
    "PUNCTUATION": _PUNCTUATION, "CONTROL": NOTHING, "WHITE_SPACE": NOTHING, "WHITESPACE": NOTHING, "WORD": _WORD,
    "HEX_DIGIT": frozenset(string.hexdigits), "HEXDIGIT": frozenset(string.hexdigits), "ASSIGNED": NAME,
}  # fmt: skip
_POSIX = {
    "Alpha": LETTERS, "Digit": DIGITS, "Alnum": LETTERS | DIGITS, "Lower": _LOWER, "Upper": _UPPER,
    "Punct": _PUNCTUATION, "XDigit": frozenset(string.hexdigits), "Graph": NAME, "Print": NAME,
    "Blank": NOTHING, "Cntrl": NOTHING, "Space": NOTHING,
}  # fmt: skip
_PROPERTIES = {
    **{code: frozenset(c for c in NAME if unicodedata.category(c) == code) for code in _CATEGORIES},
    **{code: frozenset(c for c in NAME if unicodedata.category(c)[0] == code) for code in "LMNZCPS"},
    **_POSIX, "LC": LETTERS, "LD": LETTERS | DIGITS, "L1": NAME, "ASCII": NAME, "all": NAME,
    "javaLowerCase": _LOWER, "javaUpperCase": _UPPER, "javaAlphabetic": LETTERS, "javaLetter": LETTERS,
    "javaDigit": DIGITS, "javaLetterOrDigit": LETTERS | DIGITS,
}  # fmt: skip
_OF_CASE = {
    "Lu", "Ll", "Lt", "Lower", "Upper", "javaLowerCase", "javaUpperCase",
    "LOWERCASE", "UPPERCASE", "TITLECASE", "LOWER", "UPPER",
}  # fmt: skip
"""With the flag i these find letters of either case."""


class Characters:
    r"""Reads a pattern, character by character; what stands between ``\Q`` and ``\E`` comes escaped."""

    def __init__(self, pattern: str) -> None:
        self._characters = list(_unquoted(pattern))
        self._next = 0
        self.flags: frozenset[str] = frozenset()  # letters of the flags that are set here

    def peek(self, ahead: int = 0) -> str:
        """The next character, or that behind it; empty at the end."""
        at = self._next + ahead
        return self._characters[at][0] if at < len(self._characters) else ""

    def next_character(self) -> str:
        """The next character, which is behind the reader then."""
        taken = self.peek()
        self._next += bool(taken)
        return taken

    def takes(self, character: str) -> bool:
        """Whether `character` is next; it is taken then."""
        return self.peek() == character and bool(self.next_character())

    def digits(self, of: str, most: int) -> str:
        """The next characters, up to `most`, that are in `of`."""
        found = ""
        while len(found) < most and self.peek() and self.peek() in of:
            found += self.next_character()
        return found

    @property
    def position(self) -> int:
        """Where the last character that was taken stands in the pattern as its user wrote it, from 1."""
        return self._characters[self._next - 1][1] + 1 if self._next else 1

    def wrong(self, what: str) -> NoReturn:
        """Raise the error of what Java does not take either."""
        raise ValueError(f"is not a regular expression of Java: {what}, at character {self.position}")

    def refused(self, what: str) -> NoReturn:
        """Raise the error of what Java may take, and this source does not."""
        raise ValueError(
            f"has {what} at character {self.position}, which this source does not take: write it differently"
        )

    # Sets

    def alike(self, character: str) -> frozenset[str]:
        """The characters of names that a character finds, with the flags that are set."""
        if "i" not in self.flags or not (character.isascii() or "u" in self.flags):
            return NAME & {character}
        lower = _SAME_IN_UNICODE.get(character, character.lower())
        return NAME & {lower, lower.upper()}

    def escaped(self) -> str | frozenset[str]:
        """The character, or the set, of an escape whose backslash has been taken."""
        kind = self.next_character()
        if kind.lower() in _CLASSES:
            found = _CLASSES[kind.lower()]
            return found if kind.islower() else NAME - found
        if kind in ("p", "P"):
            found = self._property()
            return found if kind == "p" else NAME - found
        if kind in _CONTROLS:
            return _CONTROLS[kind]
        if kind == "c":
            return chr(ord(self.next_character() or self.wrong("\\c without a character")) ^ 64)
        if kind in ("0", "x", "u"):
            return self._numbered(kind)
        if kind in ("N", "X"):
            self.refused(f"\\{kind}")
        if not kind or (kind.isascii() and kind.isalnum()):
            self.wrong(f"\\{kind} is no escape")
        return kind

    def _numbered(self, kind: str) -> str:
        if kind == "0":
            most = 3 if self.peek() in ("0", "1", "2", "3") else 2
            number = int(self.digits(string.octdigits, most) or self.wrong("\\0 without octal digits"), 8)
        elif kind == "x" and self.takes("{"):
            number = int(self.digits(string.hexdigits, 99) or self.wrong("\\x{ without hexadecimal digits"), 16)
            if not self.takes("}") or number > 0x10FFFF:
                self.wrong("\\x{ without the number of a character and }")
        else:
            digits = self.digits(string.hexdigits, 2 if kind == "x" else 4)
            if len(digits) != (2 if kind == "x" else 4):
                self.wrong(f"\\{kind} with too few hexadecimal digits")
            number = int(digits, 16)
        if 0xD800 <= number <= 0xDFFF:
            self.refused("half of a character (a surrogate)")
        return chr(number)

    def _property(self) -> frozenset[str]:
        name = self.next_character()
        if name == "{":
            name = ""
            while (character := self.next_character()) != "}":
                name += character or self.wrong("\\p{ without }")
        kind, equals, value = name.rpartition("=")
        found = self._of_kind(kind.lower(), value) if equals else self._named(name)
        if found is None:
            self.refused(f"the property {excerpt(name)}")
        return found

    def _of_kind(self, kind: str, value: str) -> frozenset[str] | None:
        if kind in ("sc", "script"):
            return LETTERS if value.upper() in ("LATIN", "LATN") else None
        if kind in ("blk", "block"):
            return NAME if value.upper() in ("BASIC_LATIN", "BASICLATIN", "BASIC LATIN") else None
        return self._set(_PROPERTIES, value) if kind in ("gc", "general_category") else None

    def _named(self, name: str) -> frozenset[str] | None:
        if name.startswith("In"):
            return self._of_kind("blk", name[2:])
        posix = {name.upper(): found for name, found in _POSIX.items()}
        if not name.startswith("Is"):
            of_unicode = self._set(posix, name.upper()) if "U" in self.flags else None
            return self._set(_PROPERTIES, name) if of_unicode is None else of_unicode
        for found in (self._set(_OF_UNICODE | posix, name[2:].upper()), self._set(_PROPERTIES, name[2:])):
            if found is not None:
                return found
        return self._of_kind("sc", name[2:])

    def _set(self, sets: dict[str, frozenset[str]], name: str) -> frozenset[str] | None:
        return LETTERS if "i" in self.flags and name in sets and name in _OF_CASE else sets.get(name)

    def class_(self, is_bracketed: bool = True) -> frozenset[str]:
        """The set of a class whose ``[`` has been taken; or what is in it from here on, and then ``]`` is not taken."""
        negated = is_bracketed and self.takes("^")
        found: frozenset[str] | None = None
        while self.peek() != "]" or found is None:
            if not self.peek():
                self.wrong("[ without ]")
            if self.peek() == "&" == self.peek(1):
                right = self._right_of_and()
                found = right if found is None else found & right
            else:
                found = (found or NOTHING) | (self.class_() if self.takes("[") else self._range())
        if is_bracketed:
            self.next_character()
        return NAME - found if negated else found

    def _right_of_and(self) -> frozenset[str]:
        self.next_character(), self.next_character()
        right: frozenset[str] | None = None
        while self.peek() not in ("]", "&"):
            right = (right or NOTHING) | self.class_(is_bracketed=self.takes("["))
        if right is None or (self.peek() == "&" and self.peek(1) != "&"):
            self.refused("&& without a class behind it" if right is None else "& behind a class and &&")
        return right

    def _range(self) -> frozenset[str]:
        low = self._end_of_range(self.peek(2) == "-")
        if not isinstance(low, str):
            return low
        if self.peek() != "-" or self.peek(1) in ("[", "]"):
            return self.alike(low)
        self.next_character()
        high = self._end_of_range(True)
        if not isinstance(high, str) or high < low:
            self.wrong("a range that ends before it begins")
        either = {c: {c, c.lower(), c.upper()} if "i" in self.flags else {c} for c in NAME}
        return frozenset(c for c, forms in either.items() if any(low <= form <= high for form in forms))

    def _end_of_range(self, has_range: bool) -> str | frozenset[str]:
        if not self.takes("\\"):
            return self.next_character()
        if has_range and self.takes("v"):  # a class elsewhere
            return "\v"
        return self.escaped()


def _unquoted(pattern: str) -> Iterator[tuple[str, int]]:
    """Characters and their places, as Java reads them: quoted ones are escaped, those that need it."""
    at, is_quoted, begins = 0, False, False
    while at < len(pattern):
        here, following = pattern[at], pattern[at + 1 : at + 2]
        if here == "\\" and following == ("E" if is_quoted else "Q"):
            is_quoted = begins = not is_quoted
            at += 2
            continue
        if not is_quoted:
            taken = 2 if here == "\\" else 1
            yield from ((character, at + n) for n, character in enumerate(pattern[at : at + taken]))
            at += taken
            continue
        if here.isascii() and (not here.isalnum() or (begins and here.isdigit())):
            # A digit that begins a quotation might end an escape before it: \x4\Q1\E.
            yield from ((character, at) for character in ("\\x3" if here.isdigit() else "\\"))
        yield here, at
        at, begins = at + 1, False
