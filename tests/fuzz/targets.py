"""The fuzz targets: how their inputs are made and changed, and the checks of each.

To add one: write a function that takes bytes and raises where a rule is broken, and name it in TARGETS.
"""

from __future__ import annotations

import json
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import avro_values
import encoders
import json_values
import large
import mutate
import protobuf_values
import twins
import written_values
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.util import ensure_valid_topic_name
from twins import DisagreementError

from spark_kafka_group.errors import OffsetFormatError, OptionError
from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.options import DECLARED, OPTION_NAMES, Options
from spark_kafka_group.options.checks import check_for_batch
from spark_kafka_group.options.security.jaas import KNOWN_OPTIONS, login_module
from spark_kafka_group.tools import event_logs, invariants
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.tools.properties import read_properties
from spark_kafka_group.values import commit_metadata, error_headers
from spark_kafka_group.values.offsets import GroupOffset
from spark_kafka_group.wire.fetch import response as fetch_response
from spark_kafka_group.wire.group import member_metadata, members
from spark_kafka_group.wire.produce import produce_messages

READER = "5f0c"
NUMBERS = (b"-1", b"0", b"1", b"2147483648", b"9223372036854775808", b"1e999", b"NaN", b"0.5", b"1" * 400, b"9" * 5000)
JSON_WORDS = (
    *NUMBERS,
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"null",
    b"true",
    b'"\\ud800"',
    b"[" * 2000,
    b'{"a":' * 2000,
)


@dataclass(frozen=True)
class Target:
    """Something that reads bytes of others.

    Attributes
    ----------
    run
        Reads an input; whatever it raises is a finding.
    generate, change
        Make an input, and change one with the help of another one. Without them an input is one of the corpus,
        changed with `words` put in.
    share
        How many parts of the time it gets.
    cpu_s, memory_mb
        Most that one input may take.
    cases
        Inputs in place of random ones: each is run once, in a process of its own.
    sanitized
        Whether it runs on the decoder that was built with sanitizers, which makes Python slow as well.
    """

    run: Callable[[bytes], None]
    words: tuple[bytes, ...] = ()
    generate: Callable[[Random], bytes] | None = None
    change: Callable[[Random, bytes, bytes], bytes] | None = None
    share: int = 1
    cpu_s: float = 5.0
    memory_mb: int = 200
    cases: tuple[bytes, ...] = ()
    sanitized: bool = False

    def changed(self, rng: Random, data: bytes, other: bytes) -> bytes:
        if self.change is not None:
            return self.change(rng, data, other)
        return mutate.mutate_bytes(rng, data, self.words, other)


def may_raise(read: Callable[..., Any], *documented: type[Exception]) -> Callable[..., Any]:
    """`read`, giving None for the errors that it says it raises."""

    def run(*given: Any) -> Any:
        try:
            return read(*given)
        except documented:
            return None

    return run


def _text(data: bytes) -> str:
    """Any text: surrogates too, as JSON and Python's arguments may have them."""
    return data.decode("utf-8", "surrogateescape")


def _fetch_response(data: bytes) -> None:
    """The first byte is the version; all parts of a response are inside it."""
    if not data:
        return
    version = fetch_response.VERSIONS[data[0] % len(fetch_response.VERSIONS)]
    response = memoryview(data)[1:]
    for committed_only in (False, True):
        read = may_raise(fetch_response.fetched, ValueError, struct.error)
        found = read(response, version, committed_only, {bytes(16): "t"})
        size = sum(len(partition.records) for partition in found[2]) if found else 0
        if size > len(response):
            raise DisagreementError(f"{size} bytes of records in a response of {len(response)}")


def _produce_response(data: bytes) -> None:
    """The first byte is the version."""
    if not data:
        return
    version = produce_messages.VERSIONS[data[0] % len(produce_messages.VERSIONS)]
    found = may_raise(produce_messages.produced, ValueError, struct.error)(memoryview(data)[1:], version)
    if found and len(found[1]) > len(data):
        raise DisagreementError(f"{len(found[1])} partitions in a response of {len(data)} bytes")


def _headers(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Of a record: name, tab, value, separator; null without a tab. The decoder makes UTF-8 of all names."""
    for line in data.split(b"\x1e"):
        name, tab, value = line.partition(b"\t")
        yield name.decode("utf-8", "replace"), value if tab else None


def _error_headers(data: bytes) -> None:
    """They never raise, and each hop reads the headers of the hop before."""
    headers = list(_headers(data))
    here = error_headers.Origin("here", 1, 2, 3, 0)
    origin = error_headers.origin_of(headers, here)
    error_headers.exception_of(headers)
    error_headers.handler_of(headers)
    attempts = error_headers.attempts_made(headers) + 1
    failure = error_headers.Failure("ValueError", "why", "trace")
    reader = error_headers.Reader("group", "module:function", 7)
    for dialect in error_headers.DIALECTS:
        handed_on = error_headers.handed_on(headers, dialect, origin, failure, reader, attempts, 5)
        again = error_headers.origin_of(handed_on, here)
        if (again.topic, again.partition, again.offset) != (origin.topic, origin.partition, origin.offset):
            raise DisagreementError(f"{dialect}: {origin} is read back as {again}")
        if error_headers.without(handed_on) != error_headers.without(headers):
            raise DisagreementError(f"{dialect}: the record's own headers have changed")


def _jaas(data: bytes) -> None:
    """An error never shows a value."""
    text = _text(data)
    try:
        module = login_module(text)
    except ValueError as error:
        if "hunter2" in str(error):
            raise DisagreementError(f"a password is in the error {error}") from None
        return
    for name in module.names():
        module.get(name)
        module.shown(name)
    if "hunter2" in repr(module.options) and not any("hunter2" in name for name in module.names()):
        raise DisagreementError("a password is in a repr")


def _offsets_topic(data: bytes) -> None:
    """Key and value behind the length of the key; `decode` raises nothing, the others ValueError."""
    size = data[0] if data else 0
    key, value = data[1 : 1 + size], data[1 + size :]
    entry = decoding.decode(key, value)
    decoding.decode(key, None)
    subscription_of = may_raise(decoding.subscription_of, ValueError)
    assignment_of = may_raise(decoding.assignment_of, ValueError)
    for member in entry.members if isinstance(entry, decoding.GenerationEntry) else ():
        subscription_of(member.subscription)
        assignment_of(member.assignment)
    subscription_of(value)
    assignment_of(value)


def _subscription(data: bytes) -> None:
    """Members' subscriptions: unreadable bytes claim nothing, and are no subscription."""
    named = members._subscribed(data)
    if named is not None and not all(isinstance(topic, str) for topic in named):
        raise DisagreementError(f"{named} are no topics")
    result = may_raise(ConsumerProtocolSubscription.decode, *member_metadata.UNREADABLE)(data)
    member_metadata._sticky(data)
    if result is not None:
        for strategy in ("sticky", "cooperative-sticky"):
            member_metadata.decode(strategy, result)
        member_metadata.topics_of(result)
    usable = member_metadata.usable(data)
    if (usable is None) is not (result is None):
        raise DisagreementError("a subscription is usable if, and only if, it can be read")
    if usable is not None:
        for topic in ConsumerProtocolSubscription.decode(usable).topics:
            ensure_valid_topic_name(topic)


def _commit_metadata(data: bytes) -> None:
    """Any client may write the metadata of a commit: reading it never raises."""
    metadata = _text(data)
    for reader in (READER, "other"):
        commit_metadata.left_out_of(metadata, reader, 7)
        commit_metadata.left_out(metadata, reader, 3)
        commit_metadata.is_signed(metadata, reader)
        commit_metadata.is_signed_up_to(metadata, reader, 0)
        commit_metadata.is_known(metadata, reader, 3, 7)
        commit_metadata.generation_of(metadata, reader)
        commit_metadata.is_own(metadata, reader, 3, 7)
        for note in (
            commit_metadata.adopting_metadata(reader, 7, 3, metadata),
            commit_metadata.correcting_metadata(reader, 7, 3, None, metadata),
        ):
            writer = commit_metadata.writer_of(note)
            if writer is None or writer.query_id != reader:
                raise DisagreementError(f"{note} is not read back")


IMPORTING = re.compile(r"rebalanceListener|interceptors|partition\.assignment\.strategy", re.IGNORECASE)
READING = re.compile(r"\.location|\.url|pauseFile|eventLog", re.IGNORECASE)
SECRETS = {
    field.metadata["name"]
    for _, field in DECLARED.values()
    # Spark redacts the path of a store, and an error names it: a path is no password.
    if field.metadata["secret"] and not field.metadata["name"].endswith(".location")
}


def _options(data: bytes) -> None:
    """Options as name=value. OptionError only, and never with the value of a secret one in it."""
    raw = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    for line in _text(data).split("\x1e"):
        name, _, value = line.partition("=")
        value = value.replace(":", "") if IMPORTING.search(name) else value  # nothing is imported here,
        value = value.lstrip("/") if READING.search(name) else value  # nor read from outside of this directory
        if value == "" and raw.pop(name, None) is not None:
            continue
        raw[name] = value
    shows = "hunter2" in "".join(name if name in SECRETS else name + value for name, value in raw.items())
    try:
        options = Options.parse(raw)
        check_for_batch(options)
    except OptionError as error:
        if "hunter2" in str(error) and not shows:
            raise DisagreementError(f"a password is in the error {error}") from None
        return
    if "hunter2" in repr(options):
        raise DisagreementError("a password is in a repr")
    options.reading.subscription.includes("orders")
    for bound in (options.reading.starting, options.reading.ending):
        list(bound.positions() if bound is not None else ())


def _offsets_json(data: bytes) -> None:
    """An offset that can be read from a checkpoint is written as it was read."""
    obj = may_raise(json.loads, ValueError, RecursionError)(_text(data))
    offset = may_raise(GroupOffset.from_json, OffsetFormatError)(obj)
    if offset is None:
        return
    again = GroupOffset.from_json(json.loads(json.dumps(offset.to_json())))
    if again != offset and offset.query_id is not None:
        raise DisagreementError(f"{offset} is read back as {again}")
    may_raise(offset.ranges, OffsetFormatError)(GroupOffset())


def _file(data: bytes) -> Path:
    path = Path(tempfile.gettempdir()) / f"fuzzed-{os.getpid()}"
    path.write_bytes(data)
    return path


def _properties(data: bytes) -> None:
    may_raise(read_properties, OptionError)(_file(data), ("bootstrap.servers", "sasl.", "ssl."))


def _events(data: bytes) -> None:
    """Files of events, and the checks of their runs."""
    run = may_raise(event_logs.read_run, ToolError)([_file(data)])
    if run is None:
        return
    for rule in (invariants.one_owner, invariants.planned_by_owner, invariants.nothing_after_giving_back):
        list(rule(run.events))
    for found in invariants.histories(run.events).values():
        for rule in (invariants.committed_as_planned, invariants.never_backward, invariants.one_after_another):
            list(rule(found))


def _words(*words: str) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in words)


HEADER_WORDS = _words(
    *(f"\x1e{prefix}{name}\t" for prefix in error_headers.PREFIXES for name in (
        "topic", "partition", "offset", "original-topic", "original-partition", "original-offset", "attempts",
        "original-timestamp", "original-timestamp-type", "exception.class.name", "exception-fqcn",
    )), "٣", "²", "CreateTime",
)  # fmt: skip
OPTION_WORDS = _words(
    *(f"\x1e{name}=" for name in sorted(OPTION_NAMES)), "earliest", "latest", '{"orders": {"0": 1}}', "(?i)", "(a+)+$",
    "a{99999999999}", "(" * 300, "http://u:hunter2@h:1", "hunter2", "SASL_SSL", "SCRAM-SHA-512", "x" * 300, "\0", "٣",
)  # fmt: skip
NOTE_WORDS = _words("reader", "generation", "batch", "without", "adopted", "left_by", "since", READER, '"since":{"a":[')
EVENT_WORDS = _words(
    "time_ms", "event", "group", "member", "generation", "partitions", "ranges", "offsets", "positions", "assigned",
    "revoked", "planned", "committed", "moved", "stopped", "from", "to", "why", "\n",
)  # fmt: skip
JAAS_WORDS = (
    *_words(*KNOWN_OPTIONS, "required", '"', "'", ";", "=", "\\", "//", "/*", "*/", '="hunter2"', "'hunter2", "\\777"),
)

TARGETS = {
    "decoder": Target(twins.decoded, (), twins.generate, twins.change, share=6, sanitized=True),
    "frames": Target(twins.framed, (), lambda rng: twins.generate(rng)[5:], mutate.mutate_log, share=2, sanitized=True),
    "encoder": Target(
        encoders.encoded, (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"), encoders.generate, share=3, sanitized=True
    ),
    "avro": Target(avro_values.decoded, (), avro_values.generate, avro_values.change, share=3, sanitized=True),
    "avro-schema": Target(avro_values.parsed, (*avro_values.WORDS, *JSON_WORDS)),
    "protobuf": Target(
        protobuf_values.decoded, (), protobuf_values.generate, protobuf_values.change, share=3, sanitized=True
    ),
    "proto-text": Target(protobuf_values.parsed, protobuf_values.WORDS),
    "json": Target(json_values.decoded, (), json_values.generate, json_values.change, share=3, sanitized=True),
    "ddl": Target(json_values.parsed, (*json_values.DDL_WORDS, *JSON_WORDS)),
    "written": Target(
        written_values.written, (), written_values.generate, written_values.change, share=3, sanitized=True
    ),
    "large": Target(
        large.run,
        cases=tuple(map(str.encode, large.CASES)),
        cpu_s=large.CPU_S,
        memory_mb=large.MEMORY_MB,
        sanitized=True,
    ),
    "fetch-response": Target(_fetch_response),
    "produce-response": Target(_produce_response),
    "error-headers": Target(_error_headers, (*HEADER_WORDS, *NUMBERS)),
    "jaas": Target(_jaas, JAAS_WORDS),
    "offsets-topic": Target(_offsets_topic),
    "subscription": Target(_subscription),
    "commit-metadata": Target(_commit_metadata, (*NOTE_WORDS, *JSON_WORDS)),
    "options": Target(_options, (*OPTION_WORDS, *JSON_WORDS), share=2),
    "offsets": Target(_offsets_json, (*_words("@group", "reader", "from", "epochs", "left", "topics"), *JSON_WORDS)),
    "properties": Target(_properties, (*_words("\\", "\\\n", "\\u00", "=", ":", "#", "!", "\r\n", "\x85", "sasl."),)),
    "events": Target(_events, (*EVENT_WORDS, *JSON_WORDS)),
}
"""By name, which is that of its folder in corpus/."""
