"""Clients of transaction coordinators that a process keeps: Spark plans, commits and runs tasks in few processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from spark_kafka_group.options.transacting import TransactionOptions
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

_kept: dict[tuple[int, str, TransactionOptions], TransactionClient] = {}
"""By the process, too: connections of a process that forked this one are not its own."""


@contextlib.contextmanager
def kept_client(options: TransactionOptions, role: str, reached_before: bool = True) -> Iterator[TransactionClient]:
    """A client that the next one with these options gets, too, unless there was an error. For one thread.

    Parameters
    ----------
    reached_before
        As of :class:`TransactionClient`: only the first plan of an application does not know it.

    Raises
    ------
    BrokerError
        When no broker can be reached.
    """
    key = (os.getpid(), role, options)
    client = _kept.pop(key, None) or TransactionClient(options.client, role, options.limit_ms, reached_before)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    replaced, _kept[key] = _kept.get(key), client
    if replaced is not None:
        replaced.close()


def close_all() -> None:
    """Close connections that are not in use."""
    while _kept:
        _kept.popitem()[1].close()
