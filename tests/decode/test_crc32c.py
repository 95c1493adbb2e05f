"""CRC-32C: one number, three ways to get at it."""

from __future__ import annotations

import random

import pytest

from spark_kafka_group.executor.decode import _decode_c, _decode_py

# RFC 3720, B.4
KNOWN = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "crc"), KNOWN)
def test_known_values(data: bytes, crc: int) -> None:
    assert _decode_py.crc32c(data) == _decode_c.crc32c(data) == _decode_c.crc32c(data, False) == crc


def test_instruction_and_tables_agree_at_every_length_around_their_steps() -> None:
    data = random.Random(1).randbytes(40_000)
    sizes = [
        *range(70),
        *range(760, 780),
        *range(1530, 1545),
        *range(12_280, 12_300),
        *range(24_570, 24_590),
        39_990,
    ]
    for size in sizes:
        for skew in (0, 1, 7):
            part = memoryview(data)[skew : skew + size]
            assert _decode_c.crc32c(part) == _decode_c.crc32c(part, False)
    assert _decode_py.crc32c(data) == _decode_c.crc32c(data)
