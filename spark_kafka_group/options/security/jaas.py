"""The JAAS configuration of a login module, ``sasl.jaas.config``, read as Kafka and Java's StreamTokenizer do.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="say \\"hi\\"";

An error gives the place of a mistake and never the text there: where quotes are missing, a word is a part of a
password. Of names of options and classes it shows the beginning, and the whole name only of Kafka's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from spark_kafka_group.text.foreign_text import Secret

CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
SPACE = r"(?s:\s|//[^\n\r]*|/\*.*?\*/)+"  # compiled where they are used: workers need none of them
WORD = r"[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9._$\u00a0-\U0010ffff-]*"
QUOTED = r"""(["'])((?:\\[^\n\r]|(?!\1)[^\\\n\r])*)\1"""
ESCAPE = r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)"
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
KNOWN_OPTIONS = frozenset(
    {
        "username", "password", "tokenauth", "clientId", "clientSecret", "scope", "unsecuredLoginLifetimeSeconds",
        "unsecuredLoginPrincipalClaimName", "unsecuredLoginScopeClaimName", "unsecuredLoginStringClaim_sub",
        "awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion", "awsDebugCreds",
        "principal", "keyTab", "ticketCache", "serviceName", "useKeyTab", "useTicketCache", "storeKey", "doNotPrompt",
        "renewTGT", "refreshKrb5Config", "isInitiator", "debug",
    }
)  # fmt: skip
"""Of login modules that are known, which may be shown."""
QUOTES = 'values are in double quotes, with \\" and \\\\ for " and \\ in them'


@dataclass(frozen=True)
class LoginModule:
    """A login module and its options, which are all secret."""

    name: str
    options: tuple[tuple[str, Secret], ...] = ()
    positions: tuple[int, ...] = field(default=(), compare=False)
    """Where in the text each of the options begins, from 0."""

    @property
    def short_name(self) -> str:
        """The class without its package."""
        return self.name.rpartition(".")[2]

    def shown(self, name: str) -> str:
        """An option that is given, for an error."""
        return _shown(name, self.positions[[given for given, _ in self.options].index(name)])

    def names(self) -> set[str]:
        """Names of the options that are given."""
        return {name for name, _ in self.options}

    def get(self, name: str) -> str | None:
        """An option's value."""
        return next((value.text for given, value in self.options if given == name), None)


def login_module(raw: str) -> LoginModule:
    """Read a configuration that has one login module. Raises ValueError, whose text follows the option's name."""
    tokens = _Tokens(raw)
    name = tokens.word("the class of a login module")
    if tokens.word("a control flag such as required").lower() not in CONTROL_FLAGS:
        raise ValueError(f"must have one of {', '.join(CONTROL_FLAGS)} after the class of the login module")
    options: dict[str, tuple[Secret, int]] = {}
    while not tokens.takes(";"):
        begin = tokens.position
        option = tokens.word("name=value or the final semicolon")
        if not tokens.takes("="):
            raise ValueError(f"must have = and a value after {_shown(option, begin)} ({tokens.where()}); {QUOTES}")
        value = tokens.text()
        if value is None:
            raise ValueError(f"must have a value after {_shown(option, begin)} and = ({tokens.where()}); {QUOTES}")
        options[option] = Secret(value), begin
    if not tokens.at_end():
        raise ValueError(f"must have one login module, and has more text after its semicolon ({tokens.where()})")
    given = sorted(options)
    return LoginModule(
        name, tuple((option, options[option][0]) for option in given), tuple(options[option][1] for option in given)
    )


def _shown(option: str, position: int) -> str:
    return option if option in KNOWN_OPTIONS else f"the name at character {position + 1}"


class _Tokens:
    """A checked cursor over the text."""

    def __init__(self, raw: str) -> None:
        self._raw = raw
        self.position = 0
        self._skip()

    def _skip(self) -> None:
        space = re.compile(SPACE).match(self._raw, self.position)
        self.position = space.end() if space else self.position

    def at_end(self) -> bool:
        return self.position == len(self._raw)

    def where(self) -> str:
        return "at its end" if self.at_end() else f"at character {self.position + 1}"

    def takes(self, character: str) -> bool:
        found = self._raw.startswith(character, self.position)
        if found:
            self.position += 1
            self._skip()
        return found

    def word(self, what: str) -> str:
        # Kafka takes quotes here too.
        word = self.text()
        if word is None:
            raise ValueError(f"must have {what} {self.where()}; {QUOTES}")
        return word

    def text(self) -> str | None:
        quoted = re.compile(QUOTED).match(self._raw, self.position)
        word = quoted or re.compile(WORD).match(self._raw, self.position)
        if word is None:
            return None
        self.position = word.end()
        self._skip()
        return word[0] if quoted is None else re.sub(ESCAPE, _unescaped, quoted[2])


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what, 8)) if what[0] in "01234567" else ESCAPES.get(what, what)
