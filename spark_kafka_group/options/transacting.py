"""How transactions of exactly-once writes are named, how long they may take, and where decisions are kept."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.options import parsing
from spark_kafka_group.options.connection import ClientOptions
from spark_kafka_group.options.option import Section, integer, option

DECISION_TOPIC = "__groupkafka_decisions"
SHORTEST_MS = 60_000
"""Of the driver's own transactions, as by default of Kafka's producer: a pause of the driver must not end them."""
LONGEST_MARK_MS = 1_000  # by how much they may be shorter, at most, than they are asked to be open


@dataclass(frozen=True, repr=False)
class Transacting(Section):
    """Settings of exactly-once writes."""

    transactional_id: str | None = option(
        "kafka.transactional.id", parsing.transactional_id,
        "The prefix of the transactional ids of this write. Required with `deliveryGuarantee=exactly-once`. Each "
        "query needs an id of its own, and must keep it over restarts.",
        shown="none",
    )  # fmt: skip
    transaction_timeout_ms: int | None = option(
        "kafka.transaction.timeout.ms", integer(1),
        "How long a transaction may be open, from the first row of a task to the end of the micro-batch. Brokers "
        "abort a transaction that is open for longer.",
        shown="the brokers' `transaction.max.timeout.ms`",
    )  # fmt: skip
    decision_topic: str = option(
        "decisionTopic", parsing.topic,
        "The compacted topic that keeps the last written micro-batch of each `kafka.transactional.id`. The query "
        "creates it if it does not exist.",
        default=DECISION_TOPIC,
    )  # fmt: skip


@dataclass(frozen=True)
class TransactionOptions:
    """What exactly-once takes of a write's options."""

    client: ClientOptions
    transacting: Transacting
    limit_ms: int = 120_000  # how long requests about transactions are repeated: kafka.delivery.timeout.ms
    # Of the query, as the user gave it to Spark; None where that was in another way than by the write's options
    checkpoint: str | None = None

    @property
    def prefix(self) -> str:
        """kafka.transactional.id; checks of options have seen to it that there is one."""
        return self.transacting.transactional_id or ""

    def deciding_ms(self, timeout_ms: int) -> int:
        """How long the driver's own transactions may be open, where those of tasks have this timeout.

        1. A driver commits offsets in its transaction, and dies before that has ended. 2. Another consumer takes the
        partitions over, and gets no offsets until it has. The driver itself gives up after `limit_ms`.
        """
        return min(timeout_ms, max(self.limit_ms, SHORTEST_MS) + LONGEST_MARK_MS)
