"""Errors of the commands."""

from __future__ import annotations

from spark_kafka_group.errors import GroupKafkaError


class ToolError(GroupKafkaError):
    """Raised when a command fails; the text says what to change."""


class UsageError(ToolError):
    """Raised when arguments contradict each other in a way that argparse does not see."""
