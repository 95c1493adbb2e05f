"""The schema of a topic's JSON, guessed from its newest records."""

from __future__ import annotations

from collections.abc import Mapping
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

    Values that are no JSON objects are left out: ``from_json`` gives null for them. So are tombstones. A field that the
    sample does not have is not in the schema.

    Parameters
    ----------
    sampled
        How many records are looked at, at most 10,000.

    Raises
    ------
    OptionError
        As :func:`look`; also when no record of the sample is a JSON object.
    ReadError, BrokerError
        As :func:`look`.
    """
    values = [row["value"] for row in newest_rows(options, topic, sampled)]
    found = json_objects(values)
    if not found:
        raise OptionError(f"topic {topic}: none of its {len(values)} newest values is a JSON object: look() shows them")
    strings = spark.createDataFrame([(text,) for text in found], "value string")
    return spark.read.json(strings).schema
