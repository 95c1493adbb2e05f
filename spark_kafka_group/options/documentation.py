"""What is said of options: the README's table."""

from __future__ import annotations

from spark_kafka_group.options import DECLARED


def markdown_table() -> str:
    """The README's table of options."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for _, field in DECLARED.values():
        shown = field.metadata["shown"]
        if shown is None:
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            shown = f"`{default}`"
        lines.append(f"| `{field.metadata['name']}` | {shown} | {field.metadata['doc']} |")
    return "\n".join(lines)
