"""The tokens of a JSON document as Spark reads them: Jackson's parser of characters, with the options of from_json.

Spark makes characters of the bytes first, as Java decodes UTF-8. It goes on behind some errors: where the parser stands
then decides which fields a damaged document still has. So the state is that of Jackson's ``ReaderBasedJsonParser``,
step by step: a name is read together with the first characters of its value, a string when somebody asks for it, and
an error leaves the position where Jackson leaves it.
"""

from __future__ import annotations

import binascii
import codecs
import re
import unicodedata

NAME, STRING, INT, FLOAT, TRUE, FALSE, NULL = "name", "string", "integer", "float", "true", "false", "null"
START_OBJECT, END_OBJECT, START_ARRAY, END_ARRAY = "{", "}", "[", "]"
STARTS, ENDS = {START_OBJECT, START_ARRAY}, {END_OBJECT, END_ARRAY}

MAX_DEPTH = 1000
MAX_NAME = 50_000
MAX_NUMBER = 1000
MAX_STRING = 100_000_000
MAX_SHOWN_TOKEN = 256
DIGITS = "0123456789"
WORDS = {
    "t": ("true", TRUE),
    "f": ("false", FALSE),
    "n": ("null", NULL),
    "N": ("NaN", FLOAT),
    "I": ("Infinity", FLOAT),
}
ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\", "'": "'"}

PADDING = 64
BASE64 = {char: at for at, char in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")}

_base64 = re.compile(r"(?:[\x00-\x20]*[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=))*[\x00-\x20]*").fullmatch
_plain_digits = re.compile("[0-9]*").match
_plain_string = re.compile(r'[^"\\\x00-\x1f]*').match
_plain_single_quoted = re.compile(r"[^'\\\x00-\x1f]*").match
_hex = re.compile("[0-9a-fA-F]*").match
_pair = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_surrogate = re.compile("[\ud800-\udfff]")
_surrogate_bytes = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?").match


class BadJsonError(Exception):
    """Raised where Jackson or Spark's parser would raise. `field` is the dotted name of the field, as far as known."""

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field

    def below(self, name: str) -> BadJsonError:
        """The same, of a field of the struct `name`."""
        self.field = f"{name}.{self.field}" if self.field else name
        return self


def _as_java(error: UnicodeError) -> tuple[str, int]:
    """Java puts one U+FFFD for a surrogate's three bytes, where Python puts three."""
    assert isinstance(error, UnicodeDecodeError)
    surrogate = _surrogate_bytes(error.object, error.start)
    return "\ufffd", surrogate.end() if surrogate else error.end


codecs.register_error("groupkafka-java", _as_java)


def characters(document: bytes) -> str:
    """What Java makes of bytes: UTF-8, with U+FFFD for what is none."""
    return document.decode("utf-8", "groupkafka-java")


def joined(text: str) -> str:
    """`text` with a character for each pair of surrogates that escapes made; single ones stay."""
    return _pair.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


def as_spark(text: str) -> str:
    """What Spark keeps of a Java string: a single surrogate is a question mark in UTF-8."""
    return _surrogate.sub("?", joined(text)) if _surrogate.search(text) else text


def _java_length(text: str, limit: int) -> int:
    """Characters as Java counts them; exact only around `limit`."""
    return len(text) if 2 * len(text) <= limit else len(text) + sum(char > "\uffff" for char in text)


class _Context:
    """An object or array that is open, or the root."""

    __slots__ = ("index", "kind", "name")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.index = -1
        self.name: str | None = None


class JsonTokens:
    """A document's tokens. After an error, ``next`` may be called again: it goes on where Jackson goes on."""

    def __init__(self, document: bytes) -> None:
        self.source = characters(document)
        self.at = 0
        self.end = len(self.source)
        self.token: str | None = None
        self._of_name: str | None = None  # the token behind a name
        self._incomplete = False  # a string whose characters are not read
        self._text = ""
        self._contexts = [_Context("root")]

    # --- what a reader sees -------------------------------------------------------------------------------------------

    def name(self) -> str | None:
        """The name that the token belongs to."""
        at = -2 if self.token in STARTS and len(self._contexts) > 1 else -1
        return self._contexts[at].name

    def text(self) -> str:
        """Of a string or number: a string's characters are read now, if they were not."""
        if self._incomplete:
            self._incomplete = False
            self._text = self._string(_plain_string, '"', "string")
            if _java_length(self._text, MAX_STRING) > MAX_STRING:
                raise BadJsonError(f"a string of more than {MAX_STRING} characters")
        return self._text

    def binary(self) -> bytes:
        """Of a string: its bytes, in base64 with padding. Space may be between the groups of four characters."""
        if not self._incomplete:
            return base64_of(self._text)
        found = bytearray()
        while True:
            char = self._read()
            if char <= " ":
                continue
            if char == '"':
                self._incomplete = False
                return bytes(found)
            first = self._bits(char, 0)
            if first is None:
                continue
            group = [first, self._bits(self._read(), 1), self._bits(self._read(), 2)]
            group.append(self._bits(self._read(), 4 if group[2] == PADDING else 3))
            bits = 0
            for six in group:
                assert six is not None
                bits = bits << 6 | (six & 0x3F)
            found += bits.to_bytes(3, "big")[: 3 - group.count(PADDING)]

    def _bits(self, char: str, place: int) -> int | None:
        """Of a character of base64 at this place of its group, 4 behind padding; None for an escaped space."""
        six = BASE64.get(char)
        if six is not None and _fits(six, place):
            return six
        if char == '"' and place in (2, 3):
            self.at -= 1
        if char != "\\":
            raise BadJsonError(f"{shown(char)} in base64")
        char = self.escaped()
        if char <= " " and place == 0:
            return None
        six = BASE64.get(char)
        if six is None or not _fits(six, place):
            raise BadJsonError(f"{shown(char)} in base64")
        return six

    def next(self) -> str | None:
        """The next token, None at the end."""
        if self.token == NAME:
            return self._after_name()
        if self._incomplete:
            self._incomplete = False
            self._string(_plain_string, '"', "string")
        char = self._after_space()
        if char is None:
            if len(self._contexts) > 1:
                raise BadJsonError("the document ends too soon")
            self.token = None
            return None
        if char in ENDS:
            return self._close(char)
        context = self._contexts[-1]
        context.index += 1
        if context.kind != "root" and context.index > 0:
            char = self._after_comma(char)
        if context.kind != START_OBJECT:
            kind = self._value(char)
            if kind in STARTS:
                self._open(kind)
            self.token = kind
            return kind
        context.name = joined(self._name(char))
        self.token = NAME
        self._of_name = self._value(self._after_colon())
        return NAME

    def skip_children(self) -> None:
        """To the end of the object or array that just began; nothing for another token."""
        if self.token not in STARTS:
            return
        depth = 1
        while depth:
            token = self.next()
            if token is None:
                return
            depth += (token in STARTS) - (token in ENDS)

    # --- structure ----------------------------------------------------------------------------------------------------

    def _after_name(self) -> str | None:
        kind, self._of_name = self._of_name, None
        if kind in STARTS:
            assert kind is not None
            self._open(kind)
        self.token = kind
        return kind

    def _open(self, kind: str) -> None:
        self._contexts.append(_Context(kind))
        if len(self._contexts) - 1 > MAX_DEPTH:
            raise BadJsonError(f"objects and arrays are nested deeper than {MAX_DEPTH}")

    def _close(self, char: str) -> str:
        opened = START_ARRAY if char == END_ARRAY else START_OBJECT
        if self._contexts[-1].kind != opened:
            raise BadJsonError(f"{char} closes what is not open")
        self._contexts.pop()
        self.token = char
        return char

    def _value(self, char: str) -> str:
        """The kind of the value that begins with `char`, which has been read."""
        if char == '"':
            self._incomplete = True
            return STRING
        if char in STARTS:
            return char
        if char in DIGITS:
            return self._number(self.at - 1, negative=False)
        if char in WORDS:
            word, kind = WORDS[char]
            self._match(word, 1)
            self._text = word
            return kind
        if char == "-":
            return self._negative()
        if char == "'":
            self._text = self._string(_plain_single_quoted, "'", "string")
            return STRING
        if char == "+":
            return self._infinity(self._read(), "+")
        if _is_identifier_start(char):
            self._skip_token(1)
        raise BadJsonError(f"{shown(char)} begins no value")

    def _name(self, char: str) -> str:
        if char == '"':
            name = self._string(_plain_string, '"', "name")
        elif char == "'":
            name = self._string(_plain_single_quoted, "'", "name")
        else:
            raise BadJsonError(f"{shown(char)} where a name begins")
        if _java_length(name, MAX_NAME) > MAX_NAME:
            raise BadJsonError(f"a name of more than {MAX_NAME} characters")
        return name

    # --- characters ---------------------------------------------------------------------------------------------------

    def _read(self) -> str:
        if self.at >= self.end:
            raise BadJsonError("the document ends too soon")
        char = self.source[self.at]
        self.at += 1
        return char

    def _after_space(self) -> str | None:
        while self.at < self.end:
            char = self.source[self.at]
            self.at += 1
            if char == "/":
                raise BadJsonError("comments are not JSON")
            if char > " ":
                return char
            if char not in " \t\r\n":
                raise BadJsonError(f"{shown(char)} between values")
        return None

    def _after_comma(self, char: str) -> str:
        if char != ",":
            raise BadJsonError(f"{shown(char)} where a comma is expected")
        return self._something()

    def _after_colon(self) -> str:
        if self._something() != ":":
            raise BadJsonError("no colon behind a name")
        return self._something()

    def _something(self) -> str:
        char = self._after_space()
        if char is None:
            raise BadJsonError("the document ends too soon")
        return char

    def _string(self, plain: re.Pattern[str].match, quote: str, what: str) -> str:  # type: ignore[valid-type]
        """Up to the closing quote, which is read."""
        parts = []
        while True:
            run = plain(self.source, self.at)
            self.at = run.end()
            if self.at >= self.end:
                raise BadJsonError(f"a {what} without end")
            parts.append(run[0])
            char = self._read()
            if char == quote:
                return parts[0] if len(parts) == 1 else "".join(parts)
            if char != "\\":
                raise BadJsonError(f"{shown(char)} in a {what}, without escape")
            parts.append(self.escaped())

    def escaped(self) -> str:
        """The character behind a backslash."""
        char = self._read()
        if char != "u":
            if char in ESCAPES:
                return ESCAPES[char]
            raise BadJsonError(f"\\{shown(char)} is no escape")
        run = _hex(self.source, self.at, self.at + 4)
        assert run is not None
        self.at = run.end()
        if len(run[0]) < 4:
            self._read()
            raise BadJsonError("\\u without four hexadecimal digits")
        return chr(int(run[0], 16))

    def _match(self, word: str, begun: int) -> None:
        for char in word[begun:]:
            if self.at >= self.end or self.source[self.at] != char:
                self._skip_token(begun)
                raise BadJsonError(f"a word that is not {word}")
            self.at += 1
            begun += 1
        if self.at < self.end:
            char = self.source[self.at]
            if char >= "0" and char not in ENDS and is_identifier_part(char):
                self._skip_token(begun)
                raise BadJsonError(f"a word that is not {word}")

    def _skip_token(self, matched: int) -> None:
        """What Jackson reads to show it: the rest of a word."""
        while self.at < self.end and matched < MAX_SHOWN_TOKEN and is_identifier_part(self.source[self.at]):
            self.at += 1
            matched += 1

    # --- numbers ------------------------------------------------------------------------------------------------------

    def _not_a_number(self, word: str, begun: int) -> str:
        self._match(word, begun)
        self._text = word
        return FLOAT

    def _negative(self) -> str:
        if self.at < self.end and self.source[self.at] in DIGITS:
            return self._number(self.at, negative=True)
        return self._infinity(self._read(), "-")

    def _infinity(self, char: str, sign: str) -> str:
        if char == "I":
            second = self._read()
            if second == "N":
                return self._not_a_number(f"{sign}INF", 3)
            if second == "n":
                return self._not_a_number(f"{sign}Infinity", 3)
        raise BadJsonError(f"{sign}{shown(char)} begins no number")

    def _number(self, start: int, negative: bool) -> str:
        """From its first digit, at `start`.

        Errors leave the position where Jackson does: behind the first character of the part that is wrong, or behind
        the wrong character where the number began with a zero or reached the end of the document.
        """
        # One function as Jackson's: where an error leaves the position depends on the part that was begun.
        source = self.source
        slow = source[start] == "0"
        if slow:
            self.at = start + 1
            if self.at < self.end and source[self.at] in DIGITS:
                raise BadJsonError("a number with leading zeros")
            at = self.at
        else:
            at = _plain_digits(source, start).end()  # type: ignore[union-attr]
        whole, fraction, exponent = at - start, 0, 0
        is_float = False
        resume = at
        if at < self.end and source[at] == ".":
            resume = at + 1
            is_float = True
            fraction = _plain_digits(source, at + 1).end() - at - 1  # type: ignore[union-attr]
            at += 1 + fraction
            if not fraction:
                raise self._bad_number("a number ends with its point", slow, resume, at)
        if at < self.end and source[at] in "eE":
            if not is_float:
                resume = at + 1
            is_float = True
            at += 1
            if at < self.end and source[at] in "+-":
                at += 1
            exponent = _plain_digits(source, at).end() - at  # type: ignore[union-attr]
            at += exponent
            if not exponent:
                raise self._bad_number("a number without exponent behind its e", slow, resume, at)
        self.at = at
        if len(self._contexts) == 1 and at < self.end:
            self.at += 1
            if source[at] not in " \t\r\n":
                raise BadJsonError("no space behind a number")
            self.at -= source[at] == "\r"
        if whole + fraction + exponent > MAX_NUMBER:
            raise BadJsonError(f"a number of more than {MAX_NUMBER} digits")
        self._text = ("-" if negative else "") + source[start:at]
        return FLOAT if is_float else INT

    def _bad_number(self, reason: str, slow: bool, resume: int, at: int) -> BadJsonError:
        self.at = min(at + 1, self.end) if slow or at >= self.end else resume
        return BadJsonError(reason)


def base64_of(text: str) -> bytes:
    """The bytes of a string in single quotes, which has been read."""
    if not _base64(text):
        raise BadJsonError("no base64 with padding")
    groups = "".join(char for char in text if char > " ")
    return b"".join(binascii.a2b_base64(groups[at : at + 4]) for at in range(0, len(groups), 4))


def _fits(six: int, place: int) -> bool:
    return place >= 2 if six == PADDING else place < 4


def is_identifier_part(char: str) -> bool:
    """Java's ``Character.isJavaIdentifierPart`` of a char."""
    if char > "\uffff":
        return False
    category = unicodedata.category(char)
    if category in {"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc", "Nd", "Mc", "Mn", "Cf"}:
        return True
    return char <= "\x08" or "\x0e" <= char <= "\x1b" or "\x7f" <= char <= "\x9f"


def _is_identifier_start(char: str) -> bool:
    return char <= "\uffff" and unicodedata.category(char) in {"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"}


def shown(char: str) -> str:
    """A character for a reason."""
    return char if " " < char < "\x7f" else f"U+{ord(char):04X}"
