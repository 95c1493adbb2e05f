"""The sink with a stop at each step of its write, around real calls of the product's own functions.

Spark's workers import this, so nothing of the judge is here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from faults.programs.points import is_armed, stand
from spark_kafka_group.sink import GroupKafkaStreamWriter
from spark_kafka_group.source import GroupKafkaDataSource

STEPS = {
    "before-flush": "a task has sent rows, and has not flushed them",
    "flushed": "a task has flushed its rows, and has told nobody",
    "before-decision": "all tasks are done, and nothing is decided",
    "decided": "the decision is made, and no transaction has ended",
    "half-ended": "one transaction is committed, and another one is open",
    "ended": "all transactions are committed, and Spark has not logged the batch",
}
OF_TASKS = ("before-flush", "flushed")
WITHOUT_DECISION = ("before-flush", "flushed", "ended")
"""The steps of a write that is at least once."""
MARKS = "marks"
"""An option for this data source: the folder in which steps are armed."""


class SteppedDataSource(GroupKafkaDataSource):
    """The data source, whose micro-batches stop at the step that is armed."""

    def __init__(self, options: dict[str, str]) -> None:
        self._marks = Path(options.get(MARKS, "."))
        super().__init__({name: value for name, value in options.items() if name != MARKS})

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return SteppedWriter(super().streamWriter(schema, overwrite), self._marks)


class SteppedWriter(GroupKafkaStreamWriter):
    """The writer, with its stops."""

    def __init__(self, writer: GroupKafkaStreamWriter, marks: Path) -> None:
        super().__init__(writer._options, writer._columns, writer._planned)
        self._marks = marks

    def write(self, iterator: Iterator[Any]) -> Any:
        rows = 0

        def counted() -> Iterator[Any]:
            nonlocal rows
            for batch in iterator:
                if rows:
                    stand(self._marks, "before-flush")
                rows += batch.num_rows
                yield batch
            if rows:
                stand(self._marks, "before-flush")

        told = super().write(counted())
        if rows:
            stand(self._marks, "flushed")
        return told

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's
        if self._options.is_exactly_once:
            with _steps_of_the_end(self._marks):
                super().commit(messages, batchId)
        else:
            super().commit(messages, batchId)
        stand(self._marks, "ended")


@contextlib.contextmanager
def _steps_of_the_end(marks: Path) -> Iterator[None]:
    """Have the decision and the end of the transactions stop where it is armed."""
    from spark_kafka_group.transactions import deciding
    from spark_kafka_group.wire.transactions.decision_log import DecisionLog

    append, finish = DecisionLog.append, deciding.finish

    def decided(*arguments: Any, **named: Any) -> Any:
        stand(marks, "before-decision")
        offset = append(*arguments, **named)
        stand(marks, "decided")
        return offset

    def one_by_one(client: Any, decisions: Any, decision: Any) -> Any:
        if len(decision.transactions) > 1 and is_armed(marks, "half-ended"):
            first = decision.transactions[0]
            client.commit(first.transactional_id, first.producer)
            stand(marks, "half-ended")
        return finish(client, decisions, decision)

    with mock.patch.object(DecisionLog, "append", decided), mock.patch.object(deciding, "finish", one_by_one):
        yield
