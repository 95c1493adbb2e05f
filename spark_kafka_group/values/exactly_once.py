"""The decision of an exactly-once write, as the decision topic has it. Values only, no I/O.

The driver plans a write, and tasks write in transactions that they do not end. The driver then decides, once and
durably, that the batch is written, and ends all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from spark_kafka_group.text import foreign_text
from spark_kafka_group.values.offsets import TopicPartition, positions_from_json, positions_to_json

FORMAT_VERSION = 1
UNKNOWN = -1
OF_A_BATCH_WRITE = "write-"  # how the ids of batch writes begin; those of queries are UUIDs


class ProducerIdAndEpoch(NamedTuple):
    """A producer as brokers know it: of two with one id, the later epoch fences the other."""

    producer_id: int
    epoch: int


class BatchId(NamedTuple):
    """A micro-batch, by the id of its query, which its checkpoint keeps. A batch write is a query of one batch."""

    query: str
    batch: int

    @property
    def is_batch_write(self) -> bool:
        """Whether it is the whole of a batch write."""
        return self.query.startswith(OF_A_BATCH_WRITE)

    def __str__(self) -> str:
        return f"batch write {self.query}" if self.is_batch_write else f"batch {self.batch} of query {self.query}"


@dataclass(frozen=True)
class TaskTransactionWritten:
    """A task's transaction: all of its records are acknowledged, and it is open."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    # The offset of its last record in each of its partitions; -1 where brokers did not say it. Where a consumer that
    # reads committed records comes by them, it is told how the transaction ended.
    offsets: Mapping[TopicPartition, int]


class State(Enum):
    """What was decided about a batch, by the word in the decision topic."""

    DECIDED = "decided"  # it is written: its transactions are to be committed, whatever happens
    REVOKED = "revoked"  # none of its transactions could be committed: it is to be written again
    SETTLED = "settled"  # it counts as written, though some of its transactions were lost: a person has said so
    ENDED = "ended"  # it is written, and all of its transactions were committed: nobody needs to look at them again


@dataclass(frozen=True)
class SourceBatch:
    """The offsets of a source that a decision has committed together with the rows; none where it read nothing.
    `query_id`, `batch`, `offsets`: as of :class:`~spark_kafka_group.values.source_offsets.SourceOffsets`."""

    query_id: str
    batch: int
    offsets: Mapping[TopicPartition, int]

    def to_json(self) -> dict[str, Any]:
        return {"reader": self.query_id, "batch": self.batch, "offsets": positions_to_json(self.offsets)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceBatch:
        return cls(str(value["reader"]), int(value["batch"]), positions_from_json(value["offsets"], "offsets"))


@dataclass(frozen=True)
class Decision:
    """The last decision of a prefix."""

    batch: BatchId
    state: State
    parity: int  # of the ids of its transactions. No task takes ids of this parity before there is another decision.
    transactions: tuple[TaskTransactionWritten, ...]
    rows: int = UNKNOWN  # of the batch; UNKNOWN where that is not told
    run: str = ""  # as of :class:`~spark_kafka_group.values.planned_transactions.TaskWrite`
    logged: str = ""  # a digest of what Spark's checkpoint has of the batch; empty where this is not known
    sources: tuple[SourceBatch, ...] | None = None  # what it commits of each source; None where that is not told

    @property
    def in_short(self) -> Decision:
        """It without its transactions, and without the offsets of its sources, which may be many."""
        named = None if self.sources is None else tuple(replace(one, offsets={}) for one in self.sources)
        return replace(self, transactions=(), sources=named)

    def of_source(self, query_id: str, batch: int) -> SourceBatch | None:
        """What it commits of a source's batch; None where it does not."""
        return next((one for one in self.sources or () if (one.query_id, one.batch) == (query_id, batch)), None)

    def to_json(self) -> bytes:
        value = {
            "version": FORMAT_VERSION, "state": self.state.value, "query": self.batch.query, "batch": self.batch.batch,
            "parity": self.parity, "rows": self.rows, "run": self.run, "logged": self.logged,
            "transactions": [_transaction_to_json(one) for one in self.transactions],
            "sources": None if self.sources is None else [one.to_json() for one in self.sources],
        }  # fmt: skip
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> Decision:
        value = foreign_text.parsed(raw)
        if not isinstance(value, dict) or value.get("version") != FORMAT_VERSION:
            raise ValueError(f"is not of version {FORMAT_VERSION}: another version of spark_kafka_group wrote it")
        try:
            return cls(
                BatchId(str(value["query"]), int(value["batch"])),
                State(value["state"]),
                int(value["parity"]) % 2,
                tuple(_transaction_from_json(one) for one in value["transactions"]),
                int(value.get("rows", UNKNOWN)),
                str(value.get("run", "")),
                str(value.get("logged", "")),
                None if (sources := value.get("sources")) is None else tuple(map(SourceBatch.from_json, sources)),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"lacks a field, or has one of another kind: {error}") from error


def _transaction_to_json(one: TaskTransactionWritten) -> dict[str, Any]:
    return {"id": one.transactional_id, "producer": list(one.producer), "offsets": positions_to_json(one.offsets)}


def _transaction_from_json(value: Mapping[str, Any]) -> TaskTransactionWritten:
    producer_id, epoch = value["producer"]
    offsets = positions_from_json(value["offsets"], "offsets")
    return TaskTransactionWritten(str(value["id"]), ProducerIdAndEpoch(int(producer_id), int(epoch)), offsets)


def named(transactions: Sequence[TaskTransactionWritten]) -> str:
    """The partitions of transactions, for an error."""
    tps = sorted({tp for one in transactions for tp in one.offsets})
    return foreign_text.listed([str(tp) for tp in tps])
