r"""Java's regular expressions, which `subscribePattern` is written in, as Python's.

Spark's source compiles the pattern with ``java.util.regex`` and looks for topics in whose names it is found. A Python
process has no Java, and the dialects differ: Python takes ``[a-z&&[^t]]`` without an error and finds something else. So
the pattern is parsed by Java's rules and said in Python's dialect. What Python cannot say is refused with its place.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spark_kafka_group.options.java_characters import NAME, NOTHING, Characters

LONGEST_NAME = 249  # the most characters of a topic's name
MOST_REPEATS = 0x7FFFFFFF
LONGEST_LOOKBEHIND, LONGEST_LOOKBEHINDS = 20_000, 100_000
"""The most characters of what Python is to compile for a lookbehind, and for all of a pattern: it takes seconds for
millions."""
_FLAGS = frozenset("imsduU")
_QUANTIFIERS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_AT = {"A": r"\A", "G": r"\A", "Z": r"\Z", "z": r"\Z", "b": r"\b", "B": r"\B"}

Lengths = Mapping[int, str]  # what finds text of each length; Python's lookbehind takes one length alone
_EMPTY: Lengths | None = {0: ""}


@dataclass(frozen=True)
class Part:
    """A part of a pattern."""

    text: str  # the part in Python's dialect. Where a group begins it has the group's number between NULs.
    lengths: Lengths | None  # the same by the lengths of what it finds; None where there is no telling
    # Whether Java sees one way to find it. Of a group that it repeats and sees several, it does not tell a length.
    is_deterministic: bool = True
    groups: frozenset[int] = frozenset()  # numbers of its groups


@functools.lru_cache(maxsize=64)
def in_python(pattern: str) -> re.Pattern[str]:
    """A pattern of Java as one of Python, whose ``search`` finds the names of topics that Java's ``find`` does. Raises
    ValueError where Java does not take it, or Python cannot say it."""
    try:
        return re.compile(_Parser(pattern).whole(), re.ASCII | re.DOTALL)
    except RecursionError:
        raise ValueError("is a regular expression that is nested too deeply") from None


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._characters = Characters(pattern)
        self._names: dict[str, int] = {}
        self._begun = 0
        self._ended: set[int] = set()
        self._uncertain: set[int] = set()
        self._references: list[tuple[int, int]] = []
        self._lookbehinds = 0  # characters of all of them

    def whole(self) -> str:
        """The pattern in Python's dialect."""
        part = self._alternatives()
        if self._characters.next_character():
            self._characters.wrong("an unmatched )")
        for number, position in self._references:
            if number in self._uncertain:
                raise ValueError(
                    f"has a reference at character {position} to a group that is repeated, or looked at without being "
                    "found, which this source does not take: write it differently"
                )
        wanted = {number for number, _ in self._references}
        return re.sub("\0(\\d+)\0", lambda m: f"(?P<g{m[1]}>" if int(m[1]) in wanted else "(?:", part.text)

    def _alternatives(self) -> Part:
        parts = [self._sequence()]
        while self._characters.takes("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        groups = frozenset[int]().union(*(part.groups for part in parts))
        return Part(f"(?:{'|'.join(part.text for part in parts)})", _either([p.lengths for p in parts]), False, groups)

    def _sequence(self) -> Part:
        parts = []
        while (following := self._characters.peek()) not in ("", "|", ")"):
            if following in _QUANTIFIERS:
                self._characters.next_character()
                self._characters.wrong(f"{following} without anything before it")
            parts += self._group() if self._characters.takes("(") else [self._repeated(self._atom())]
        lengths = functools.reduce(_joined, (part.lengths for part in parts), _EMPTY)
        groups = frozenset[int]().union(*(part.groups for part in parts))
        deterministic = all(part.is_deterministic for part in parts)
        return Part("".join(part.text for part in parts), lengths, deterministic, groups)

    def _atom(self) -> Part:
        if self._characters.peek() == "{":  # Java repeats nothing then
            return Part("", _EMPTY)
        character = self._characters.next_character()
        if character == "\\":
            return self._escaped()
        if character in ("^", "$"):
            return _of_no_length(r"\A" if character == "^" else r"\Z")
        if character == "[":
            return _one_of(self._characters.class_())
        return _one_of(NAME if character == "." else self._characters.alike(character))

    def _escaped(self) -> Part:
        kind = self._characters.peek()
        if kind in _AT:
            self._characters.next_character()
            if kind == "b" and self._characters.peek() == "{" and self._characters.peek(1) == "g":
                self._characters.refused("\\b{g}")
            return _of_no_length(_AT[kind])
        if kind == "R":
            self._characters.next_character()
            return _one_of(NOTHING)
        if kind == "k" or (kind and kind in "123456789"):
            return self._reference(self._named() if self._characters.takes("k") else self._numbered())
        escaped = self._characters.escaped()
        return _one_of(self._characters.alike(escaped) if isinstance(escaped, str) else escaped)

    def _named(self) -> int:
        name = self._name() if self._characters.takes("<") else ""
        return self._names.get(name) or self._characters.wrong("\\k without <the name of a group>")

    def _name(self) -> str:
        name = self._characters.digits(string.ascii_letters + string.digits, LONGEST_NAME)
        if not name or name[0].isdigit() or not self._characters.takes(">"):
            self._characters.wrong("a group's name that is not letters and digits, and >")
        return name

    def _numbered(self) -> int:
        number = int(self._characters.next_character())
        while (digit := self._characters.peek()) and digit in string.digits and number * 10 + int(digit) <= self._begun:
            number = number * 10 + int(self._characters.next_character())
        return number

    def _reference(self, number: int) -> Part:
        if number not in self._ended:
            self._characters.refused(f"a reference to group {number}, which does not end before it,")
        self._references.append((number, self._characters.position))
        same = f"(?P=g{number})"
        return Part(f"(?i:{same})" if "i" in self._characters.flags else same, None)

    def _group(self) -> list[Part]:
        """The group whose ``(`` has been taken, repeated as it is; none for flags alone."""
        flags = self._characters.flags
        kind = self._kind() if self._characters.takes("?") else "("
        if kind == ")":
            return []
        if kind == "(":
            self._begun += 1
        number = self._begun
        body = self._alternatives()
        if not self._characters.takes(")"):
            self._characters.wrong("( without )")
        self._characters.flags = flags
        if kind == "(":
            self._ended.add(number)
            return [
                self._repeated(replace(body, text=f"\0{number}\0{body.text})", groups=body.groups | {number}), True)
            ]
        if kind == ":":
            return [self._repeated(replace(body, text=f"(?:{body.text})"), True)]
        self._uncertain |= body.groups
        if kind == ">":
            return [self._repeated(replace(body, text=f"(?>{body.text})", lengths=_only(body, f"(?>{body.text})")))]
        return [self._repeated(_of_no_length(self._behind(kind, body) if "<" in kind else f"(?{kind}{body.text})"))]

    def _kind(self) -> str:
        """What kind of group begins: ``(`` captures, ``:`` does not, ``)`` is no group but flags, which are set."""
        kind = self._characters.next_character()
        if kind == "<" and self._characters.peek() in ("=", "!"):
            return kind + self._characters.next_character()
        if kind == "<":
            name = self._name()
            if name in self._names:
                self._characters.wrong(f"a second group {name}")
            self._names[name] = self._begun + 1
            return "("
        if kind and kind in ":=!>":
            return kind
        flags, has_minus = self._characters.flags, False
        while kind not in (":", ")"):
            if kind in ("x", "c") and not has_minus:
                self._characters.refused(f"the flag {kind}")
            if kind not in _FLAGS | {"x", "c"} and (kind != "-" or has_minus):
                self._characters.wrong(f"a group that begins with (? and {kind!r}" if kind else "( without )")
            letters = {kind, "u"} if kind == "U" else {kind}
            flags = flags - letters if has_minus else flags | letters
            has_minus = has_minus or kind == "-"
            kind = self._characters.next_character()
        self._characters.flags = flags
        return kind

    def _behind(self, kind: str, body: Part) -> str:
        if body.lengths is None:
            self._characters.refused("a lookbehind of no certain lengths")
        texts = [f"(?{kind}{text})" for text in body.lengths.values()]
        self._lookbehinds += sum(map(len, texts))
        if self._lookbehinds > LONGEST_LOOKBEHINDS:
            self._characters.refused("the last of too many lookbehinds, or of too many lengths,")
        return "".join(texts) if kind == "<!" else f"(?:{'|'.join(texts)})" if texts else _one_of(NOTHING).text

    def _repeated(self, part: Part, is_group: bool = False) -> Part:
        following = self._characters.peek()
        if following not in _QUANTIFIERS and following != "{":
            return part
        self._characters.next_character()
        low, high = self._counts() if following == "{" else _QUANTIFIERS[following]
        kind = self._characters.next_character() if self._characters.peek() in ("?", "+") else ""
        self._uncertain |= part.groups
        count = f"{{{low},{'' if high is None else high}}}"
        text = f"(?:{part.text}){count}{'?' if kind == '?' else ''}"
        deterministic = part.is_deterministic and low == high
        if kind == "+":
            text = f"(?>(?>{part.text}){count})"
        lengths = None if high is None else _times(part, low, min(high, LONGEST_NAME))
        if kind == "+":
            lengths = _only(replace(part, lengths=lengths), text)
        elif is_group and (low, high) != (0, 1) and not part.is_deterministic:
            lengths = None
        return Part(text, lengths, deterministic, part.groups)

    def _counts(self) -> tuple[int, int | None]:
        low = self._characters.digits(string.digits, 99)
        high = (self._characters.digits(string.digits, 99) or "") if self._characters.takes(",") else low
        if not low or not self._characters.takes("}"):
            self._characters.wrong("{ without a number, or two, and }")
        if int(low) > MOST_REPEATS or (high and not int(low) <= int(high) <= MOST_REPEATS):
            self._characters.wrong("{ with numbers that are no range")
        return int(low), int(high) if high else None


def _one_of(characters: frozenset[str]) -> Part:
    if not characters:
        text = r"[^\s\S]"
    elif characters == NAME:
        text = "."
    else:
        text = re.escape(*characters) if len(characters) == 1 else f"[{''.join(map(re.escape, sorted(characters)))}]"
    return Part(text, {1: text})


def _of_no_length(text: str) -> Part:
    return Part(text, {0: text})


def _only(part: Part, text: str) -> Lengths | None:
    """The lengths of `part` as `text`, which keeps the first way it finds: known where all ways have one length."""
    return dict.fromkeys(part.lengths, text) if part.lengths is not None and len(part.lengths) == 1 else None


def _either(several: Sequence[Lengths | None]) -> Lengths | None:
    known = [lengths for lengths in several if lengths is not None]
    return None if len(known) < len(several) else _merged(item for lengths in known for item in lengths.items())


def _joined(one: Lengths | None, other: Lengths | None) -> Lengths | None:
    if one is None or other is None:
        return None
    return _merged(
        (first + second, text + behind) for first, text in one.items() for second, behind in other.items()
        if first + second <= LONGEST_NAME
    )  # fmt: skip


def _times(part: Part, low: int, high: int) -> Lengths | None:
    if part.lengths is None or set(part.lengths) == {0}:
        return _EMPTY if part.lengths and low == 0 else part.lengths
    if len(part.lengths) == 1:
        ((length, text),) = part.lengths.items()
        counts = range(low, min(high, LONGEST_NAME // length) + 1)
        return _merged((length * n, min(text * n, f"(?:{text}){{{n}}}", key=len)) for n in counts)
    found: list[Lengths | None] = []
    repeated = _EMPTY
    for count in range(high + 1):
        if count >= low:
            found.append(repeated)
        repeated = _joined(repeated, part.lengths)
        if not repeated:
            break
    return _either(found)


def _merged(texts: Iterable[tuple[int, str]]) -> Lengths | None:
    by_length: dict[int, dict[str, None]] = {}
    for length, text in texts:
        by_length.setdefault(length, {})[text] = None
    merged = {n: next(iter(found)) if len(found) == 1 else f"(?:{'|'.join(found)})" for n, found in by_length.items()}
    return merged if sum(map(len, merged.values())) <= LONGEST_LOOKBEHIND else None
