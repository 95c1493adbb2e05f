"""A day in a table, as Debezium's connector for PostgreSQL tells it in a topic, and what the table has at the end."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from support import Record
from support.registries import TestRegistry
from support.written_values import debezium_avro, debezium_change, debezium_schema

FIELDS = {
    "id": ("int64", ...),
    "customer": ("int64", ...),
    "amount": ("string", None),
    "state": ("string", None),
    "at": ("string", ...),
}
"""Columns of the table, as :func:`debezium_avro` takes them."""
MIDNIGHT_MS, DAY_MS = 1_767_312_000_000, 86_400_000

Row = dict[str, Any]


class Event(NamedTuple):
    """A key with a change; with None, a tombstone."""

    partition: int
    key: Row | None
    change: Row | None


class DayOfChanges:
    """`count` events about `keys` keys, and some of them twice.

    - Transactions overlap: positions in the log do not rise from event to event, not even for one key.
    - Debezium crashes three times, and sends its last events again.
    - The topic has two partitions, and from noon on three, so keys move.
    - Truncates have no key, and go to any partition. So do heartbeats.
    """

    def __init__(self, seed: int, count: int, keys: int, truncates: bool = True) -> None:
        self._random = Random(seed)
        self._count, self._keys = count, keys
        self._truncates = [count // 3, count * 2 // 3] if truncates else []
        self.rows: dict[int, Row] = {}
        """The table, as it is after the events that were taken."""
        self._position, self._committed, self._told = 24_000_000, 0, 0

    def events(self) -> Iterator[Event]:
        """All events, in the order in which Debezium sends them."""
        crashes = {self._count * quarter // 4 for quarter in (1, 2, 3)}
        last: list[Event] = []
        most = self._count // 20
        for event in self._once():
            self._told += 1
            last.append(event)
            yield event
            if self._told in crashes:
                for again in last[-self._random.randint(most // 2, most) :]:
                    yield again._replace(partition=self._partition(again.key and again.key.get("id")))
            if len(last) > 2 * most:
                del last[:most]

    def table(self) -> dict[int, tuple[Any, ...]]:
        """The rows at the end by their keys; times in microseconds."""
        return {
            key: (
                row["customer"],
                row["amount"] and Decimal(row["amount"]),
                row["state"],
                micros(datetime.fromisoformat(row["at"])),
            )
            for key, row in self.rows.items()
        }

    def _once(self) -> Iterator[Event]:
        for key in self._random.sample(range(self._keys), self._keys // 10):
            self.rows[key] = self._row()
            yield self._event("r", key, self.rows[key], self._position)
        while self._told < self._count:
            if self._truncates and self._told >= self._truncates[0]:
                del self._truncates[0]
                yield from self._commit([self._write("t", None)])
            elif self._random.random() < 0.01:
                yield from self._insert_that_waits()
            else:
                yield from self._two_transactions()
            if self._random.random() < 0.001:
                yield Event(self._partition(None), {"serverName": "shop"}, {"ts_ms": self._now_ms()})

    def _two_transactions(self) -> Iterator[Event]:
        """Two transactions write in turn, and each holds the locks of its rows. Either may commit first."""
        both: list[list[tuple[int, str, int | None, Row | None]]] = [[], []]
        for number, key in enumerate(self._random.sample(range(self._keys), self._random.randint(2, 5))):
            mine = both[number % 2]
            if key not in self.rows:
                mine.append(self._write("c", key))
            elif self._random.random() < 0.2:
                mine.append(self._write("d", key))
            else:
                mine += [self._write("u", key) for _ in range(self._random.randint(1, 2))]
        self._random.shuffle(both)
        for transaction in both:
            yield from self._commit(transaction)

    def _insert_that_waits(self) -> Iterator[Event]:
        """An insert writes its row, and then waits for the transaction that has this key, which deletes it."""
        key = self._random.randrange(self._keys)
        first = [self._write("u" if key in self.rows else "c", key)]
        second = [self._write("c", key)]
        first.append(self._write("d", key))
        yield from self._commit(first)
        yield from self._commit(second)

    def _write(self, op: str, key: int | None) -> tuple[int, str, int | None, Row | None]:
        self._position += self._random.randrange(8, 200, 8)
        return self._position, op, key, None if op in "dt" else self._row()

    def _commit(self, transaction: list[tuple[int, str, int | None, Row | None]]) -> Iterator[Event]:
        for position, op, key, row in transaction:
            yield self._event(op, key, row, position)
            if key is None:
                self.rows.clear()
            elif row is None:
                del self.rows[key]
                yield Event(self._partition(key), {"id": key}, None)
            else:
                self.rows[key] = row
        self._position += 48
        self._committed = self._position

    def _event(self, op: str, key: int | None, row: Row | None, position: int) -> Event:
        before = None if op in "rct" else {"id": key} | self.rows[key]
        after = None if row is None else {"id": key} | row
        sequence = json.dumps([str(self._committed) if self._committed else None, str(position)])
        change = debezium_change("shop", "public.orders", before, after, self._now_ms(), op, sequence)
        return Event(self._partition(key), None if key is None else {"id": key}, change)

    def _row(self) -> Row:
        rolled = self._random.random
        return {
            "customer": int(rolled() * 1000),
            "amount": f"{rolled() * 10_000:.2f}" if rolled() < 0.9 else None,
            "state": self._random.choice(("new", "paid", "sent", None)),
            "at": f"2026-01-02T{int(rolled() * 24):02}:{int(rolled() * 60):02}:07.{int(rolled() * 10**6):06}Z",
        }

    def _now_ms(self) -> int:
        return MIDNIGHT_MS + self._told * DAY_MS // self._count

    def _partition(self, key: int | None) -> int:
        partitions = 2 if self._told < self._count // 2 else 3
        return self._random.randrange(partitions) if key is None else zlib.crc32(b"%d" % key) % partitions


# The forms in which the events may come


def as_json(day: DayOfChanges) -> Iterator[Record]:
    """As JsonConverter writes them with ``schemas.enable=false``."""
    for partition, key, change in day.events():
        yield Record(partition, key and _text(key), change and _text(change))


def as_json_with_schemas(day: DayOfChanges) -> Iterator[Record]:
    """As JsonConverter writes them by default: each key and each value has its schema."""
    key_schema = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "optional": False}
    before_key, before_value = (
        b'{"schema":%b,"payload":' % _text(schema) for schema in (key_schema, debezium_schema(FIELDS))
    )
    for record in as_json(day):
        key, value = record.key and before_key + record.key + b"}", record.value and before_value + record.value + b"}"
        yield record._replace(key=key, value=value)


def as_flattened_json(day: DayOfChanges) -> Iterator[Record]:
    """As ExtractNewRecordState leaves them, by the options that the page has: no tombstones, and no truncates."""
    for partition, key, change in day.events():
        if change is None or change.get("op") == "t":
            continue
        if "op" not in change:
            yield Record(partition, _text(key), _text(change))
            continue
        row = change["after"] or change["before"]
        more = {"__deleted": str(change["op"] == "d").lower(), "__source_sequence": change["source"]["sequence"]}
        yield Record(partition, _text(key), _text(row | more))


def as_avro(day: DayOfChanges, topic: str, registry: TestRegistry) -> Iterator[Record]:
    """As AvroConverter writes them. The topic of heartbeats has a schema of its own, so there are none."""
    import fastavro

    key_schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    schemas = [key_schema, debezium_avro("shop", "public.orders", FIELDS)]
    parsed = [fastavro.parse_schema(schema) for schema in schemas]
    ids = [registry.register(f"{topic}-{part}", schema) for part, schema in zip(("key", "value"), schemas, strict=True)]

    def written(part: int, datum: Row | None) -> bytes | None:
        if datum is None:
            return None
        buffer = io.BytesIO(b"\0" + ids[part].to_bytes(4))
        buffer.seek(5)
        fastavro.schemaless_writer(buffer, parsed[part], datum)
        return buffer.getvalue()

    for partition, key, change in day.events():
        if change is None or "op" in change:
            yield Record(partition, written(0, key), written(1, change))


def micros(at: datetime) -> int:
    """Microseconds since the epoch."""
    return int(at.replace(microsecond=0).timestamp()) * 10**6 + at.microsecond


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
