"""Changes bytes: anywhere, in the fields of a record batch, or below its compression with the CRC made right."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

import writer  # first: it makes record_bytes known
from record_bytes import batch_of, message, with_right_crcs

from spark_kafka_group.executor.decode import codecs
from spark_kafka_group.executor.decode.problems import MalformedError

LONGEST = 1 << 16
INTERESTING = (-(2**31), -(2**15), -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 48, 49, 127, 128, 255, 2**15, 2**31 - 1)
LONG = (-(2**63), -1, 0, 2**31, 2**62, 2**63 - 2, 2**63 - 1)
FIELDS = {0: ">q", 8: ">i", 16: ">b", 21: ">h", 23: ">i", 27: ">q", 35: ">q", 43: ">q", 51: ">h", 57: ">i"}
MOST_UNPACKED = 1 << 15


def mutate_bytes(rng: Random, data: bytes, words: Sequence[bytes] = (), other: bytes = b"") -> bytes:
    """One to four changes. `words` are put in as they are, and pieces of `other`."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(rng, out, words, other)
    return bytes(out[:LONGEST])


def _change(rng: Random, out: bytearray, words: Sequence[bytes], other: bytes) -> None:
    at, size = rng.randint(0, len(out)), rng.choice((1, 1, 2, 4, 8, 30))
    kind = rng.randrange(11 if words else 9)
    if kind == 0 and at < len(out):
        out[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(out):
        out[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind == 2:
        del out[at : at + size]
    elif kind == 3:
        out[at:at] = rng.randbytes(size)
    elif kind == 4:
        out[at : at + 4] = struct.pack(">i", rng.choice((*INTERESTING, len(out), len(out) - at)) & 2**31 - 1)
    elif kind == 5:
        out[at : at + rng.choice((0, 1, 5))] = b"\xff" * rng.randint(1, 10) + bytes([rng.randrange(128)])
    elif kind == 6:
        piece = bytes(out[at : at + rng.choice((1, 4, 16, 64))])
        out[at:at] = piece * rng.choice((1, 2, 20))
    elif kind == 7:
        begin = rng.randint(0, len(other))
        out[at : at + rng.choice((0, size))] = other[begin : begin + rng.choice((8, 64, len(other)))]
    elif kind == 8:
        del out[at:]
    elif words:
        out[at : at + rng.choice((0, 0, size))] = rng.choice(words) * rng.choice((1, 1, 1, 1, 3))


def mutate_log(rng: Random, data: bytes, other: bytes = b"") -> bytes:
    """One change at one level of a log; most are such that the CRCs are right afterwards."""
    level = rng.randrange(8)
    if level == 0:
        return mutate_bytes(rng, data, other=other)
    if level == 1:
        return with_right_crcs(mutate_bytes(rng, data, other=other))
    parts = frames(data)
    if not parts:
        return writer.log(rng)
    at = rng.randrange(len(parts))
    if level == 2:
        parts[at : at + rng.choice((0, 1))] = rng.choices(
            [*parts, *frames(other), writer.log(rng)], k=rng.randint(0, 2)
        )
    elif level <= 4:
        parts[at] = _with_field(rng, parts[at])
    else:
        parts[at] = _with_payload(rng, parts[at])
    return b"".join(parts)[:LONGEST]


def frames(data: bytes) -> list[bytes]:
    """A log, cut where one record batch ends and another begins, as far as lengths can be believed."""
    found, position = [], 0
    while len(data) - position >= 17:
        (length,) = struct.unpack_from(">i", data, position + 8)
        if not 14 <= length <= len(data) - position - 12:
            break
        found.append(data[position : position + 12 + length])
        position += 12 + length
    return [*found, data[position:]] if position < len(data) else found


def _with_field(rng: Random, frame: bytes) -> bytes:
    """Another number in the header of a record batch."""
    if len(frame) < 61:
        return with_right_crcs(mutate_bytes(rng, frame))
    out = bytearray(frame)
    field, code = rng.choice(list(FIELDS.items()))
    (before,) = struct.unpack_from(code, out, field)
    bits = 8 * struct.calcsize(code)
    value = rng.choice((before + 1, before - 1, before ^ 1 << rng.randrange(6), *INTERESTING, *LONG))
    value = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    struct.pack_into(code, out, field, value)
    return with_right_crcs(bytes(out)) if rng.random() < 0.9 else bytes(out)


def _with_payload(rng: Random, frame: bytes) -> bytes:
    """Another payload below compression: changed, then packed with the same codec or another one."""
    magic = frame[16] if len(frame) > 16 else -1
    if magic == 2 and len(frame) >= 61:
        return _batch_with_payload(rng, frame)
    if magic in (0, 1) and len(frame) >= 12 + (14, 22)[magic]:
        return _message_with_payload(rng, frame, magic)
    return with_right_crcs(mutate_bytes(rng, frame))


def _batch_with_payload(rng: Random, frame: bytes) -> bytes:
    attributes, last_delta, base_timestamp, max_timestamp, producer, _, _, count = struct.unpack_from(
        ">hiqqqhii", frame, 21
    )
    payload = _changed(rng, _unpacked(attributes & 7, frame[61:]))
    codec = rng.choice((attributes & 7, attributes & 7, 0, 1, 2, 3, 4))
    codec = codec if codec <= 4 else 0
    count = rng.choice((count, count, count, count + 1, max(0, count - 1)))
    return batch_of(
        _packed(rng, codec, payload), min(count, 2**31 - 1), base_offset=struct.unpack_from(">q", frame)[0],
        last_delta=last_delta, attributes=attributes & ~7 | codec, base_timestamp=base_timestamp,
        max_timestamp=max_timestamp, producer_id=producer,
    )  # fmt: skip


def _message_with_payload(rng: Random, frame: bytes, magic: int) -> bytes:
    (offset,) = struct.unpack_from(">q", frame)
    attributes = struct.unpack_from(">b", frame, 17)[0]
    codec, value_at = attributes & 7, 26 + 8 * magic  # behind a null key, as wrappers have it
    value = frame[value_at:] if codec in (1, 2, 3) else frame
    inner = _changed(rng, _unpacked(codec, value))
    inner = with_right_crcs(inner) if rng.random() < 0.8 else inner
    codec = rng.choice((1, 2, 3))
    return message(magic, offset, None, _packed(rng, codec, inner), attributes=attributes & ~7 | codec)


def _changed(rng: Random, payload: bytes) -> bytes:
    if rng.random() < 0.1:  # what compresses well and is much once it is unpacked
        return (payload * (MOST_UNPACKED // max(1, len(payload)) + 2))[: rng.choice((4096, MOST_UNPACKED + 100))]
    return mutate_bytes(rng, payload)


def _unpacked(codec: int, data: bytes) -> bytes:
    if codec not in codecs.NAMES:
        return data
    try:
        return bytes(codecs.unpack(codec, memoryview(data), MOST_UNPACKED))
    except MalformedError:
        return data


def _packed(rng: Random, codec: int, payload: bytes) -> bytes:
    out = writer.packed(rng, codec, payload)
    return mutate_bytes(rng, out) if rng.random() < 0.2 else out
