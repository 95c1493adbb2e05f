"""What makes a query a member of its consumer group."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.option import Section, choice, integer, names, option, text
from spark_kafka_group.options import parsing

LISTENER_METHODS = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")


@dataclass(frozen=True, repr=False)
class Group(Section):
    """Membership: names, times, how partitions are dealt, and when a generation begins."""

    id: str | None = option(
        "kafka.group.id", parsing.name,
        "The consumer group the query is a member of. A stream without it makes a group of its own, "
        "named after an id kept in its checkpoint; a batch read without it belongs to no group.",
        shown="`<groupIdPrefix>-<reader id>` on a stream",
    )  # fmt: skip
    id_prefix: str = option(
        "groupIdPrefix", parsing.name,
        "How the group of a stream without `kafka.group.id` begins; an id kept in the checkpoint follows.",
        default="spark-groupkafka",
    )  # fmt: skip
    generation: str = option(
        "generation", choice("auto", "batch", "stable"),
        "When a micro-batch with data starts a new generation of the group: `auto` (when the query is alone in the "
        "group), `batch` (always, as leader), `stable` (only when Kafka needs one).",
        default="auto",
    )  # fmt: skip
    assignment_strategy: tuple[str, ...] = option(
        "kafka.partition.assignment.strategy", names,
        "How partitions are dealt among the members, most preferred first: `range`, `roundrobin`, `sticky`, "
        "`cooperative-sticky` (or Java's class names), or `module:Class` of your own. All members need one in common.",
        default=("range", "cooperative-sticky"), shown="`range,cooperative-sticky`, as Java's consumer has it",
    )  # fmt: skip
    rebalance_listener: str | None = option(
        "rebalanceListener", text,
        "Streams only. `module:Class` with `on_partitions_revoked`, `on_partitions_assigned` and `on_partitions_lost`, "
        "called on the driver once per rebalance.",
        shown="none",
    )  # fmt: skip
    instance_id: str | None = option(
        "kafka.group.instance.id", parsing.instance_id,
        "Static membership under a name of your own. Such a member does not leave the group when the query stops.",
        shown="derived from an id in the checkpoint",
    )  # fmt: skip
    session_timeout_ms: int = option(
        "kafka.session.timeout.ms", integer(1),
        "How long the group waits for a driver that went silent. The broker sets bounds.", default=45_000,
    )  # fmt: skip
    heartbeat_interval_ms: int = option(
        "kafka.heartbeat.interval.ms",
        integer(1),
        "How often the driver tells the group it is alive.",
        default=3_000,
    )
    max_poll_interval_ms: int = option(
        "kafka.max.poll.interval.ms", integer(1),
        "The rebalance timeout: how long the rest of the group waits for a running micro-batch to end and be "
        "committed. A longer micro-batch is fine as long as nobody joins or leaves.",
        default=300_000,
    )  # fmt: skip
