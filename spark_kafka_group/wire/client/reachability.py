"""Whether brokers can be reached, and what an error says of it: a warning when none can, and when one can again.

kafka-python's lines about failed connections go to DEBUG.

It logs several lines for each attempt: ten a second in an outage. It also warns for each connection about unencrypted
credentials, of which `security_configs` warns once, and calls offsets of a transaction that is not over an unknown
error, of which they are none: they are asked for again. Other clients in the same process keep their lines.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.errors import LASTING, BrokerError, BrokerTimeoutError
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.wire.client.refusals import WrongAddressError

log = logging.getLogger(__name__)


def address(host: str, port: int) -> str:
    """``host:port``; an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Reach:
    """Results of one client's attempts to connect. For one thread. A connection that ends says nothing yet: the next
    attempt may work. `who`: the client, for the text. `speaks`: False if the caller warns, or for a second client of a
    query, which has the same outage. `none`: whether the last attempts to reach each of the brokers have failed."""

    def __init__(self, who: str, speaks: bool = True, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._who = who
        self.speaks = speaks
        self._clock_s = clock_s
        self._failed: dict[str, str] = {}  # why, by address
        self._since_s = clock_s()
        self._said = False
        self.none = False

    def failed(self, address: str, why: str, everyone: Collection[str], goes_on: str) -> None:
        """Note an attempt that failed; `everyone` has the addresses of all brokers."""
        if not self._failed:
            self._since_s = self._clock_s()
        self._failed[address] = why
        self.none = set(everyone) <= self._failed.keys()
        if self.none:
            self.warn_unreachable(everyone, goes_on)

    def warn_unreachable(self, everyone: Collection[str], goes_on: str) -> None:
        """Warn once that no broker of `everyone` can be reached."""
        if self._said or not self.speaks:
            return
        self._said = True
        whys = "; ".join(self._failed.get(address, f"{address}: no answer yet") for address in sorted(everyone))
        log.warning("%s: no broker can be reached: %s. %s", self._who, printable(whys), goes_on)

    def reached(self, address: str) -> None:
        """Note a connection."""
        self._failed.clear()
        self.none = False
        if self._said:
            self._said = False
            log.warning(
                "%s: brokers can be reached again, after %.0f s (%s)",
                self._who, self._clock_s() - self._since_s, printable(address),
            )  # fmt: skip


class AnswerError(ConnectionError):
    """Raised when the bytes of a connection are no response to the request, so that a host is there."""


NO_ANSWER = (kafka_errors.RetriableError, WrongAddressError)
"""Causes. A name without an address had one when the driver planned the task."""


def unreached(error: Exception) -> bool:
    """Whether a broker could not be reached, or did not answer. That passes once the broker is back."""
    if isinstance(error, (*LASTING, AnswerError)):
        return False
    if isinstance(error, OSError | BrokerTimeoutError):
        return True
    cause = error.__cause__
    answered = isinstance(cause, kafka_errors.BrokerResponseError)
    return isinstance(error, BrokerError) and isinstance(cause, NO_ANSWER) and not answered


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
