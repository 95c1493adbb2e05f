"""Connections of this Python worker, kept from task to task: Spark reuses its workers."""

from __future__ import annotations

import dataclasses
import os

from spark_kafka_group.options import Options
from spark_kafka_group.wire import Brokers

_brokers: dict[tuple[int, Options], Brokers] = {}


def brokers_for(options: Options) -> Brokers:
    """The cluster that `options` name, with its open connections.

    Keyed by the process too: a worker forked from one with open connections must not use them.
    """
    # Batch reads of different ranges share connections.
    key = (os.getpid(), dataclasses.replace(options, starting_offsets=None, ending_offsets=None))
    if key not in _brokers:
        _brokers[key] = Brokers(options)
    return _brokers[key]
