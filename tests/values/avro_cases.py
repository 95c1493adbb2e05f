"""Random Avro schemas, schemas that they have become, and values of them, written without any library."""

from __future__ import annotations

import copy
import json
import struct
from dataclasses import dataclass
from random import Random
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "string", "logicalType": "uuid"},
    {"type": "long", "spark.sql.catalyst.type": "interval day to second"},
    {"type": "bytes", "logicalType": "unknown"},
)
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "bytes": ("string",),
    "string": ("bytes",),
}
LONGS = (0, 1, -1, 63, 64, -65, 8191, 1 << 20, (1 << 31) - 1, -(1 << 31), (1 << 53) + 1, (1 << 63) - 1, -(1 << 63))
TEXTS = ("", "a", "abcdefgh", "grüße", "日本", "\U0001f600x", "x" * 40)
Schema = Any


@dataclass(frozen=True)
class Case:
    """A writer's schema, a reader's, and values of the first."""

    writer: str
    reader: str
    values: tuple[bytes, ...]


class Making:
    """Makes schemas: `simple` ones without logical types and large unions; `empty` ones, as arrays of nulls."""

    def __init__(self, rng: Random, simple: bool = False, empty: bool = True) -> None:
        self.rng, self.simple, self.empty, self.named = rng, simple, empty, 0

    def name(self, letter: str) -> str:
        self.named += 1
        return f"{letter}{self.named}"

    def schema(self, depth: int) -> Schema:
        kinds = ["primitive"] * 6 + ([] if self.simple else ["logical"] * 3)
        if depth > 0:
            kinds += ["record", "array", "map", "nullable", "nullable", "enum", "fixed"] + (
                [] if self.simple else ["union"]
            )
        return getattr(self, self.rng.choice(kinds))(depth - 1)

    def primitive(self, depth: int) -> Schema:
        return self.rng.choice(PRIMITIVES if self.empty else PRIMITIVES[1:])

    def logical(self, depth: int) -> Schema:
        if self.rng.random() < 0.2:
            return {
                "type": "fixed",
                "name": self.name("F"),
                "size": 8,
                "logicalType": "decimal",
                "precision": 17,
                "scale": 3,
            }
        return dict(self.rng.choice(LOGICAL))

    def record(self, depth: int) -> Schema:
        fields = [
            {"name": self.name("f"), "type": self.schema(depth)}
            for _ in range(self.rng.randint(0 if self.empty else 1, 4))
        ]
        made = {"type": "record", "name": self.name("R"), "fields": fields}
        if self.rng.random() < 0.2:
            made["namespace"] = "a.b"
        return made

    def array(self, depth: int) -> Schema:
        return {"type": "array", "items": self.schema(depth)}

    def map(self, depth: int) -> Schema:
        return {"type": "map", "values": self.schema(depth)}

    def nullable(self, depth: int) -> Schema:
        while (inner := self.schema(depth)) == "null" or isinstance(inner, list):
            pass
        return self.rng.sample(["null", inner], 2)

    def union(self, depth: int) -> Schema:
        found: dict[str, Schema] = {}
        for _ in range(self.rng.randint(1, 4)):
            branch = self.schema(depth)
            if not isinstance(branch, list):
                found[kind_of(branch)] = branch
        return list(found.values()) or ["int", "string"]

    def enum(self, depth: int) -> Schema:
        symbols = self.rng.sample("ABCDEFG", self.rng.randint(1, 5))
        return {"type": "enum", "name": self.name("E"), "symbols": symbols}

    def fixed(self, depth: int) -> Schema:
        return {
            "type": "fixed",
            "name": self.name("F"),
            "size": self.rng.choice((0 if self.empty else 2, 1, 3, 12, 16)),
        }

    def root(self) -> Schema:
        """A record with an int in front: where that is null in Spark the value was malformed."""
        fields = [{"name": "mark", "type": "int"}]
        fields += [{"name": self.name("f"), "type": self.schema(3)} for _ in range(self.rng.randint(1, 4))]
        return {"type": "record", "name": "Root", "fields": fields}

    def evolved(self, schema: Schema) -> Schema:
        """What a schema may have become; often it can be read, not always."""
        rng = self.rng
        if isinstance(schema, list):
            branches = [self.evolved(branch) for branch in schema]
            if rng.random() < 0.3:
                rng.shuffle(branches)
            if self.empty and rng.random() < 0.1 and len(branches) > 1:
                branches.pop()
            found = {kind_of(branch): branch for branch in branches if not isinstance(branch, list)}
            return next(iter(found.values())) if len(found) == 1 and rng.random() < 0.5 else list(found.values())
        if isinstance(schema, str):
            if rng.random() < 0.15 and schema in PROMOTED:
                schema = rng.choice(PROMOTED[schema])
            return self.maybe_nullable(schema)
        made = copy.deepcopy(schema)
        kind = made["type"]
        if kind == "record":
            made["fields"] = self.evolved_fields(made["fields"])
        elif kind == "array":
            made["items"] = self.evolved(made["items"])
        elif kind == "map":
            made["values"] = self.evolved(made["values"])
        elif kind == "enum":
            if rng.random() < 0.4:
                rng.shuffle(made["symbols"])
            if rng.random() < 0.3:
                made["symbols"] = [*made["symbols"][1:], "Z"]
                if rng.random() < 0.7:
                    made["default"] = "Z"
        elif kind == "fixed" and rng.random() < 0.05:
            made["size"] += 1
        if kind in ("record", "enum", "fixed") and rng.random() < 0.15:
            made["aliases"] = [made["name"] if rng.random() < 0.9 else "Nobody"]
            made["name"] = self.name("N")
        return self.maybe_nullable(made)

    def maybe_nullable(self, schema: Schema) -> Schema:
        return ["null", schema] if self.rng.random() < 0.1 and schema != "null" else schema

    def evolved_fields(self, fields: list[Schema]) -> list[Schema]:
        rng, made = self.rng, []
        for field in fields:
            chance = rng.random()
            if chance < 0.1 and field["name"] != "mark":
                continue
            evolved = field | {"type": self.evolved(field["type"]) if field["name"] != "mark" else "int"}
            if 0.1 <= chance < 0.2 and field["name"] != "mark":
                evolved = evolved | {"name": self.name("g"), "aliases": [field["name"]]}
            made.append(evolved)
        if not made and not self.empty:
            made.append(fields[0])
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            kind, default = self.added()
            made.append({"name": self.name("h"), "type": kind, "default": default})
        if rng.random() < 0.2:
            rng.shuffle(made)
        return made

    def added(self) -> tuple[Schema, Any]:
        inner = {"type": "record", "name": self.name("R"), "fields": [{"name": "x", "type": "int", "default": 7}]}
        return self.rng.choice(
            (
                ("int", -5),
                ("string", "grüße"),
                ("double", 1.5),
                ("boolean", True),
                (["null", "string"], None),
                ({"type": "array", "items": "int"}, [1, 2, 3]),
                ({"type": "map", "values": "long"}, {"k": 1 << 40}),
                ("bytes", "\u00ff\u0001"),
                (["string", "null"], "x"),
                (inner, {}),
                ({"type": "array", "items": "int"}, []),
                ({"type": "enum", "name": self.name("E"), "symbols": ["A", "B"]}, "B"),
            )
        )


def kind_of(schema: Schema) -> str:
    """What a union may have once."""
    if isinstance(schema, str):
        return schema
    return schema["name"] if "name" in schema else schema["type"]


def varint(number: int) -> bytes:
    rest, data = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1), bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*data, rest])


def value_of(rng: Random, schema: Schema, good: bool = True, depth: int = 0) -> bytes:
    """A value, in the bytes of the specification; not `good` may not fit its logical type."""
    if isinstance(schema, list):
        i = rng.randrange(len(schema))
        return varint(i) + value_of(rng, schema[i], good, depth)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(value_of(rng, field["type"], good, depth + 1) for field in schema["fields"])
    if kind in ("array", "map"):
        return _blocks(rng, schema, good, depth)
    if kind == "enum":
        return varint(rng.randrange(len(schema["symbols"])))
    if isinstance(schema, dict) and "logicalType" in schema:
        return _logical(rng, schema, good)
    if kind == "fixed":
        return rng.randbytes(schema["size"])
    return _primitive(rng, kind)


def _blocks(rng: Random, schema: Schema, good: bool, depth: int) -> bytes:
    data = b""
    for _ in range(rng.choice((0, 1, 1, 2))):
        count = rng.choice((1, 2, 3, 20 if depth < 2 else 1))
        items = b""
        for i in range(count):
            if schema["type"] == "map":
                key = f"k{i if rng.random() < 0.8 else 0}".encode()
                items += varint(len(key)) + key
            items += value_of(rng, schema.get("items", schema.get("values")), good, depth + 1)
        data += varint(count) if rng.random() < 0.7 else varint(-count) + varint(len(items))
        data += items
    return data + b"\0"


def _logical(rng: Random, schema: Schema, good: bool) -> bytes:
    kind, logical = schema["type"], schema["logicalType"]
    if logical == "decimal":
        most = 10 ** (schema["precision"] if good else schema["precision"] + 2) - 1
        number = rng.choice((0, 1, -1, most, -most, rng.randint(-most, most)))
        if kind == "fixed":
            return number.to_bytes(schema["size"] + 2, "big", signed=True)[2:]
        data = number.to_bytes(number.bit_length() // 8 + 1 + rng.choice((0, 0, 0, 3)), "big", signed=True)
        return varint(len(data)) + data
    if kind in ("int", "long") and good:
        most = {"date": 40_000, "time-millis": 86_400_000, "time-micros": 86_400_000_000}.get(logical, 1 << 41)
        return varint(rng.randrange(most))
    return _primitive(rng, kind)


def _primitive(rng: Random, kind: str) -> bytes:
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes([rng.randrange(2)])
    if kind == "int":
        return varint(rng.choice([n for n in LONGS if -(1 << 31) <= n < 1 << 31] + [rng.randrange(1 << 31)]))
    if kind == "long":
        return varint(rng.choice((*LONGS, rng.randrange(-(1 << 62), 1 << 62))))
    if kind == "float":
        return struct.pack("<f", rng.choice((0.0, -0.0, 1.5, -2e30, float("inf"), float("nan"), rng.random())))
    if kind == "double":
        return struct.pack("<d", rng.choice((0.0, -0.0, 1.5, -2e300, float("-inf"), float("nan"), rng.random())))
    data = rng.choice(TEXTS).encode() if kind == "string" else rng.randbytes(rng.choice((0, 1, 5, 20)))
    return varint(len(data)) + data


def damaged(rng: Random, value: bytes) -> bytes:
    """A value with some bytes changed, left out or put in."""
    data = bytearray(value)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        chance = rng.randrange(5)
        if chance == 0:
            del data[at:]
        elif chance == 1:
            data[at:at] = rng.choice(
                (b"\x80", b"\xff\xff\xff\xff\x0f", b"\0", b"\xed\xa0\x80", b"\xc3", rng.randbytes(2))
            )
        elif at < len(data):
            data[at] = rng.choice((data[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0xFF, 0))
    return bytes(data)


def case_of(rng: Random, values: int = 6, simple: bool = False, good: bool = True, empty: bool = True) -> Case:
    """A random case: the values are sound, or damaged too."""
    making = Making(rng, simple, empty)
    writer = making.root()
    reader = making.evolved(writer) if rng.random() < 0.7 else writer
    if isinstance(reader, list):
        reader = reader[1]
    data = [value_of(rng, writer, good) for _ in range(values)]
    if not good:
        data = [damaged(rng, value) if rng.random() < 0.8 else value for value in data]
    return Case(json.dumps(writer), json.dumps(reader), tuple(data))
