"""Other sources of the same Spark application that are members of the same group.

Spark asks the sources of one query one after the other, in processes of their own that know nothing of each other, so
one that waits for another one's batch would wait for itself. So each leaves a file in a directory that
they share, and holds a lock on it as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import IO, Any

from spark_kafka_group.files import READERS_FOLDER
from spark_kafka_group.json_text import parsed
from spark_kafka_group.options.subscription import Subscription
from spark_kafka_group.printable import printable

log = logging.getLogger(__name__)


class Siblings:
    """The live sources of one group in one application.

    Parameters
    ----------
    directory
        Shared by the application's reader processes; None where it is not known, and then no siblings are seen.
    reader, subscription
        Of this source, for the others. Without membership (``assign``) no other source waits for it.
    """

    def __init__(self, directory: Path | None, group_id: str, reader: str, subscription: Subscription) -> None:
        self._file: IO[str] | None = None
        self._group_id = group_id
        self._reader = reader
        self._subscription = subscription
        if directory is None or subscription.manual:
            return
        self._folder = directory / READERS_FOLDER / _file_name(group_id)
        self._path = self._folder / f"{_file_name(reader)}.json"
        try:
            self._enter(subscription)
        except OSError as error:
            log.warning("group %s: other sources of this application cannot be detected: %s", group_id, error)
            self.close()

    def any(self) -> bool:
        """Whether there are others now."""
        return bool(self._others())

    def apart(self) -> frozenset[str]:
        """Readers of those that share no topic with this source."""
        return frozenset(other["reader"] for other in self._others() if not _shared(self._subscription, other))

    def close(self) -> None:
        """Remove this source's file. Harmless when repeated."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                if _same(file, self._path):  # or a source with the same reader id has come since
                    self._path.unlink()
            file.close()

    def _enter(self, subscription: Subscription) -> None:
        self._folder.parent.mkdir(exist_ok=True)  # never the directory itself: without it the application is over
        self._folder.mkdir(exist_ok=True)
        # 1. This source makes its file. 2. Another one lists the directory, and takes a file without a lock for one
        #    that a dead process left behind. So the file is locked before it gets the name that is listed.
        new = self._path.with_suffix(f".{id(self)}.new")
        self._file = new.open("w", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        own = {"reader": self._reader, "topics": sorted(subscription.topics), "pattern": subscription.pattern}
        self._file.write(json.dumps(own))
        self._file.flush()
        new.rename(self._path)
        for other in self._others():
            shared = _shared(subscription, other)
            if shared:
                log.warning(
                    "group %s: two sources of this Spark application, %s and %s, subscribe to %s: the group deals the "
                    "partitions between them, so each reads only a part. That is right for queries that share the "
                    "work. For a self-join, or for queries that each read everything, give each source a "
                    "kafka.group.id of its own, or none",
                    self._group_id, printable(other["reader"]), printable(self._reader), printable(", ".join(shared)),
                )  # fmt: skip

    def _others(self) -> list[dict[str, Any]]:
        if self._file is None:
            return []
        others = []
        for path in sorted(self._folder.glob("*.json")):
            if path == self._path:
                continue
            with contextlib.suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
                if _is_locked(file):
                    others.append(parsed(file.read()))
        return others


def _file_name(name: str) -> str:
    """A file's name for any name: a checkpoint may hold a reader id that is a path."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _same(file: IO[str], path: Path) -> bool:
    return os.path.samestat(os.fstat(file.fileno()), path.stat())


def _shared(subscription: Subscription, other: dict[str, Any]) -> list[str]:
    """Topics, or the pattern, that both subscribe to, by their names."""
    shared = {topic for topic in other["topics"] if subscription.includes(topic)}
    pattern = other["pattern"]
    if pattern is not None:
        theirs = Subscription(pattern=pattern)
        shared |= {topic for topic in subscription.topics if theirs.includes(topic)}
        shared |= {pattern} if pattern == subscription.pattern else set()
    return sorted(shared)
