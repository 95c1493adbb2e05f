"""kafka-python's connections, with reasons: why one could not be made, and what to change.

kafka-python tries again after every failure until the time limit, and then reports nothing but the limit. Here a
failure that would recur, for example a wrong password or an untrusted certificate, ends the attempts at once, as
AuthenticationException does in Java. A failure that may pass is reported at the time limit.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from types import SimpleNamespace
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.metadata import CoordinatorType

from spark_kafka_group.wire.client import reachability, scram, sockets
from spark_kafka_group.wire.client.event_loop import Selector
from spark_kafka_group.wire.client.reachability import Reach, address
from spark_kafka_group.wire.client.refusals import (
    CLOSED_IN_HANDSHAKE,
    RefusedError,
    UnsupportedError,
    explained,
    is_certain,
    mechanism_of,
    suspicion,
    why_not,
)
from spark_kafka_group.wire.client.request_timeouts import (
    TCP_CONNECT_S,
    Patience,
    ReauthenticationError,
    Reauthenticator,
    connecting_ms,
)
from spark_kafka_group.wire.client.sockets import TcpTransport, TlsTransport
from spark_kafka_group.wire.client.wrong_addresses import WrongAddresses

reachability.install()

COORDINATOR = "coordinator-"  # how kafka-python begins the ids of its connections to coordinators

AWAY_ASKED_EVERY = 10  # each answer may take seconds
THROTTLED_PAUSE_S = 0.02
SAY_AFTER_S = 3.0  # after this long without an answer to the first attempt there is a warning


class _MovedError(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """Ends a connection to an address at which there is another broker by now. That one is not away."""


class Manager(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's connection manager, with reasons.

    `reached_before`: another client of the same query has reached the cluster: a wrong address is an outage, not a
        typo.
    `speaks`: as of :class:`Reach`.
    """

    def __init__(self, net: Any, reached_before: bool = False, speaks: bool = True, **configs: Any) -> None:
        super().__init__(net, **configs)
        # kafka-python takes a setting for it and does not hand it on: brokers would make each topic that is looked up.
        self.cluster.config["allow_auto_create_topics"] = False
        self._rebootstraps = configs.get("metadata_recovery_strategy") != "none"
        self._session_timeout_ms = configs.get("session_timeout_ms")
        self._patience = Patience(self.config["request_timeout_ms"], self._session_timeout_ms)
        self._not_greeted: dict[Any, int] = {}  # attempts to connect that failed, by node, since one that did not
        self.last_failure: str | None = None  # why the last connection could not be made, or ended, with its address
        self._refuses: tuple[str, int] | None = None  # the address of the last failure, if its reason is certain
        self._away: set[tuple[str, int]] = set()  # addresses of brokers that could not be reached last
        self._unclear: dict[tuple[str, int], float] = {}  # when an attempt has failed, perhaps by a pause alone
        self._any_asked = 0

        group_id = configs.get("group_id")
        self._reach = Reach(f"group {group_id}" if group_id else self.config["client_id"], speaks)
        self._wrong = WrongAddresses(reached_before)
        self._bootstrap: tuple[float, float] | None = None  # when it began, and has to end, while it is under way
        self._met: set[tuple[str, int]] = set()  # addresses that were reached
        self._met_a_broker = False  # by the address that it advertises
        self._unmet_since = math.inf  # when brokers were advertised of which none was reached yet

        everyone = self._configured_brokers = self.cluster.bootstrap_brokers
        # kafka-python takes any of them at random, again and again one that is silent.
        self.cluster.bootstrap_brokers = lambda: (
            [node for node in everyone() if (node.host, node.port) not in self._away] or everyone()
        )

        refresh = self.cluster.refresh_metadata

        async def refresh_now(node_id: Any = None) -> None:
            # 1. A Metadata request is under way. 2. The caller sets topics, or wants another broker's answer. 3.
            # kafka-python hands it the answer to the request of step 1, which has not these topics. So that request
            # ends first.
            if self.cluster.metadata_refresh_in_progress:
                with contextlib.suppress(kafka_errors.KafkaError):
                    await self.cluster._refresh_future
            await refresh(node_id)

        self.cluster.refresh_metadata = refresh_now

    def note_silent(self, node_id: Any) -> None:
        """Note that a broker is silent on a connection of another client: other brokers are asked first."""
        node = self.cluster.broker_metadata(node_id)
        if node is not None:
            self._away.add((node.host, node.port))

    def speak(self, speaks: bool) -> None:
        """Turn the warning that no broker can be reached on or off."""
        self._reach.speaks = speaks

    @property
    def reaches_none(self) -> bool:
        """Whether the last attempts to reach each of the known brokers have failed."""
        return self._reach.none

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Any:
        if request_timeout_ms is not None:
            return super().send(request, node_id, request_timeout_ms)
        asked = self.least_loaded_node() if node_id is None else node_id
        sent_s = time.monotonic()
        future = super().send(request, asked, self._patience.timeout_ms_of(request, asked))

        def ended(_: Any) -> None:
            node = self.cluster.broker_metadata(asked) if future.exception is None else None
            if node is not None:
                self._away.discard((node.host, node.port))
            self._patience.ended(request, asked, future.exception, (time.monotonic() - sent_s) * 1000)

        return future.add_both(ended)

    def least_loaded_node(self) -> Any:
        """As kafka-python's, but brokers not reached come last, as their connections may be dead; if none was, those of
        kafka.bootstrap.servers are asked, too, by default of kafka.metadata.recovery.strategy."""
        node_id = super().least_loaded_node()
        if node_id is not None and not self._is_away(node_id):
            return node_id
        known = [broker.node_id for broker in self.cluster.brokers()]
        others = [other for other in known if not self._is_away(other)]
        if not others:
            entrances = self.cluster.bootstrap_brokers() if self._rebootstraps else ()
            others = [*known, *(broker.node_id for broker in entrances)]
            random.shuffle(others)
        ready = [other for other in others if self.connection_delay(other) == 0]
        return min(ready, key=self._load, default=node_id)

    def throttles(self, node_id: Any) -> bool:
        """Whether a quota is used up: kafka-python refuses all requests to a broker for its throttle time."""
        return node_id in self._conns and "throttle" in self._conns[node_id].paused

    @property
    def waits_for_quota(self) -> bool:
        """Whether any broker throttles this client now."""
        return any(self.throttles(node_id) for node_id in list(self._conns))

    async def unthrottled(self, *node_ids: Any) -> None:
        """Wait while a quota is used up."""
        while any(self.throttles(node_id) for node_id in node_ids):
            await self._net.sleep(THROTTLED_PAUSE_S)

    def sends_now(self, node_id: Any) -> bool:
        """Whether a request to a broker would leave at once, behind no other one, and not wait, or be refused."""
        conn = self._conns.get(node_id)
        if conn is None or not conn.connected or conn.initializing or conn.paused or conn.in_flight_requests:
            return False
        return not conn._reauth.is_reauthenticating and not self._moved(node_id, conn)

    def beside(self, node_id: Any, number: int) -> Any:
        """The id of one more connection to a broker, which has throttle times of its own."""
        of_another = f"{node_id}-{number}"
        node, known = self.cluster.broker_metadata(node_id), self.cluster.broker_metadata(f"{COORDINATOR}{of_another}")
        if node is None or (known is not None and (known.host, known.port) == (node.host, node.port)):
            return node_id if node is None else known.node_id
        at = SimpleNamespace(error_code=0, node_id=of_another, host=node.host, port=node.port)
        return self.cluster.add_coordinator(at, CoordinatorType.TRANSACTION, f"connection {of_another}")

    def any_node(self) -> Any:
        """A broker at random, to ask another one than before: that may be cut off from the cluster, and not know it. So
        may all that were reached, so one that was not is asked now and then."""
        known = [broker.node_id for broker in self.cluster.brokers()]
        nodes = [node_id for node_id in known if not self._is_away(node_id)]
        self._any_asked += 1
        if self._any_asked % AWAY_ASKED_EVERY == 0:
            away = [node_id for node_id in known if node_id not in nodes and self.connection_delay(node_id) == 0]
            nodes = away or nodes
        return random.choice(nodes) if nodes else None

    def _load(self, node_id: Any) -> tuple[bool, int]:
        conn = self._conns.get(node_id)
        return (conn is None or not conn.connected, len(conn.in_flight_requests) if conn is not None else 0)

    def _is_away(self, node_id: Any) -> bool:
        node = self.cluster.broker_metadata(node_id) if node_id is not None else None
        return node is not None and (node.host, node.port) in self._away

    async def _do_bootstrap(self, deadline: float | None) -> Any:
        self._bootstrap = time.monotonic(), math.inf if deadline is None else deadline
        self._wrong.begin()
        late = self._net.call_later(
            SAY_AFTER_S, lambda: self._reach.warn_unreachable(self._everyone(), self._goes_on())
        )
        try:
            result = await super()._do_bootstrap(deadline)
            self._note_met()
            self._unmet_since = math.inf if self._met_a_broker else time.monotonic()
            return result
        except kafka_errors.KafkaTimeoutError as error:
            if self.last_failure is None:
                raise
            raise kafka_errors.KafkaTimeoutError(self.last_failure) from error
        finally:
            self._bootstrap = None
            if not late.is_done:
                self._net.cancel(late)

    def _everyone(self) -> set[str]:
        """Addresses of all brokers that are known."""
        known = self.cluster.brokers() if self._bootstrap is None else ()
        return {address(node.host, node.port) for node in known or self.cluster.bootstrap_brokers()}

    def _goes_on(self) -> str:
        """How long attempts go on, for the warning."""
        if self._bootstrap is None:
            return "Attempts go on"
        began_s, ends_s = self._bootstrap
        until = min(ends_s, self._wrong.until(began_s, self._bootstrap_addresses()))
        left = "" if until == math.inf else f" for {max(0.0, until - time.monotonic()):.0f} s"
        return f"Attempts go on{left}: are host and port right?"

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        by = time.monotonic() + TCP_CONNECT_S
        connected_by = by if timeout_at is None else min(by, timeout_at)
        sock = await self._connected(node, connected_by)
        if not self.ssl_enabled:
            return TcpTransport(self._net, sock, host=node.host)
        transport = TlsTransport(self._net, sock, host=node.host, ssl_context=self.config["ssl_context"])
        await transport.handshake_until(timeout_at)
        return transport

    async def _connected(self, node: Any, by: float) -> Any:
        """A TCP connection to a broker."""
        options, proxy_url = self.config["socket_options"], self.config["proxy_url"]
        if self._wrong.hangs_up((node.host, node.port)):
            self._wrong.check(*self._tried())
        try:
            sock = await sockets.connected(self._net, (node.host, node.port), options, proxy_url, by)
        except (kafka_errors.KafkaConnectionError, UnicodeError) as error:
            advertised = bool(self._advertiser(node))
            problem = None if proxy_url else self._wrong.problem((node.host, node.port), error, advertised)
            if problem is None:
                raise
            self._wrong.check(*self._tried())
            raise kafka_errors.KafkaConnectionError(problem) from error
        self._wrong.connected((node.host, node.port))
        return sock

    def _note_met(self) -> None:
        self._met_a_broker |= any((broker.host, broker.port) in self._met for broker in self.cluster.brokers())

    def _tried(self) -> tuple[float | None, dict[tuple[str, int], str]]:
        """Since when addresses are tried that may all be wrong, and these, with who advertises each."""
        if self._bootstrap is not None:
            return self._bootstrap[0], dict.fromkeys(self._bootstrap_addresses(), "")
        if self._met_a_broker:
            return None, {}
        return self._unmet_since, {(one.host, one.port): self._advertiser(one) for one in self.cluster.brokers()}

    def _advertiser(self, node: Any) -> str:
        """Who advertises an address that was never reached; empty for another one."""
        place = node.host, node.port
        if place in self._met or place in self._bootstrap_addresses():
            return ""
        return f"node {str(node.node_id).removeprefix(COORDINATOR)} advertises "

    def _bootstrap_addresses(self) -> set[tuple[str, int]]:
        """All of kafka.bootstrap.servers, also those that are tried last."""
        return {(node.host, node.port) for node in self._configured_brokers()}

    async def _connect(self, node: Any, conn: Any, **how: Any) -> None:
        await super()._connect(node, conn, **how)
        # kafka-python has just forgotten it: it takes no error of authentication for one of connecting.
        if conn.init_future.failed() and isinstance(conn.init_future.exception, RefusedError):
            self._auth_failures[node.node_id] = conn.init_future.exception

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **how: Any) -> Any:
        known = self._conns.get(node_id)
        if known is not None and self._moved(node_id, known):
            known.close(_MovedError("the node has moved to another address"))
            known = None
        # Given all the time there is, as bootstrapping gives it, a server that does not answer would use it up.
        setup_ms = self.socket_connection_setup_timeout_ms(node_id)
        if str(node_id).startswith(COORDINATOR):
            setup_ms = connecting_ms(setup_ms, self._session_timeout_ms, self._not_greeted.get(node_id, 0))
        is_cut = timeout_ms is not None and timeout_ms < setup_ms
        timeout_ms = setup_ms if timeout_ms is None else min(timeout_ms, setup_ms)
        try:
            conn = super().get_connection(node_id, timeout_ms, **how)
        except kafka_errors.UnknownBrokerIdError as error:
            # 1. A partition's leader is looked up. 2. Metadata come in which its broker, just killed, is gone. 3. The
            # leader is asked. kafka-python takes that for an error that stays.
            self.cluster.request_update()
            raise kafka_errors.NodeNotReadyError(*error.args) from error
        if conn is not known:
            node = self.cluster.broker_metadata(node_id)
            conn.made_to = node.host, node.port
            conn.begun_s, conn.is_cut = time.monotonic(), is_cut
            conn._reauth = Reauthenticator(conn)
            self._explain(conn, node)
            _check_version(conn, address(node.host, node.port))
            mechanism = mechanism_of(self.config)
            if mechanism is not None and mechanism.looks_first:
                scram.checked(conn, lambda problem: RefusedError(f"{address(node.host, node.port)}: {problem}"))
        return conn

    def _moved(self, node_id: Any, conn: Any) -> bool:
        """Whether an idle connection leads to an address that is not the node's any more.

        1. Brokers come back at each other's addresses. 2. A broker that does not know it yet names an old address. 3.
        The connection leads to another broker. That answers that it does not lead, or coordinate, as long as it is
        asked.
        """
        node = self.cluster.broker_metadata(node_id)
        idle = conn.connected and not conn.in_flight_requests
        return idle and node is not None and conn.made_to != (node.host, node.port)

    def _hung_up(self, node: Any, *, greeted: bool) -> None:
        if self._bootstrap is not None and not self.config["proxy_url"]:
            self._wrong.hung_up((node.host, node.port), self.config["security_protocol"], greeted=greeted)

    def _explain(self, conn: Any, node: Any) -> None:
        lost = conn.connection_lost
        shown = address(node.host, node.port)
        where = f"{shown}{' through kafka.proxy.url' if self.config['proxy_url'] else ''}"

        def lost_with_reason(error: Exception | None) -> None:
            if error is not None and not isinstance(error, _MovedError):
                silent = isinstance(error, kafka_errors.RequestTimedOutError)
                is_new = conn.initializing and not conn.init_future.is_done
                if is_new:
                    by = f"{self._advertiser(node)}{where}"
                    error = explained(by, error, self.config, getattr(conn.transport, "first", b""))
                unclear = silent or (conn.initializing and not is_certain(error))
                # Once in a row: a task whose rows come one by one pauses in each attempt, in an outage, too.
                is_next = conn.begun_s > self._unclear.get((node.host, node.port), math.inf)
                if unclear and self._net.has_paused_since(conn.begun_s) and not is_next:
                    self._unclear.setdefault((node.host, node.port), time.monotonic())
                    lost(error)
                    return
                self._away.add((node.host, node.port))
                if is_new:
                    self._not_greeted[node.node_id] = self._not_greeted.get(node.node_id, 0) + 1
                    why = str(error.args[0])
                    # An attempt that the caller's limit ends may have begun in its last instant.
                    if not (unclear and conn.is_cut and self._refuses == (node.host, node.port)):
                        self.last_failure = why
                        self._refuses = None if unclear else (node.host, node.port)
                    if CLOSED_IN_HANDSHAKE in why:
                        self._hung_up(node, greeted=False)
                    if not isinstance(error, RefusedError) and not self.closed:
                        self._reach.failed(shown, self.last_failure or why, self._everyone(), self._goes_on())
                elif conn.connected:
                    message = error.args[0] if error.args else error
                    known = silent or isinstance(error, ReauthenticationError | kafka_errors.KafkaProtocolError)
                    self.last_failure = f"{where}: {message}{'' if known else suspicion(self.config)}"
                    self._refuses = None
                    if not known:
                        self._hung_up(node, greeted=True)
            lost(error)

        def reached(_: Any) -> None:
            self._away.discard((node.host, node.port))
            self._met.add((node.host, node.port))
            self._note_met()
            self._unclear.pop((node.host, node.port), None)
            self._refuses = None
            self._not_greeted.pop(node.node_id, None)
            self._reach.reached(shown)

        conn.connection_lost = lost_with_reason
        conn.init_future.add_callback(reached)


def _check_version(conn: Any, address: str) -> None:
    """Have `conn` not be made to a broker that cannot be read from."""
    get_api_versions = conn._get_api_versions

    async def checked(timeout_at: float | None = None) -> None:
        await get_api_versions(timeout_at)
        problem = why_not(conn.broker_version_data)
        if problem is not None:
            raise UnsupportedError(f"{address}: {problem}")

    conn._get_api_versions = checked


def net_client(reached_before: bool = False, speaks: bool = True, **configs: Any) -> KafkaNetClient:
    """kafka-python's client, over a :class:`Manager`, which has the parameters."""
    net = Selector(**configs)
    return KafkaNetClient(net=net, manager=Manager(net, reached_before, speaks, **configs))
