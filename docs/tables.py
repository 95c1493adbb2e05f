"""The tables of docs/ that the code has: `make docs` writes them into their pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from spark_kafka_group.driver.steps.progress import MEANINGS
from spark_kafka_group.metrics import metric_table
from spark_kafka_group.options import SECTIONS, documentation
from spark_kafka_group.options.producing import SINK_SECTIONS
from spark_kafka_group.wire import reactions

PAGES = Path(__file__).parent
TABLE = re.compile(r"(<!-- begin ([\w: ]+); `make docs` writes this -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> dict[str, Callable[[], str]]:
    """By the names that pages have them under."""
    names = {**SECTIONS, **SINK_SECTIONS}
    sections = {f"options: {name}": lambda name=name: documentation.section_table(name) for name in names}
    return {
        "first options": documentation.first_table,
        "own options": documentation.own_options,
        **sections,
        "refused settings": documentation.refused_table,
        "refused settings of producers": documentation.refused_in_sinks_table,
        "metrics": metric_table.markdown_table,
        "reactions": reactions.as_markdown,
        "progress keys": progress_table,
    }


def progress_table() -> str:
    """Keys of the progress whose value is no metric as it is."""
    metrics = {metric.key for metric in metric_table.METRICS} - {"brokersAway", "leaderlessSinceMs", "timestampMs"}
    rows = [f"| `{key}` | {meaning} |" for key, meaning in MEANINGS.items() if key not in metrics]
    return "\n".join(["| key | meaning |", "|---|---|", *rows])


def filled(page: str) -> str:
    """The page's text with the tables that the code has now."""
    made = tables()
    return TABLE.sub(lambda found: f"{found[1]}\n{made[found[2]]().strip()}\n\n{found[3]}", page)


if __name__ == "__main__":
    for file in sorted(PAGES.glob("*.md")):
        file.write_text(filled(file.read_text()))
