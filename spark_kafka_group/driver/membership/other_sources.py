"""Other sources of the same Spark application that are members of the same group.

Spark asks the sources of one query in turn, in processes that know nothing of each other. So each source leaves a file
in a directory that they share, and holds a lock on it as long as it lives.
"""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import IO, Any

from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.text.foreign_text import parsed, printable
from spark_kafka_group.values.files import READERS_FOLDER, file_name, make_folder, put, read_if_locked, remove

log = logging.getLogger(__name__)


class OtherSources:
    """The live sources of one group in one application.

    `directory`: shared by the application's reader processes; None where it is not known, and then no other source is
        seen.
    `query_id`, `subscription`: of this source, for the others. Without membership (``assign``) no other source waits
        for it.
    """

    def __init__(self, directory: Path | None, group_id: str, query_id: str, subscription: Subscription) -> None:
        self._file: IO[str] | None = None
        self._group_id = group_id
        self._query_id = query_id
        self._subscription = subscription
        if directory is None or subscription.manual:
            return
        self._folder = directory / READERS_FOLDER / file_name(group_id)
        self._path = self._folder / f"{file_name(query_id)}.json"
        try:
            make_folder(self._folder, directory)
            self._enter(subscription)
        except OSError as error:
            log.warning("group %s: other sources of this application cannot be detected: %s", group_id, error)
            self.close()

    def any(self) -> bool:
        """Whether there are other sources now."""
        return bool(self._others())

    def apart(self) -> frozenset[str]:
        """Query ids of the other sources that share no topic with this one."""
        return frozenset(other["reader"] for other in self._others() if not _shared(self._subscription, other))

    def close(self) -> None:
        """Remove this source's file. Harmless when repeated."""
        file, self._file = self._file, None
        if file is not None:
            remove(file, self._path)

    def _enter(self, subscription: Subscription) -> None:
        own = {
            "group": self._group_id,
            "reader": self._query_id,
            "topics": sorted(subscription.topics),
            "pattern": subscription.pattern,
        }
        self._file = put(self._path, json.dumps(own))
        for other in self._others():
            shared = _shared(subscription, other)
            if shared:
                log.warning(
                    "group %s: two sources of this Spark application, %s and %s, subscribe to %s: the group deals the "
                    "partitions between them, so each reads only a part. That is right for queries that share the "
                    "work. For a self-join, or for queries that each read everything, give each source a "
                    "kafka.group.id of its own, or none",
                    self._group_id, printable(other["reader"]), printable(self._query_id), printable(", ".join(shared)),
                )  # fmt: skip

    def _others(self) -> list[dict[str, Any]]:
        if self._file is None:
            return []
        others = []
        for path in sorted(self._folder.glob("*.json")):
            if path == self._path:
                continue
            with contextlib.suppress(OSError, ValueError):
                text = read_if_locked(path)
                if text is not None:
                    others.append(parsed(text))
        return others


def _shared(subscription: Subscription, other: dict[str, Any]) -> list[str]:
    """Topics, or the pattern, that both subscribe to, by their names."""
    shared = {topic for topic in other["topics"] if subscription.includes(topic)}
    pattern = other["pattern"]
    if pattern is not None:
        theirs = Subscription(pattern=pattern)
        shared |= {topic for topic in subscription.topics if theirs.includes(topic)}
        shared |= {pattern} if pattern == subscription.pattern else set()
    return sorted(shared)
