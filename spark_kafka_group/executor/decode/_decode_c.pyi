import pyarrow as pa

from spark_kafka_group.executor.decode.contract import AbortedTransactions, Buffer

class RecordBatchBuilder:
    def __init__(
        self,
        *,
        columns: tuple[str, ...],
        check_crcs: bool,
        unpacked_limit: int,
        target_bytes: int,
        check_timestamps: bool = True,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def halfway(self) -> bool: ...
    @property
    def check_crcs(self) -> bool: ...
    @property
    def check_timestamps(self) -> bool: ...
    @property
    def unpacked_limit(self) -> int: ...
    def append(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        position: int,
        start: int,
        end: int,
        aborted: AbortedTransactions | None = None,
    ) -> int: ...
    def append_row(
        self, offset: int, timestamp_ms: int, timestamp_type: int, key: Buffer | None, value: Buffer | None
    ) -> None: ...
    def finish(self) -> pa.RecordBatch: ...

def scan(topic: str, partition: int, records: Buffer, position: int = 0) -> tuple[int, int]: ...
def crc32c(data: Buffer, use_instruction: bool = True) -> int: ...
