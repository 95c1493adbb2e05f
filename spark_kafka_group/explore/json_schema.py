"""The schema of a topic's JSON, guessed from its newest records."""

from __future__ import annotations

import functools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.explore.decoded import json_objects
from spark_kafka_group.explore.looking import newest_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SAMPLED = 1000
Path = tuple[str, ...]  # names of a field's parents and its own


def schema(spark: SparkSession, options: Mapping[str, Any], topic: str, sampled: int = SAMPLED) -> StructType:
    """The schema that ``spark.read.json`` finds in the newest values of a topic, for ``from_json``.

    docs/batch-and-exploring.md says which values it leaves out, and of fields whose names differ in case only which it
    has. A field ``_corrupt_record`` is left out if it is no text, as ``from_json`` refuses it.

    Parameters
    ----------
    sampled
        How many records are looked at, at most 10,000.

    Raises
    ------
    OptionError
        As :func:`look`; also when no record of the sample is a JSON object with a field.
    ReadError, BrokerError
        As :func:`look`.
    """
    values = [row["value"] for row in newest_rows(options, topic, sampled)]
    found = json_objects(values)
    guessed = _guessed(spark, found) if found else None
    if not guessed:
        raise OptionError(
            f"topic {topic}: none of its {len(values)} newest values is a JSON object with a field: look() shows them"
        )
    return guessed


def _guessed(spark: SparkSession, objects: Sequence[str]) -> StructType:
    strings = spark.createDataFrame([(text,) for text in objects], "value string")
    # Else Spark adds a field _corrupt_record for what it refuses, and refuses records that have one.
    reader = spark.read.option("mode", "DROPMALFORMED").option("columnNameOfCorruptRecord", uuid.uuid4().hex)
    guessed = _taken_by_from_json(reader.json(strings).schema, spark.conf.get("spark.sql.columnNameOfCorruptRecord"))
    if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return guessed
    return without_twins(guessed, objects)


def _taken_by_from_json(schema: StructType, of_corrupt_record: str | None) -> StructType:
    """Without a field of the name under which from_json keeps what it cannot read, unless it is a text."""
    from pyspark.sql.types import StringType, StructType

    return StructType([f for f in schema if f.name != of_corrupt_record or isinstance(f.dataType, StringType)])


def without_twins(schema: StructType, objects: Sequence[str]) -> StructType:
    """The schema in which no field's name differs from another's in case only: Spark could select neither of them.

    Of such fields it keeps the one that more of the objects have, or else the first.
    """
    counts = functools.cache(lambda: Counter(path for text in objects for path in _paths(json.loads(text))))
    found: StructType = _distinct(schema, counts, ())
    return found


def _distinct(kind: Any, counts: Callable[[], Counter[Path]], path: Path) -> Any:
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(_distinct(kind.elementType, counts, path), kind.containsNull)
    if not isinstance(kind, StructType):
        return kind
    named: dict[str, list[StructField]] = {}
    for field in kind:
        named.setdefault(_caseless(field.name), []).append(field)
    kept = (max(twins, key=lambda f: counts()[*path, f.name]) if twins[1:] else twins[0] for twins in named.values())
    return StructType(
        [StructField(one.name, _distinct(one.dataType, counts, (*path, one.name)), one.nullable) for one in kept]
    )


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Of all fields; elements of a list have the path of the list."""
    if isinstance(value, list):
        for element in value:
            yield from _paths(element, path)
    elif isinstance(value, dict):
        for name, field in value.items():
            yield (*path, name)
            yield from _paths(field, (*path, name))


def _caseless(name: str) -> str:
    """As Java's equalsIgnoreCase compares, a character at a time: sharp s is not ss."""
    return "".join((upper if len(upper := c.upper()) == 1 else c).lower() for c in name)
