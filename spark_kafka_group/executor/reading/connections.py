"""Connections of this Python worker, kept from task to task: Spark reuses its workers."""

from __future__ import annotations

import os

from spark_kafka_group.options import ClientOptions, Options
from spark_kafka_group.wire import Brokers

_brokers: dict[tuple[int, ClientOptions], Brokers] = {}


def brokers_for(options: Options) -> Brokers:
    """The cluster that `options` name, with its open connections; reads of other topics, offsets or groups share them.

    Keyed by the process too: a worker forked from one with open connections must not use them.
    """
    key = (os.getpid(), options.client)
    if key not in _brokers:
        _brokers[key] = Brokers(options.client)
    return _brokers[key]
