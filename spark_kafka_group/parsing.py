"""From the text of an option to a typed value; a ValueError's text follows the option's name and value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from spark_kafka_group.errors import OffsetFormatError
from spark_kafka_group.offsets import TopicPartition, positions_from_json

INT32_MAX = 2**31 - 1

StartingOffsets = str | dict[TopicPartition, int]


def text(raw: str) -> str:
    """Any text."""
    if not raw.strip():
        raise ValueError("must not be empty")
    return raw.strip()


def integer(low: int, high: int = INT32_MAX) -> Callable[[str], int]:
    """A whole number within bounds."""

    def parse(raw: str) -> int:
        try:
            value = int(raw)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def boolean(raw: str) -> bool:
    """true or false."""
    if raw.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return raw.strip().lower() == "true"


def choice(*words: str) -> Callable[[str], str]:
    """One of some words."""

    def parse(raw: str) -> str:
        if raw.strip().lower() not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return raw.strip().lower()

    return parse


def servers(raw: str) -> str:
    """host:port, separated by commas."""
    for server in raw.split(","):
        if not re.fullmatch(r"\s*(\[[0-9a-fA-F:]+\]|[^\s:,\[\]]+):\d{1,5}\s*", server):
            raise ValueError(f"must be host:port, separated by commas; {server.strip()!r} is not")
    return ",".join(server.strip() for server in raw.split(","))


def topics(raw: str) -> tuple[str, ...]:
    """Topic names, separated by commas."""
    names = [name.strip() for name in raw.split(",")]
    for name in names:
        if not name:
            raise ValueError("has an empty topic name: look for a stray comma")
        _check_topic(name)
    return tuple(dict.fromkeys(names))


def _check_topic(topic: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
        raise ValueError(f"{topic!r} is not a topic name: letters, digits, '.', '_' and '-', at most 249 of them")


def pattern(raw: str) -> str:
    """A regular expression for whole topic names."""
    try:
        re.compile(raw)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text(raw)


def partitions(raw: str) -> frozenset[TopicPartition]:
    """JSON like Spark's `assign`: partition numbers of each topic."""
    expected = 'must be JSON like {"topicA": [0, 1], "topicB": [2, 4]}'
    try:
        named = json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"{expected}: {error}") from None
    if not isinstance(named, dict) or not all(isinstance(numbers, list) for numbers in named.values()):
        raise ValueError(expected)
    found = []
    for topic, numbers in named.items():
        _check_topic(topic)
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(f"{expected}; {number!r} of {topic} is not a partition number")
            found.append(TopicPartition(topic, number))
    return frozenset(found)


def names(raw: str) -> tuple[str, ...]:
    """Names, separated by commas."""
    found = [name.strip() for name in raw.split(",")]
    if not all(found):
        raise ValueError("has an empty name: look for a stray comma")
    return tuple(dict.fromkeys(found))


def writable_file(raw: str) -> str:
    """Path of a file in a directory that exists."""
    path = Path(text(raw))
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError("must be a file in a directory that exists")
    return str(path.absolute())


def instance_id(raw: str) -> str:
    """A name that Kafka takes for a static member."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", raw) or raw in (".", ".."):
        raise ValueError("must be letters, digits, '.', '_' and '-', at most 249 of them")
    return raw


def offsets(*words: str, refused: Mapping[int, str]) -> Callable[[str], StartingOffsets]:
    """One of some words, or JSON of an offset per partition; `refused` maps offsets to what is wrong with them."""

    def parse(raw: str) -> StartingOffsets:
        if raw.strip().lower() in words:
            return raw.strip().lower()
        expected = f'must be {", ".join(words)} or JSON like {{"topic": {{"0": 23, "1": -2}}}}'
        if not raw.lstrip().startswith("{"):
            raise ValueError(expected)
        try:
            positions = positions_from_json(json.loads(raw), "it")
        except (json.JSONDecodeError, OffsetFormatError) as error:
            raise ValueError(f"{expected}: {error}") from None
        for tp, offset in positions.items():
            if offset in refused:
                raise ValueError(f"has {offset} for {tp}: {refused[offset]}")
        return positions

    return parse
