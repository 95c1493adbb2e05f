"""Whether brokers can be reached, and what an error says of it: a warning when none can, and when one can again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

import kafka.errors as kafka_errors

from spark_kafka_group.errors import LASTING, BrokerError, BrokerTimeoutError
from spark_kafka_group.text.printable import printable
from spark_kafka_group.wire.client.refusals import WrongAddressError

log = logging.getLogger(__name__)


def address(host: str, port: int) -> str:
    """``host:port``; an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Reach:
    """Results of one client's attempts to connect. For one thread.

    A connection that ends says nothing yet: the next attempt may work.

    `who`: the client, for the text.
    `speaks`: False if the caller warns, or for a second client of a query, which has the same outage.
    `none`: whether the last attempts to reach each of the brokers have failed.
    """

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
