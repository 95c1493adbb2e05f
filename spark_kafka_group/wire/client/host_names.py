"""Names of kafka.bootstrap.servers that have no address: for how long a client looks them up."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection

from spark_kafka_group.wire.client.refusals import NO_ADDRESS, UnresolvedError

NO_SUCH_NAME_S, NO_ANSWER_ABOUT_NAME_S = 3.0, 10.0
"""How long a client looks up names that all lack an address: wrong names, and names without an answer of a server."""


class HostNames:
    """Names that could not be looked up.

    Parameters
    ----------
    resolved_before
        Another client of the same query has reached the cluster, so that a missing name is an outage and not a typo.
    """

    def __init__(self, resolved_before: bool) -> None:
        self._resolved_before = resolved_before
        self._unresolved: dict[str, Exception] = {}  # why, by host

    def problem(self, host: str, port: int) -> str | None:
        """Why a name has no address; None if it has one."""
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            self._unresolved[host] = error
            return _shown(error)
        self._unresolved.pop(host, None)
        return None

    def check(self, began_s: float | None, hosts: Collection[str]) -> None:
        """Give up while bootstrapping, when none of `hosts` has had an address for a while; Java gives up at once.

        Raises
        ------
        UnresolvedError
        """
        if time.monotonic() >= self.until(began_s, hosts):
            whys = "; ".join(f"{host}: {_shown(why)}" for host, why in sorted(self._unresolved.items()))
            raise UnresolvedError(f"{whys}. Correct kafka.bootstrap.servers, or the name service of this machine")

    def until(self, began_s: float | None, hosts: Collection[str]) -> float:
        """When names that all lack an address are given up, by time.monotonic().

        Parameters
        ----------
        began_s
            When the bootstrap began; None if none is under way.
        """
        if began_s is None or self._resolved_before or not set(hosts) <= self._unresolved.keys():
            return math.inf
        silent = any(getattr(why, "errno", None) == socket.EAI_AGAIN for why in self._unresolved.values())
        return began_s + (NO_ANSWER_ABOUT_NAME_S if silent else NO_SUCH_NAME_S)


def _shown(why: Exception) -> str:
    return f"{NO_ADDRESS} ({why.args[-1] if why.args else why})"
