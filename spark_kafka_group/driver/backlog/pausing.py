"""Which partitions are paused: those of option pausePartitions, and those that a file names at the moment."""

from __future__ import annotations

import logging
from pathlib import Path

from spark_kafka_group.options import parsing
from spark_kafka_group.values.files import read_file
from spark_kafka_group.values.offsets import TopicPartition

log = logging.getLogger(__name__)


class PausedPartitions:
    """Partitions of which nothing is read for now.

    Parameters
    ----------
    always
        Those of option pausePartitions.
    path
        File of option pauseFile. While it does not exist it names none; a file that cannot be read is a warning, and
        the partitions that it named before stay paused.
    """

    def __init__(self, always: frozenset[TopicPartition], path: str | None) -> None:
        self._always = always
        self._path = Path(path) if path is not None else None
        self._seen: bytes | None = None
        self._named: frozenset[TopicPartition] = frozenset()

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are paused now."""
        if self._path is not None:
            self._look(self._path)
        return self._always | self._named

    def _look(self, path: Path) -> None:
        try:
            raw = read_file(path)
        except FileNotFoundError:
            raw = b"{}"
        except OSError as error:
            log.warning("pauseFile (%s) cannot be read: %s", path, error.strerror)
            return
        if raw == self._seen:
            return
        self._seen = raw
        try:
            named = parsing.partitions(raw.decode())
        except ValueError as error:
            log.warning("pauseFile (%s) %s; these partitions stay paused: %s", path, error, _listed(self._named))
            return
        if named != self._named:
            log.info("paused by %s: %s", path, _listed(named))
        self._named = named


def _listed(tps: frozenset[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps))) or "none"
