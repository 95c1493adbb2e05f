"""The tables of docs/ that the code has: `make docs` writes them into their pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import option_tables

from spark_kafka_group.driver.steps.progress import MEANINGS
from spark_kafka_group.metrics.metric_table import METRICS, PARTITION_METRICS
from spark_kafka_group.options import SECTIONS
from spark_kafka_group.options.producing import SINK_SECTIONS
from spark_kafka_group.wire.reactions import OF_A_MEMBER, REACTIONS, Reaction

PAGES = Path(__file__).parent
TABLE = re.compile(r"(<!-- begin ([\w: ]+); `make docs` writes this -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> dict[str, Callable[[], str]]:
    """By the names that pages have them under."""
    names = {**SECTIONS, **SINK_SECTIONS}
    sections = {f"options: {name}": lambda name=name: option_tables.section_table(name) for name in names}
    return {
        "first options": option_tables.first_table,
        "own options": option_tables.own_options,
        **sections,
        "refused settings": option_tables.refused_table,
        "refused settings of producers": option_tables.refused_in_sinks_table,
        "metrics": metrics_table,
        "reactions": reactions_table,
        "progress keys": progress_table,
    }


def metrics_table() -> str:
    """The numbers of a query, and of each of its partitions."""
    lines = ["| metric | unit | in the progress | meaning |", "|---|---|---|---|"]
    for metric, suffix in [*((m, "") for m in METRICS), *((m, ", per partition") for m in PARTITION_METRICS)]:
        lines.append(f"| `{metric.name}` | {metric.unit}{suffix} | `{metric.key}` | {metric.doc} |")
    return "\n".join(lines)


def reactions_table() -> str:
    """Reactions to errors of a member's requests, with a legend."""
    there = {reaction for reactions in REACTIONS.values() for reaction in reactions.values()}
    words = {reaction: reaction.name.lower().replace("_", " ") for reaction in Reaction if reaction in there}
    words[Reaction.NOT_SENT] = ""
    lines = [
        "| error | " + " | ".join(request.value for request in OF_A_MEMBER) + " |",
        "|---" * (1 + len(OF_A_MEMBER)) + "|",
        *(
            f"| `{error}` | " + " | ".join(words[reactions[request]] for request in OF_A_MEMBER) + " |"
            for error, reactions in REACTIONS.items()
        ),
        "",
        *(f"- **{word}**: {reaction.value}" for reaction, word in words.items() if word),
        "",
        "A SyncGroup is never sent twice: after a SyncGroup, *again* starts with JoinGroup.",
        "The query retries for at most `kafka.default.api.timeout.ms`. It tries to join for that time, or for",
        "`kafka.max.poll.interval.ms` if that is longer.",
        "When the broker has accepted a join, the query waits for the other members as long as they take.",
    ]
    return "\n".join(lines)


def progress_table() -> str:
    """Keys of the progress whose value is no metric as it is."""
    metrics = {metric.key for metric in METRICS} - {"brokersAway", "leaderlessSinceMs", "timestampMs"}
    rows = [f"| `{key}` | {meaning} |" for key, meaning in MEANINGS.items() if key not in metrics]
    return "\n".join(["| key | meaning |", "|---|---|", *rows])


def filled(page: str) -> str:
    """The page's text with the tables that the code has now."""
    made = tables()
    return TABLE.sub(lambda found: f"{found[1]}\n{made[found[2]]().strip()}\n\n{found[3]}", page)


if __name__ == "__main__":
    for file in sorted(PAGES.glob("*.md")):
        file.write_text(filled(file.read_text()))
