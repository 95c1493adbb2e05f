"""pyspark's mapInArrow, which imports pandas on the driver, although it does not need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_group.errors import MissingPackageError
from spark_kafka_group.spark.hung_up import end_quietly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PIP = "pip install 'pandas>=2.2'"


def map_in_arrow(df: DataFrame, function: Function, schema: str) -> DataFrame:
    """As ``df.mapInArrow(function, schema)``.

    Raises
    ------
    MissingPackageError
        With advice, when the driver has no pandas that pyspark takes.
    """
    try:
        return df.mapInArrow(partial(_quietly, function), schema)
    except ImportError as error:
        raise MissingPackageError(f"handlers need pandas on the driver, 2.2 or newer: {PIP}") from error


def _quietly(function: Function, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    end_quietly()  # Spark may run the function in a worker that has not read with this source
    return function(batches)
