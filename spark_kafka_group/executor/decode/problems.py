"""What both twins share beside codecs and numbers: error texts, keys of headers as text, the topic column."""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Sequence

import pyarrow as pa

from spark_kafka_group.errors import CorruptRecordError, ReadError
from spark_kafka_group.executor.decode.contract import BUILDER_LIMIT, HEADER_COST

# Problems of a record of message format v2; the compiled twin has the same numbers.
SHORT, OVERLONG, NEGATIVE, LEFTOVER, OFFSET_DELTA, TOO_MANY = range(1, 7)

_RECORD = {
    SHORT: "is cut short: a length in it points past its end",
    OVERLONG: "has a variable-length number that is too long",
    NEGATIVE: "has a negative length",
    LEFTOVER: "has bytes left over at its end",
    OFFSET_DELTA: "has an offset outside the batch",
}


class MalformedError(Exception):
    """Raised, and caught, inside this package: a problem whose offset the caller knows."""


def record(base_offset: int, index: int, code: int) -> str:
    return f"record {index} of the batch at offset {base_offset} {_RECORD[code]}"


def record_headers(base_offset: int, index: int, limit: int) -> str:
    return (
        f"record {index} of the batch at offset {base_offset} has headers of more than {limit} bytes, where each counts"
        f" as {HEADER_COST} bytes beside its key and value. kafka.fetch.max.bytes bounds that: raise it if the record "
        f"is genuine"
    )


def trailing(base_offset: int, count: int, left: int) -> str:
    return f"the batch at offset {base_offset} has {left} bytes after the last of its {count} records"


def negative_offset(base_offset: int) -> str:
    return f"a batch gives its offset as {base_offset}"


def batch_length(base_offset: int, length: int) -> str:
    return f"the batch at offset {base_offset} gives its length as {length}, which no batch can have"


def behind(base_offset: int, following: int) -> str:
    return f"the batch before the one at offset {base_offset} ends at offset {following - 1}"


def ahead(base_offset: int, after: int) -> str:
    return f"the batch at offset {base_offset} is before one at offset {after}"


def magic(base_offset: int, value: int) -> str:
    return f"the batch at offset {base_offset} has magic {value}, and Kafka's message formats are 0, 1 and 2"


def last_offset_delta(base_offset: int, value: int) -> str:
    return f"the batch at offset {base_offset} gives its last offset as {base_offset} + {value}"


def last_offset(base_offset: int) -> str:
    return f"a message gives its offset as {base_offset}, after which there is none"


def wrong_crc(base_offset: int, stored: int, computed: int) -> str:
    return (
        f"the batch at offset {base_offset} is damaged: its CRC is {computed:#010x} and its header says "
        f"{stored:#010x}. Set kafka.check.crcs=false to read the rest of it"
    )


def unknown_codec(base_offset: int, codec: int) -> str:
    return f"the batch at offset {base_offset} is compressed with codec {codec}, which Kafka does not have there"


def codec_failed(base_offset: int, problem: str) -> str:
    return f"the batch at offset {base_offset} {problem}"


def record_count(base_offset: int, count: int) -> str:
    return f"the batch at offset {base_offset} gives its number of records as {count}"


def marker_size(base_offset: int, size: int) -> str:
    count = "none" if size < 0 else f"one of {size} bytes"
    return f"the control batch at offset {base_offset} must have a key of at least 4 bytes, and has {count}"


def marker_version(base_offset: int, version: int) -> str:
    return f"the control batch at offset {base_offset} has a key of version {version}, which Kafka does not have"


def timestamp(topic: str, partition: int, offset: int, timestamp_ms: int) -> ReadError:
    return ReadError(
        topic,
        partition,
        offset,
        f"its timestamp does not fit Spark's TIMESTAMP, which is microseconds: {timestamp_ms} ms. Set "
        f"onCorruptRecord=skip to read such a timestamp as null, or leave the column timestamp out with the option "
        f"columns",
    )


def builder_full(topic: str, partition: int, offset: int) -> ReadError:
    return ReadError(
        topic,
        partition,
        offset,
        f"its rows would make an Arrow batch of more than {BUILDER_LIMIT} bytes. Lower kafka.fetch.max.bytes",
    )


def halfway(topic: str, partition: int, position: int) -> ValueError:
    return ValueError(f"the builder is halfway through the record batch at byte {position} of {topic}-{partition}")


def unusable() -> RuntimeError:
    return RuntimeError("an error has left this builder with part of a row: make another one")


def corrupt(topic: str, partition: int, offset: int, problem: str) -> CorruptRecordError:
    return CorruptRecordError(topic, partition, offset, problem)


LARGE = 1 << 16  # bytes of a key up to which it is converted at once; bytes that are not UTF-8 get three times as long


def utf8(key: bytes, limit: int) -> bytes:
    """A header's key with U+FFFD for bytes that are not UTF-8; only its beginning, once beyond `limit` bytes."""
    if len(key) <= LARGE:
        return key.decode("utf-8", "replace").encode()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    made = bytearray()
    for at in range(0, len(key), LARGE):
        made += decoder.decode(key[at : at + LARGE], at + LARGE >= len(key)).encode()
        if len(made) > limit:
            break
    return bytes(made)


class TopicColumn:
    """Makes topic columns; nearly every batch is of one topic, whose repeated name is kept and sliced."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._repeated: pa.Array = pa.nulls(0, pa.string())

    def build(self, runs: Sequence[tuple[str, int]]) -> pa.Array:
        """An array of each run's topic, as often as its rows."""
        merged: list[tuple[str, int]] = []
        for topic, rows in runs:
            if merged and merged[-1][0] == topic:
                merged[-1] = topic, merged[-1][1] + rows
            elif rows:
                merged.append((topic, rows))
        if not merged:
            return self._repeated.slice(0, 0)
        if len(merged) > 1:
            return pa.concat_arrays([_repeated(topic, rows) for topic, rows in merged])
        topic, rows = merged[0]
        if topic != self._topic or len(self._repeated) < rows:
            self._topic, self._repeated = topic, _repeated(topic, rows + rows // 8)
        return self._repeated.slice(0, rows)


def _repeated(topic: str, rows: int) -> pa.Array:
    """The same string `rows` times, from plain buffers: a value that pyarrow converts makes it import pandas."""
    text = topic.encode()
    ends = array("i", range(0, (rows + 1) * len(text), len(text)))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)])
