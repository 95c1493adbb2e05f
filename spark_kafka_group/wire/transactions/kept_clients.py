"""Clients of transaction coordinators that a process keeps: Spark plans, commits and runs tasks in few processes.

Not beside :class:`KeptConnections`: a task that writes without transactions keeps connections, and imports no client of
transactions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from spark_kafka_group.options.transacting import TransactionOptions
from spark_kafka_group.wire.leaders import KeptConnections
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

_kept: KeptConnections[tuple[str, TransactionOptions], TransactionClient] = KeptConnections(TransactionClient.close)
close_all = _kept.close_all


@contextlib.contextmanager
def kept_client(options: TransactionOptions, role: str, reached_before: bool = True) -> Iterator[TransactionClient]:
    """A client that the next one with these options gets, too, unless there was an error. For one thread.
    `reached_before`: as of :class:`TransactionClient`: only the first plan of an application does not know it. Raises
    BrokerError when no broker can be reached."""
    key = role, options
    client = _kept.pop(key) or TransactionClient(options.client, role, options.limit_ms, reached_before)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _kept.keep(key, client)
