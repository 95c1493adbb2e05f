"""Addresses that are no broker's, in kafka.bootstrap.servers or in what brokers advertise: for how long a client tries
them."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark_kafka_group.wire.client.reachability import address
from spark_kafka_group.wire.client.refusals import NO_ADDRESS, NO_LISTENER, PROTOCOL, TIMED_OUT, WrongAddressError

NO_SUCH_NAME_S, NO_ANSWER_ABOUT_NAME_S = 3.0, 10.0
"""How long a client looks up names that all lack an address: wrong names, and names without an answer of a server."""
NO_LISTENER_S = 5.0
"""How long a client tries addresses that all refuse connections. A broker that is away for good does, too."""
SILENT_S = 15.0
"""How long a client tries advertised addresses that do not answer, while those of kafka.bootstrap.servers do."""
WITH_SASL = {"PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SASL_SSL"}
WITHOUT_TLS = {"SSL": "PLAINTEXT", "SASL_SSL": "SASL_PLAINTEXT"}

Address = tuple[str, int]


@dataclass(frozen=True)
class _Wrong:
    shown: str
    patience_s: float
    remedy: str


class WrongAddresses:
    """Addresses that have no IP address, at which no broker listens, or whose listener is for another protocol.

    `reached_before`: another client of the same query has reached the cluster, so that this is an outage and not a
        typo.
    """

    def __init__(self, reached_before: bool) -> None:
        self._reached_before = reached_before
        self._wrong: dict[Address, _Wrong] = {}
        self._hanging_up: dict[Address, _Wrong] = {}

    def problem(self, address: Address, error: Exception, advertised: bool = False) -> str | None:
        """Why no connection was made, if the address is to blame: `error` is the result of the attempt. `advertised`: a
        broker has named this address, and another one was reached."""
        wrong = _unresolved(address) or _refusing(address, error) or (_silent(error) if advertised else None)
        if wrong is None:
            self._wrong.pop(address, None)
            return None
        self._wrong[address] = wrong
        return wrong.shown

    def connected(self, address: Address) -> None:
        """Note that a connection was made: the address was wrong for a while only, as that of a broker that starts."""
        self._wrong.pop(address, None)

    def hung_up(self, address: Address, protocol: str, *, greeted: bool) -> None:
        """Note that the broker has closed a connection without an error, as a listener for another protocol does. A
        listener with SASL closes it at the first request after the greeting, one without TLS in the handshake."""
        other = WITH_SASL.get(protocol) if greeted else WITHOUT_TLS.get(protocol)
        if other is not None:
            self._hanging_up[address] = _Wrong(
                f"the broker closes connections of kafka.security.protocol {protocol}",
                NO_LISTENER_S,
                f"set {PROTOCOL} to that of this listener, for example {other}",
            )

    def hangs_up(self, address: Address) -> bool:
        """Whether the last connection to it was closed without an error."""
        return address in self._hanging_up

    def begin(self) -> None:
        """Forget what the attempts before this bootstrap have met."""
        self._hanging_up.clear()

    def check(self, began_s: float | None, addresses: Mapping[Address, str]) -> None:
        """Give up when all of `addresses` have been wrong since `began_s` for a while. `addresses`: with who advertises
        each; empty for one in kafka.bootstrap.servers. Raises WrongAddressError."""
        if time.monotonic() >= self.until(began_s, addresses):
            known = self._known()
            wrong = {one: known[one] for one in sorted(set(addresses))}
            whys = "; ".join(
                f"{addresses[place]}{place[0] if one.shown.startswith(NO_ADDRESS) else address(*place)}: {one.shown}"
                for place, one in wrong.items()
            )
            remedies = ", or ".join(sorted({one.remedy for one in wrong.values()}))
            where = "advertised.listeners of the brokers" if any(addresses.values()) else "kafka.bootstrap.servers"
            raise WrongAddressError(f"{whys}. Correct {where}, or {remedies}")

    def until(self, began_s: float | None, addresses: Collection[Address]) -> float:
        """When addresses that are all wrong are given up, by time.monotonic(). `began_s`: when the bootstrap began;
        None if none is under way."""
        known = self._known()
        if began_s is None or not addresses or self._reached_before or not set(addresses) <= known.keys():
            return math.inf
        return began_s + max(known[address].patience_s for address in addresses)

    def _known(self) -> dict[Address, _Wrong]:
        return self._hanging_up | self._wrong


def _unresolved(address: Address) -> _Wrong | None:
    try:
        socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        silent = getattr(error, "errno", None) == socket.EAI_AGAIN
        why = error.args[-1] if error.args else error
        patience_s = NO_ANSWER_ABOUT_NAME_S if silent else NO_SUCH_NAME_S
        return _Wrong(f"{NO_ADDRESS} ({why})", patience_s, "the name service of this machine")
    return None


def _silent(error: Exception) -> _Wrong | None:
    if TIMED_OUT not in str(error):
        return None
    return _Wrong("no answer to a connection", SILENT_S, "let connections from here pass")


def _refusing(address: Address, error: Exception) -> _Wrong | None:
    if "ECONNREFUSED" not in str(error):
        return None
    return _Wrong(NO_LISTENER, NO_LISTENER_S, "start the broker")
