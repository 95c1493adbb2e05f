from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import DataType

from spark_kafka_group.executor.values.value_contract import Malformed

class JsonDecoder:
    def __init__(
        self, spark_type: DataType, wanted: tuple[str, ...] | None = None, framed: bool = False, time_zone: str = "UTC"
    ) -> None: ...
    @property
    def type(self) -> pa.DataType: ...
    @property
    def spark_type(self) -> DataType: ...
    @property
    def given_up(self) -> int: ...
    def decode(
        self, values: pa.Array, ids: Sequence[int | str | None] | None = None, most_bytes: int = ...
    ) -> tuple[pa.Array, list[Malformed]]: ...
