"""Options of a query's membership in its consumer group."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.options import parsing
from spark_kafka_group.options.option import Section, choice, integer, names, option, text
from spark_kafka_group.options.transacting import DECISION_TOPIC

LISTENER_METHODS = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")


@dataclass(frozen=True, repr=False)
class Group(Section):
    """Membership: names, times, how partitions are dealt, and when a generation begins."""

    id: str | None = option(
        "kafka.group.id", parsing.name,
        "The consumer group that the query joins. Without it a stream has a group of its own, named after an id in "
        "its checkpoint, and a batch read belongs to no group.",
        shown="`<groupIdPrefix>-<reader id>` on a stream",
    )  # fmt: skip
    id_prefix: str = option(
        "groupIdPrefix", parsing.name,
        "How the name of a group begins that `kafka.group.id` does not name.",
        default="spark-groupkafka",
    )  # fmt: skip
    generation: str = option(
        "generation", choice("auto", "batch", "stable"),
        "When a micro-batch with data starts a new generation of the group: `auto` (when the query is alone in the "
        "group), `batch` (always, as leader), or `stable` (only when Kafka needs one).",
        default="auto",
    )  # fmt: skip
    assignment_strategy: tuple[str, ...] = option(
        "kafka.partition.assignment.strategy", names,
        "Strategies that assign partitions to the members, most preferred first: `range`, `roundrobin`, `sticky`, "
        "`cooperative-sticky` (or Java's class names), or `module:Class` of your own. All members need one in common: "
        "see [Sharing a group](sharing-a-group.md#who-assigns-partitions).",
        default=("range", "cooperative-sticky"), shown="`range,cooperative-sticky`, as Java's consumer has it",
    )  # fmt: skip
    rebalance_listener: str | None = option(
        "rebalanceListener", text,
        "Streams only. `module:Class`, called on the driver in each rebalance: see [Hooks](sharing-a-group.md#hooks).",
        shown="none",
    )  # fmt: skip
    instance_id: str | None = option(
        "kafka.group.instance.id", parsing.instance_id,
        "Static membership under a name of your own. The member then stays in the group when the query stops.",
        shown="derived from an id in the checkpoint",
    )  # fmt: skip
    transactional_id: str | None = option(
        "kafka.transactional.id", parsing.transactional_id,
        "Streams only. The `kafka.transactional.id` of the query's groupkafka sink with "
        "`deliveryGuarantee=exactly-once`. The sink then commits the offsets in the transaction of the rows, and the "
        "source commits none. See [From Kafka to Kafka](exactly-once.md#from-kafka-to-kafka).",
        shown="none",
    )  # fmt: skip
    decision_topic: str = option(
        "decisionTopic", parsing.topic,
        "The `decisionTopic` of the sink with this `kafka.transactional.id`. When a micro-batch runs again, the "
        "source looks there whether the sink has written it.",
        default=DECISION_TOPIC,
    )  # fmt: skip
    session_timeout_ms: int = option(
        "kafka.session.timeout.ms", integer(1),
        "How long the group waits for a silent driver. The broker sets bounds.", default=45_000,
    )  # fmt: skip
    heartbeat_interval_ms: int = option(
        "kafka.heartbeat.interval.ms",
        integer(1),
        "How often the driver sends a heartbeat to the group.",
        default=3_000,
    )
    max_poll_interval_ms: int = option(
        "kafka.max.poll.interval.ms", integer(1),
        "The rebalance timeout: how long the other members wait for a running micro-batch and its commit. A "
        "micro-batch may take longer while no member joins or leaves.",
        default=300_000,
    )  # fmt: skip
