"""Options of writing: the topic, the columns that count, and what is guaranteed."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.options import parsing
from spark_kafka_group.options.option import Section, boolean, choice, option

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"


@dataclass(frozen=True, repr=False)
class Writing(Section):
    """Where rows go, and how often each may arrive."""

    topic: str | None = option(
        "topic", parsing.topic,
        "The topic to write to. Takes precedence over the column `topic`. Required without that column.",
        shown="the column `topic`",
    )  # fmt: skip
    include_headers: bool = option("includeHeaders", boolean, "Whether the column `headers` is written.", default=True)
    delivery_guarantee: str = option(
        "deliveryGuarantee", choice(AT_LEAST_ONCE, EXACTLY_ONCE),
        "`at-least-once`, or `exactly-once`: readers of committed records get each row once. Needs "
        "`kafka.transactional.id`.",
        default=AT_LEAST_ONCE,
    )  # fmt: skip
    encoder: str = option(
        "encoder", choice("auto", "c", "python"),
        "`c` is compiled. `python` writes the same records slowly. `auto` takes `c` if it was built.",
        default="auto",
    )  # fmt: skip
