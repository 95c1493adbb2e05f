"""From the text of an option to a typed value; a ValueError's text follows the option's name and value."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from spark_kafka_group.options.bounds import WORDS, AtTime, Bound, Position
from spark_kafka_group.options.java_pattern import in_python
from spark_kafka_group.options.option import integer, names, text
from spark_kafka_group.text.foreign_text import excerpt, parsed_without_doubles
from spark_kafka_group.values.offsets import EARLIEST, INT32_MAX, INT64_MAX, TopicPartition
from spark_kafka_group.values.retry_topics import is_topic_name
from spark_kafka_group.values.transactional_ids import of_a_task

GROUP = "group"
FROM_ENVIRONMENT = re.compile(r"\$\{env:(?P<name>\w+)\}")
HIGHEST_PORT = 65_535
LONGEST_NAME = 32_000
"""The most bytes of a name. Kafka's protocol has 15 bits for its length, and this source adds something to names."""
LONGEST_PATTERN = 100_000  # longer ones take Python seconds to compile


def name(raw: str) -> str:
    """A name that goes to brokers: of a group, or a client."""
    if len(text(raw).encode()) > LONGEST_NAME:
        raise ValueError(f"must have at most {LONGEST_NAME} bytes")
    return text(raw)


def transactional_id(raw: str) -> str:
    """The prefix of a write's transactional ids, which is no id of a task of another write."""
    found = name(raw)
    if of_a_task(found):
        raise ValueError("must not end as the id of a task does, with -<number>-<number>-<0 or 1>")
    return found


def rack(raw: str) -> str:
    """A rack, or the environment variable that has it, as Kafka's EnvVarConfigProvider writes it; or nothing."""
    if "${" in raw and not FROM_ENVIRONMENT.fullmatch(raw):
        raise ValueError("must be the name of a rack, or ${env:NAME}")
    return name(raw) if raw.strip() else ""


def lifetime_ms(raw: str) -> int | None:
    """How long something that was looked up is kept; None, which Spark writes as -1, is for another option to say."""
    kept_ms = integer(-1, INT64_MAX)(raw)
    if kept_ms == 0:
        raise ValueError(f"must be -1 or between 1 and {INT64_MAX}")
    return None if kept_ms == -1 else kept_ms


def buffer_bytes(raw: str) -> int | None:
    """Size of a socket's buffer; None, which Kafka writes as -1, is the system's default."""
    size = integer(-1)(raw)
    if size == 0:
        raise ValueError(f"must be -1 (the system's) or between 1 and {INT32_MAX}")
    return None if size == -1 else size


def servers(raw: str) -> str:
    """host:port, separated by commas."""
    for server in raw.split(","):
        if not re.fullmatch(r"\s*(\[[0-9a-fA-F:]+\]|[^\s:,\[\]]+):\d{1,5}\s*", server):
            raise ValueError(f"must be host:port, separated by commas; {excerpt(server.strip())} is not")
        if not 1 <= int(server.rpartition(":")[2]) <= HIGHEST_PORT:
            raise ValueError(f"must have ports between 1 and {HIGHEST_PORT}; that of {excerpt(server.strip())} is not")
    return ",".join(server.strip() for server in raw.split(","))


def topics(raw: str) -> tuple[str, ...]:
    """Topic names, separated by commas."""
    names = [name.strip() for name in raw.split(",")]
    for name in names:
        if not name:
            raise ValueError("has an empty topic name: look for a stray comma")
        _check_topic(name)
    return tuple(dict.fromkeys(names))


def topic(raw: str) -> str:
    """A topic's name."""
    _check_topic(raw.strip())
    return raw.strip()


RAW = {"rawKey": "key", "rawValue": "value"}  # columns with the bytes of a typed column


def columns(raw: str) -> tuple[str, ...]:
    """Names of columns, however they are capitalized, separated by commas."""
    from spark_kafka_group.values.schema import EVERY  # with pyarrow, which few tools need

    by_lower_case = {name.lower(): name for name in (*EVERY, *RAW)}
    found = []
    for name in names(raw):
        column, dot, field = name.partition(".")
        known = by_lower_case.get(column.lower())
        if known is None or (dot and (known not in RAW.values() or not all(field.split(".")))):
            raise ValueError(f"has {excerpt(name)}, which is no column: take some of {', '.join(EVERY)}")
        found.append(f"{known}{dot}{field}")
    return tuple(dict.fromkeys(found))


def _check_topic(topic: str) -> None:
    if not is_topic_name(topic):
        raise ValueError(
            f"{excerpt(topic)} is not a topic name: letters, digits, '.', '_' and '-', at most 249 of them"
        )


def pattern(raw: str) -> str:
    """A regular expression of Java to find in topic names."""
    if len(raw) > LONGEST_PATTERN:
        raise ValueError(f"has {len(raw)} characters: at most {LONGEST_PATTERN} are allowed")
    in_python(text(raw))
    return text(raw)


def partitions(raw: str) -> frozenset[TopicPartition]:
    """JSON like Spark's `assign`: partition numbers of each topic."""
    expected = 'must be JSON like {"topicA": [0, 1], "topicB": [2, 4]}'
    named = _json(raw, expected)
    if not isinstance(named, dict) or not all(isinstance(numbers, list) for numbers in named.values()):
        raise ValueError(expected)
    tps = []
    for topic, numbers in named.items():
        _check_topic(topic)
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= INT32_MAX:
                raise ValueError(f"{expected}; {excerpt(number)} of {topic} is not a partition number")
            tps.append(TopicPartition(topic, number))
    return frozenset(tps)


def delays_ms(raw: str) -> tuple[int, ...]:
    """Delays in milliseconds, each once, separated by commas."""
    parts = [part.strip() for part in raw.split(",")]
    for part in parts:
        if not re.fullmatch(r"0*[1-9][0-9]{0,17}", part):
            raise ValueError(
                f"must be milliseconds, above 0, separated by commas: 60000,600000; {excerpt(part)} is not"
            )
    for delay, count in Counter(map(int, parts)).items():
        if count > 1:
            raise ValueError(f"has {delay} {count} times")
    return tuple(map(int, parts))


def writable_file(raw: str) -> str:
    """Path of a file in a directory that exists."""
    path = Path(text(raw)).absolute()
    try:
        possible = not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        possible = path.parent.is_dir()
    except OSError as error:  # such as a name that is too long; Path.is_dir() says no to it from Python 3.14 on
        raise ValueError(f"must be a file in a directory that exists: {error.strerror}") from None
    except ValueError:  # a name with NUL
        possible = False
    if not possible:
        raise ValueError("must be a file in a directory that exists")
    return str(path)


def instance_id(raw: str) -> str:
    """A name that Kafka takes for a static member."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", raw) or raw in (".", ".."):
        raise ValueError("must be letters, digits, '.', '_' and '-', at most 249 of them")
    return raw


def offsets(option: str, *words: str, refused: Mapping[int, str] = MappingProxyType({})) -> Callable[[str], Bound]:
    """One of some words, or JSON of an offset per partition, or a word per topic. `refused`: offsets that are refused,
    with the reason."""
    expected = f'must be {", ".join(words)} or JSON like {{"topicA": {{"0": 23, "1": -2}}, "topicB": "latest"}}'

    def position(place: str, value: object) -> Position:
        if isinstance(value, str) and value.strip().lower() in words and value.strip().lower() in WORDS:
            value = WORDS[value.strip().lower()]
        if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
            raise ValueError(f"{expected}; {place} has {excerpt(value)}")
        if value > INT64_MAX:
            raise ValueError(f"has {value} for {place}: an offset is at most {INT64_MAX}")
        if value in refused:
            raise ValueError(f"has {value} for {place}: {refused[value]}")
        return value

    def parse(raw: str) -> Bound:
        word = raw.strip().lower()
        if word in words:
            return Bound(option, group=True) if word == GROUP else Bound(option, every=WORDS[word])
        return Bound(option, named=_by_partition(raw, expected, position))

    return parse


def timestamps(option: str) -> Callable[[str], Bound]:
    """JSON of a timestamp per partition, or per topic; milliseconds since the epoch."""
    expected = 'must be JSON like {"topicA": {"0": 1700000000000, "1": 1700000000000}, "topicB": 1700000000000}'

    def position(place: str, value: object) -> Position:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{expected}; {place} has {excerpt(value)}")
        if value > INT64_MAX:
            raise ValueError(f"has {value} for {place}: a timestamp is at most {INT64_MAX}")
        return AtTime(value)

    return lambda raw: Bound(option, named=_by_partition(raw, expected, position))


def timestamp(option: str) -> Callable[[str], Bound]:
    """One timestamp, in milliseconds since the epoch."""
    return lambda raw: Bound(option, every=AtTime(integer(0, INT64_MAX)(raw)))


def _by_partition(
    raw: str, expected: str, position: Callable[[str, object], Position]
) -> frozenset[tuple[str, int | None, Position]]:
    named = _json(raw, expected)
    if not isinstance(named, dict) or not named:
        raise ValueError(expected)
    found: list[tuple[str, int | None, Position]] = []
    for topic, partitions in named.items():
        _check_topic(topic)
        if not isinstance(partitions, dict):
            found.append((topic, None, position(topic, partitions)))
            continue
        for number, value in partitions.items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,9}", number) or int(number) > INT32_MAX:
                raise ValueError(f"{expected}; {excerpt(number)} of {topic} is not a partition number")
            found.append((topic, int(number), position(f"{topic}-{number}", value)))
    return frozenset(found)


def _json(raw: str, expected: str) -> object:
    try:
        value: object = parsed_without_doubles(raw)
        return value
    except json.JSONDecodeError as error:
        why = f": {error}" if raw.lstrip().startswith(("{", "[")) else ""  # a mere word is no JSON that went wrong
        raise ValueError(f"{expected}{why}") from None


def byte_count(raw: str) -> int:
    """A number of bytes as Spark writes it, 512k or 10g; a bare number is bytes."""
    match = re.fullmatch(r"([0-9]{1,19})\s*([kmgt]?)b?", raw.strip().lower())
    if match is None:
        raise ValueError("must be a number of bytes such as 1048576, 512k, 64m or 10g")
    size = int(match[1]) << 10 * "_kmgt".index(match[2] or "_")
    if not 1 <= size <= INT64_MAX:
        raise ValueError(f"must be between 1 and {INT64_MAX} bytes")
    return size


DURATIONS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(raw: str) -> int:
    """A duration as Spark writes it, 15m or 200ms; a bare number is milliseconds."""
    match = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", raw.strip().lower())
    if match is None or (match[2] or "ms") not in DURATIONS_MS:
        raise ValueError(f"must be a duration such as 200ms, 30s or 15m (units: {', '.join(DURATIONS_MS)})")
    return int(match[1]) * DURATIONS_MS[match[2] or "ms"]
