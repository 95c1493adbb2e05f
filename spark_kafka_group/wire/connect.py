"""What driver and executors share: settings of a connection, limits, and kafka-python's errors as ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError, FencedError, MembershipLostError
from spark_kafka_group.options import Options

LARGEST_BATCH = 128 * 1024 * 1024
"""Bytes that one record batch may have, whatever the fetch options say, so that a large record still gets through."""


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn kafka-python's errors into ours; `doing` says what was being done."""
    try:
        yield
    except kafka_errors.FencedInstanceIdError as error:
        raise FencedError(
            f"{doing}: another process has joined with this query's group.instance.id, so this one must not go on"
        ) from error
    except (
        kafka_errors.CommitFailedError,
        kafka_errors.UnknownMemberIdError,
        kafka_errors.IllegalGenerationError,
    ) as error:
        raise MembershipLostError(f"{doing}: the group no longer counts this driver as a member: {error}") from error
    except (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError) as error:
        raise BrokerTimeoutError(f"{doing}: no answer within kafka.request.timeout.ms: {error}") from error
    except kafka_errors.KafkaError as error:
        raise BrokerError(f"{doing}: {type(error).__name__}: {error}") from error


def connection_configs(options: Options, role: str) -> dict[str, Any]:
    """What every connection needs, as kafka-python names it. Security settings will join here."""
    return {
        "bootstrap_servers": options.bootstrap_servers.split(","),
        "client_id": f"{options.client_id}-{role}",
        "request_timeout_ms": options.request_timeout_ms,
    }


def run_within(manager: Any, timeout_ms: float, call: Callable[[], Any]) -> Any:
    """Run a call of kafka-python on its event loop, and wait so long for the answer; raises kafka-python's errors."""

    async def bounded() -> Any:
        return await manager.wait_for(manager.call_soon(call), timeout_ms)

    return manager.run(bounded)
