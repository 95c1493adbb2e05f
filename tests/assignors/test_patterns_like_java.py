"""Patterns of topics find the names that java.util.regex finds, or are refused."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from java_assignors import Java, JavaError
from patterns import Patterns

from spark_kafka_group.options.java_pattern import in_python

NAMES = [
    *"abtAT09._-", "ab", "ba", "aa", "bb", "tt", "aB", "Ab", "a0", "0a", "a-b", "a.b", "a_b", "-a", "b.", "__", "--",
    "aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb", "aaaa", "abab", "abba", "baab", "aAbB", "tata", "taatb",
    "a-b-a", "aabbaabb", "a00-99b", "ord-eu", "ord-test", "ord-us1", "ORD-EU", "orders.v1_retry", "aaaaaaaaab",
    "K", "s",
]  # fmt: skip
AT_ONCE = 20


class Names:
    """The names, in Java."""

    def __init__(self, java: Java) -> None:
        self._pattern = java.java.util.regex.Pattern
        self._names = java.java.util.ArrayList(NAMES)

    def found(self, pattern: str) -> list[str] | None:
        """Those that Java finds; None where it does not take the pattern."""
        try:
            predicate = self._pattern.compile(pattern).asPredicate()
            found = self._names.stream().filter(predicate).toList().toString()
        except JavaError:  # Java 17 compiles [^a&&], and fails when it matches
            return None
        return found[1:-1].split(", ") if found != "[]" else []


def found(pattern: str) -> list[str] | str:
    """Those that this source finds; or why it does not take the pattern."""
    try:
        compiled = in_python(pattern)
    except ValueError as error:
        return str(error)
    return [name for name in NAMES if compiled.search(name)]


@pytest.fixture(scope="module")
def names(java):
    return Names(java)


@given(st.integers(0, 2**32))
def test_a_pattern_finds_what_java_finds_or_is_refused(names, seed):
    patterns = Patterns(Random(seed))
    for pattern in [patterns.pattern() for _ in range(AT_ONCE)]:
        of_java, of_python = names.found(pattern), found(pattern)
        if isinstance(of_python, str):
            assert of_java is None or "is not a regular expression of Java" not in of_python, pattern
        else:
            assert of_python == of_java, pattern
