"""Settings of connections, time limits, and kafka-python's errors as ours, for driver and executors."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka import KafkaConsumer
from kafka.net.compat import KafkaNetClient

from spark_kafka_group.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    FencedError,
    GroupKafkaError,
    MembershipLostError,
    UnsupportedVersionError,
)
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.wire.client.leaderless import wait_for_leaders
from spark_kafka_group.wire.client.manager import net_client
from spark_kafka_group.wire.client.refusals import RefusedError, UnsupportedError, WrongAddressError
from spark_kafka_group.wire.client.security_configs import security_configs
from spark_kafka_group.wire.client.sockets import noticing
from spark_kafka_group.wire.coordinator_responses import UNKNOWN_TOPIC, Answers, LongUnknownError, Refusal, refusal_of
from spark_kafka_group.wire.reactions import RETRIED, Facts, Reaction, Request, name_of, reaction_to

T = TypeVar("T")

RETRY_BACKOFF_S = 0.1
LARGEST_BATCH = 128 * 1024 * 1024
"""Bytes that one record batch may have even where fetch options say less, so that a large record still arrives."""

OUT_OF_TIME = (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError)
NOT_A_MEMBER = (kafka_errors.CommitFailedError, kafka_errors.RebalanceInProgressError)
"""Errors that kafka-python raises before it sends a commit."""
DENIED = ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
OF_OURS: dict[type[Exception], type[GroupKafkaError]] = {
    UnsupportedError: UnsupportedVersionError,
    WrongAddressError: BrokerError,
    RefusedError: AuthenticationError,
}
"""The connection manager's errors, which have reasons of their own."""

REQUEST_TIMEOUT, API_TIMEOUT = "kafka.request.timeout.ms", "kafka.default.api.timeout.ms"


@contextlib.contextmanager
def translated(
    doing: str,
    answers: Answers | None = None,
    limit: str = REQUEST_TIMEOUT,
    failure: Callable[[], str | None] = lambda: None,
) -> Iterator[None]:
    """Turn kafka-python's errors into ours. `doing`: the action, for the error's text. `answers`: the coordinator's
    answers meanwhile, where errors that may pass are retried until the limit. `limit`: the option that sets the limit.
    `failure`: returns why the last connection failed, for the text at the limit."""
    if answers is not None:
        answers.forget()
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise _ours(doing, error, answers, limit, failure) from error


def _ours(
    doing: str, error: Exception, answers: Answers | None, limit: str, failure: Callable[[], str | None]
) -> GroupKafkaError:
    if isinstance(error, LongUnknownError):
        return BrokerTimeoutError(f"{doing}: {error.args[0]}", UNKNOWN_TOPIC)
    for kind, ours in OF_OURS.items():
        if isinstance(error, kind):
            return ours(f"{doing}: {error}")
    refusal = refusal_of(error)
    reaction = None if refusal is None else refusal.reaction
    retried = answers is not None and reaction_to(error) in RETRIED
    if reaction in RETRIED or retried or isinstance(error, OUT_OF_TIME):
        return _out_of_time(doing, error, answers, limit, failure)
    passing = _answered(error)
    if refusal is None and passing is not None:
        return BrokerError(f"{doing}: {passing.describe(Facts())}")
    if isinstance(error, kafka_errors.NodeNotReadyError) and (why := failure()):
        return BrokerError(f"{doing}: {why}")
    if refusal is None:
        lost = isinstance(error, NOT_A_MEMBER)
        return (MembershipLostError if lost else BrokerError)(f"{doing}: {type(error).__name__}: {error}")
    return _refused(f"{doing}: {refusal.describe(Facts() if answers is None else answers.facts)}", refusal)


def _refused(message: str, refusal: Refusal) -> GroupKafkaError:
    if refusal.lacks:
        return UnsupportedVersionError(message)
    match refusal.reaction:
        case Reaction.FENCED:
            return FencedError(message)
        case Reaction.RETAKE | Reaction.JOIN_AS_NEW:
            return MembershipLostError(f"{message}: {refusal.reaction.value}")
        case _:
            return (AuthorizationError if refusal.error in DENIED else BrokerError)(message)


def _out_of_time(
    doing: str, error: Exception, answers: Answers | None, limit: str, failure: Callable[[], str | None]
) -> BrokerTimeoutError:
    """With the last answer, or the reason why none came."""
    last = answers and answers.last_described()
    if last:
        answered = answers.last.error if answers is not None and answers.last is not None else None
        return BrokerTimeoutError(f"{doing}: {limit} is over, {last}", answered)
    refusal = refusal_of(error) or _answered(error)
    if refusal is not None:
        facts = Facts() if answers is None else answers.facts
        return BrokerTimeoutError(f"{doing}: {limit} is over, last answer: {refusal.describe(facts)}", refusal.error)
    why = error.args[0] if isinstance(error, OUT_OF_TIME) and error.args and error.args[0] else failure() or error
    return BrokerTimeoutError(f"{doing}: no answer within {limit}: {why}")


def _answered(error: Exception) -> Refusal | None:
    """A broker's answer that may pass; kafka-python has the same class for a request that is not answered in time."""
    if isinstance(error, OUT_OF_TIME) or not isinstance(error, kafka_errors.BrokerResponseError):
        return None
    return Refusal(name_of(type(error)))


def connection_configs(options: ClientOptions, role: str) -> dict[str, Any]:
    """Settings of every connection, by kafka-python's names. Raises OptionError when a file cannot be read."""
    return (
        security_configs(options.security)
        | options.connection.passed_on()
        | {
            "bootstrap_servers": options.connection.bootstrap_servers.split(","),
            "client_id": f"{options.connection.client_id}-{role}",
            "request_timeout_ms": options.connection.request_timeout_ms,
            "metadata_recovery_strategy": options.connection.metadata_recovery_strategy,  # of our Manager
            "socket_options": _socket_options(options),
        }
    )


def _socket_options(options: ClientOptions) -> list[tuple[int, int, int]]:
    buffers = {
        socket.SO_RCVBUF: options.connection.receive_buffer_bytes,
        socket.SO_SNDBUF: options.connection.send_buffer_bytes,
    }
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        *noticing(),
        *((socket.SOL_SOCKET, name, size) for name, size in buffers.items() if size is not None),
    ]


def reached_client(
    configs: Mapping[str, Any], within_ms: float, reached_before: bool, speaks: bool = True
) -> KafkaNetClient:
    """A client of kafka-python's, without a thread, that has reached a broker; raises kafka-python's errors. `configs`:
    of :func:`connection_configs`, changed or not. `speaks`, `reached_before`: as of :func:`connected`."""
    client = net_client(reached_before, speaks, **configs)
    try:
        client._manager.bootstrap(within_ms)
    except BaseException:
        client.close()
        raise
    return client


def connected_consumer(options: ClientOptions, role: str, **configs: Any) -> KafkaConsumer:
    """A KafkaConsumer that has reached a broker and commits nothing by itself. Raises BrokerError."""
    consumer = connected(KafkaConsumer, options, role, enable_auto_commit=False, **configs)
    wait_for_leaders(consumer)
    return consumer


def connected(
    kind: type[T], options: ClientOptions, role: str, speaks: bool = True, reached_before: bool = False, **configs: Any
) -> T:
    """A client of kafka-python's that has reached a broker. `speaks`: whether it logs that no broker can be reached.
    `reached_before`: as of :class:`Manager`. Raises BrokerError."""
    clients: list[KafkaNetClient] = []
    connection = connection_configs(options, role)
    unknown = {name: connection.pop(name) for name in set(connection) - set(kind.DEFAULT_CONFIG)}  # type: ignore[attr-defined]

    def make_client(**configs: Any) -> KafkaNetClient:
        clients.append(net_client(reached_before, speaks, **configs | unknown))
        return clients[-1]

    always = connection | {
        "bootstrap_timeout_ms": options.connection.request_timeout_ms,
        "metrics_enabled": False,
        "kafka_client": make_client,
    }
    try:
        with translated(f"connecting to {options.connection.bootstrap_servers}"):
            return kind(**always | configs)
    except BaseException:
        # kafka-python's constructor starts the I/O thread before it fails, and the caller has no object to close.
        for client in clients:
            client.close()
        raise


def retried(
    deadline: float,
    call: Callable[[float], T],
    request: Request | None = None,
    pause_s: float = RETRY_BACKOFF_S,
) -> T:
    """`call` with the milliseconds left until it raises no error by which `request` is made again, at most to
    `deadline` (time.monotonic). A broker's last answer is raised in place of the timeout of the attempt after it."""
    answer: kafka_errors.KafkaError | None = None
    while True:
        try:
            return call(ms_until(deadline))
        except kafka_errors.KafkaError as error:
            if reaction_to(error, request) not in RETRIED or time.monotonic() + pause_s >= deadline:
                if answer is not None and isinstance(error, OUT_OF_TIME):
                    raise answer from error
                raise
            answer = None if _answered(error) is None else error
            time.sleep(pause_s)


def ms_until(deadline: float) -> float:
    """Milliseconds until then; at least one, as kafka-python takes none for no limit."""
    return max(1.0, (deadline - time.monotonic()) * 1000)


def run_within(manager: Any, timeout_ms: float, call: Callable[[], Any]) -> Any:
    """Run a call of kafka-python on its event loop, and wait so long for the answer; raises kafka-python's errors."""

    async def bounded() -> Any:
        return await manager.wait_for(manager.call_soon(call), timeout_ms)

    return manager.run(bounded)
