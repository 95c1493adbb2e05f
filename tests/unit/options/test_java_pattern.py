"""`subscribePattern` in Java's dialect: what it finds, and what is refused in which words."""

import pytest

from spark_kafka_group import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.java_pattern import in_python

TOPICS = ["ord-eu", "ord-test", "ord-us1", "ORD-EU", "orders-dlq", "orders-retry-60000"]


def found(pattern):
    options = Options.parse({"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern})
    return [topic for topic in TOPICS if options.reading.subscription.includes(topic)]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("ord-[a-z&&[^t]]+$", ["ord-eu"]),
        ("ord-[[e][u]]+$", ["ord-eu"]),
        ("ord-[[a-z][0-9]&&[^t]]+$", ["ord-eu", "ord-us1"]),
        (r"\Qord-\E.*1", ["ord-us1"]),
        (r"ord-\p{Alpha}+$", ["ord-eu", "ord-test"]),
        (r"(?<region>eu)\z", ["ord-eu"]),
        (r"(?<c>t).*\k<c>$", ["ord-test"]),
        ("(?i)ORD-EU", ["ord-eu", "ORD-EU"]),
        ("o(?i)RD-EU", ["ord-eu"]),
        (r"^(?:ord-\p{L}++\d|x)$", ["ord-us1"]),
        (r"(?<!-dlq|-retry-\d{1,5}|[u1])$", ["ord-test", "ORD-EU"]),
        (r"\x{6f}\0162\u0064ers-d", ["orders-dlq"]),
    ],
)
def test_a_pattern_is_javas(pattern, topics):
    assert found(pattern) == topics


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(?P<n>a)", r"is not a regular expression of Java: a group that begins with (? and 'P', at character 3"),
        ("a{,3}", "is not a regular expression of Java: { without a number, or two, and }, at character 4"),
        ("ab**", "is not a regular expression of Java: * without anything before it, at character 4"),
        (r"\Q(\E(a", "is not a regular expression of Java: ( without ), at character 7"),
        ("[a&&[b]", "is not a regular expression of Java: [ without ], at character 7"),
        (r"a\y", r"is not a regular expression of Java: \y is no escape, at character 3"),
        ("[b-a]", "is not a regular expression of Java: a range that ends before it begins, at character 4"),
        ("(?x)a b", "has the flag x at character 3"),
        (r"\p{IsGreek}", "has the property 'IsGreek' at character 11"),
        ("(?<=a+)b", "has a lookbehind of no certain lengths at character 7"),
        (r"(a)+\1", "has a reference at character 6 to a group that is repeated"),
        (r"\1(a)", "has a reference to group 1, which does not end before it, at character 2"),
        ("[a&&]", "has && without a class behind it at character 4"),
        (r"\X", r"has \X at character 2"),
        ("(?<![a-z]{0,20}x)" * 400, "has the last of too many lookbehinds, or of too many lengths, at character "),
    ],
)
def test_what_java_or_python_cannot_search_for_is_an_error_that_names_the_place(pattern, what):
    with pytest.raises(OptionError) as raised:
        found(pattern)
    assert what in str(raised.value)


def test_the_message_of_what_is_refused_says_what_to_do():
    with pytest.raises(OptionError, match="which this source does not take: write it differently"):
        found("(?x)a")


@pytest.mark.parametrize("most", [20, 200])
def test_a_lookbehind_of_many_lengths_is_as_short_in_python_for_each_of_them(most):
    """Python compiles every character of it, and takes seconds for millions."""
    assert len(in_python(f"(?<![a-z]{{0,{most}}}x)").pattern) <= 50 * (most + 1)
