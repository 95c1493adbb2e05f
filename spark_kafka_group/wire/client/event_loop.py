"""kafka-python's event loop, as this package's clients run it."""

from __future__ import annotations

from kafka.net.selector import NetworkSelector

from spark_kafka_group.wire.client.connection_log import about_ours
from spark_kafka_group.wire.client.signals import put_off


class Selector(NetworkSelector):  # type: ignore[misc]
    """Runs on a thread of its own, or on that of the caller, who may be the main thread."""

    def _poll_once(self, timeout: float | None = None) -> None:
        with put_off(self.wakeup), about_ours():
            super()._poll_once(timeout)
