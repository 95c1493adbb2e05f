"""Connections of this Python worker, kept from task to task: Spark reuses its workers."""

from __future__ import annotations

import dataclasses
import os

from spark_kafka_group.options import Options
from spark_kafka_group.security import Security
from spark_kafka_group.wire import Brokers

CONNECTED_BY = {
    *(field.name for field in dataclasses.fields(Options) if field.metadata["passed_on"]),
    *(field.name for field in dataclasses.fields(Security)),
    "bootstrap_servers", "client_id", "request_timeout_ms", "metadata_max_age_ms",
    "receive_buffer_bytes", "send_buffer_bytes", "fetch_offset_num_retries", "fetch_offset_retry_interval_ms",
    "fetch_min_bytes", "fetch_max_bytes", "fetch_max_wait_ms", "max_partition_fetch_bytes", "isolation_level",
}  # fmt: skip
"""Options that say how brokers are reached and asked, whatever is read."""

_brokers: dict[tuple[int, Options], Brokers] = {}


def brokers_for(options: Options) -> Brokers:
    """The cluster that `options` name, with its open connections.

    Keyed by the process too: a worker forked from one with open connections must not use them.
    """
    # Reads of other topics, offsets or groups share connections; nor can these depend on what is not in the key.
    reached = Options(**{name: getattr(options, name) for name in CONNECTED_BY})
    key = (os.getpid(), reached)
    if key not in _brokers:
        _brokers[key] = Brokers(reached)
    return _brokers[key]
