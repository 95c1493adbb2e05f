"""Logs of a real broker (4.4.0), written by Java's producer; see capture.py."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from decoding import decode

from spark_kafka_group.executor.decode import Decoder

CAPTURED = Path(__file__).parent / "captured"
PRODUCED = json.loads((CAPTURED / "captured.json").read_text())


def raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("topic", ["none", "gzip", "snappy", "lz4", "zstd", "append-time", "transactions"])
def test_what_java_produced_is_read_back(twin: Decoder, topic: str) -> None:
    expected = [
        {
            "key": raw(key),
            "value": raw(value),
            "topic": topic,
            "partition": 3,
            "offset": offset,
            "timestamp": timestamp_ms * 1000,
            "timestampType": int(topic == "append-time"),
            "headers": [{"key": k, "value": raw(v)} for k, v in headers] or None,
        }
        for name, offset, timestamp_ms, key, value, headers in PRODUCED
        if name == topic
    ]
    data = (CAPTURED / f"{topic}.bin").read_bytes()
    outcome = decode(twin, data, topic=topic)
    assert outcome.error is None
    assert outcome.rows == expected
    assert outcome.stopped_at == len(data) == twin.scan(topic, 3, data)[0]


def test_transaction_markers_take_offsets_and_are_not_shown(twin: Decoder) -> None:
    data = (CAPTURED / "transactions.bin").read_bytes()
    assert decode(twin, data).offsets == [*range(10), *range(11, 21), *range(22, 32)]
    assert twin.scan("transactions", 0, data) == (len(data), 33)
