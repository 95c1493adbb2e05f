"""Moves kafka-python's lines about failed connections to DEBUG: `reachability` warns once instead.

It logs several lines for each attempt: ten a second in an outage. It also warns for each connection about unencrypted
credentials, of which `security_configs` warns once, and calls offsets of a transaction that is not over an unknown
error, of which they are none: they are asked for again. Other clients in the same process keep their lines.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import kafka.errors as kafka_errors

ABOUT_CONNECTIONS = {
    "kafka.net.connection": ("%s: Connection lost",),
    "kafka.net.manager": ("Connection failed", "Bootstrap connection to", "Bootstrap %s not ready", "Bootstrap failed"),
    "kafka.net.transport": (
        "%s: socket disconnected", "%s: Abort", "%s: Error receiving network data", "%s: Error sending request data",
    ),
    "kafka.net.inet": ("DNS lookup failed",),
    "kafka.cluster": ("No node available for metadata refresh", "Metadata refresh: failed"),
    "kafka.coordinator": ("Error sending", "Marking the coordinator dead"),
    "kafka.coordinator.consumer": ("Unknown error fetching offsets",),
    "kafka.producer.sender": ("%s: Error sending produce request", "%s: Got error produce response"),
    "kafka.net.sasl.plain": ("Sending username and password in the clear",),
    "kafka.net.sasl.scram": ("Exchanging credentials in the clear",),
}  # fmt: skip
"""The beginnings of those lines, by logger and before arguments are filled in."""

PASSING = (
    kafka_errors.KafkaConnectionError, kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError,
    kafka_errors.NodeNotReadyError, kafka_errors.Cancelled, kafka_errors.UnstableOffsetCommitError, OSError,
)  # fmt: skip
"""Errors of lost connections, and of a transaction that is not over. A line with another error, for example a wrong
password, keeps its level."""

_running = threading.local()


@contextlib.contextmanager
def about_ours() -> Iterator[None]:
    """Lines that are logged in this block are about this package's connections."""
    _running.ours = True
    try:
        yield
    finally:
        _running.ours = False


def keep_to_debug(record: logging.LogRecord) -> bool:
    """A filter of a logger: a line about a lost connection becomes one of DEBUG."""
    if record.levelno <= logging.DEBUG or not getattr(_running, "ours", False):
        return True
    if not str(record.msg).startswith(ABOUT_CONNECTIONS[record.name]) or not all(map(_passes, _errors(record))):
        return True
    record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _errors(record: logging.LogRecord) -> list[BaseException]:
    arguments: tuple[Any, ...] = record.args if isinstance(record.args, tuple) else ()
    raised = record.exc_info[1] if record.exc_info else None
    return [error for error in (*arguments, raised) if isinstance(error, BaseException)]


def _passes(error: BaseException) -> bool:
    while error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    return isinstance(error, PASSING) and not isinstance(error, ssl.SSLError)


def install() -> None:
    """Filter the loggers. Harmless when repeated."""
    for name in ABOUT_CONNECTIONS:
        logging.getLogger(name).addFilter(keep_to_debug)
