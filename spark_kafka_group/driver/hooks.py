"""The user's code that the driver calls: a rebalance listener, and interceptors of commits.

A hook that raises is an error in the log, with its traceback, and is counted; the query goes on. Failing it would not
undo what happened, and after a restart the hook would raise again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.options import Options
from spark_kafka_group.options.group import LISTENER_METHODS
from spark_kafka_group.options.reading import INTERCEPTOR_METHODS
from spark_kafka_group.values import user_classes
from spark_kafka_group.values.offsets import TopicPartition

log = logging.getLogger(__name__)


class Hooks:
    """The user's rebalance listener and interceptors, made once per query. Raises OptionError when that fails."""

    def __init__(self, options: Options, metrics: Metrics) -> None:
        self._metrics = metrics
        self._listener: Any = None
        if options.group.rebalance_listener is not None:
            self._listener = user_classes.make("rebalanceListener", options.group.rebalance_listener, LISTENER_METHODS)
        made = [
            user_classes.make("interceptors", named, (), INTERCEPTOR_METHODS) for named in options.reading.interceptors
        ]
        self._interceptors = [i for i in made if callable(getattr(i, "on_commit", None))]

    def partitions_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener before a rebalance, after the commit."""
        if self._listener is not None:
            self._call(self._listener.on_partitions_revoked, set(tps))

    def partitions_assigned(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener after a rebalance."""
        if self._listener is not None:
            self._call(self._listener.on_partitions_assigned, set(tps))

    def partitions_lost(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener after membership was lost: others may own the partitions already."""
        if self._listener is not None:
            self._call(self._listener.on_partitions_lost, set(tps))

    def committed(self, offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        """Call the interceptors after a commit, with its error if it failed."""
        for interceptor in self._interceptors:
            self._call(interceptor.on_commit, dict(offsets), error)

    def _call(self, hook: Callable[..., object], *arguments: object) -> None:
        try:
            hook(*arguments)
        except user_classes.PASSED_ON:
            raise
        except BaseException:
            self._metrics.hook_errors += 1
            log.exception("%s of your own code raised an error; the query goes on", getattr(hook, "__qualname__", hook))
