"""The schema of a topic's JSON, guessed from its newest records."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.explore.decoded import json_objects
from spark_kafka_group.explore.looking import newest_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SAMPLED = 1000


def schema(spark: SparkSession, options: Mapping[str, Any], topic: str, sampled: int = SAMPLED) -> StructType:
    """The schema that ``spark.read.json`` finds in the newest values of a topic, for ``from_json``.

    Values that are no JSON objects are left out: ``from_json`` gives null for them. So are tombstones, and objects that
    are nested deeper than 64 levels or that Spark refuses, as those with a number of more than a thousand digits. A
    field that the sample does not have is not in the schema.

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
    return reader.json(strings).schema
