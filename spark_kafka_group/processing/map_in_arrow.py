"""pyspark's mapInArrow, which imports pandas on the driver, although it does not need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from spark_kafka_group.errors import MissingPackageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PIP = "pip install 'pandas>=2.2,<3'"


def map_in_arrow(
    df: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """As ``df.mapInArrow(function, schema)``.

    Raises
    ------
    MissingPackageError
        With advice, when the driver has no pandas that pyspark takes.
    """
    try:
        return df.mapInArrow(function, schema)
    except ImportError as error:
        raise MissingPackageError(f"handlers need pandas on the driver, 2.2 or newer and below 3: {PIP}") from error
