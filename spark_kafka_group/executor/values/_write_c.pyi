import pyarrow as pa

from spark_kafka_group.executor.values.write_plan import Unfit, WritePlan

class ColumnEncoder:
    def __init__(self, plan: WritePlan) -> None: ...
    def encode(
        self, arrays: list[pa.Array | None], rows: int, prefix: bytes
    ) -> tuple[pa.Array | None, Unfit | None]: ...
