"""What this Spark application knows of the last batch of a prefix: a file in its temporary directory, as Spark plans,
commits and aborts in processes of its own.

A batch that was ended as a whole lets the next one be planned with one request: the one who plans takes the file away,
so it says, too, that nothing has begun since. A batch that was planned can be aborted by it though no task has said
anything. Without the file nothing is wrong, and the next start asks brokers for more.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_kafka_group.options.transacting import TransactionOptions
from spark_kafka_group.values.exactly_once import Decision, ProducerIdAndEpoch
from spark_kafka_group.values.files import PLANS_PREFIX, file_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LastBatch:
    """The driver's producer then, the last decision of its prefix, and its offset in the decision topic."""

    driver: ProducerIdAndEpoch
    timeout_ms: int
    described: bool
    decision: Decision | None
    offset: int
    ended: bool  # whether the batch was ended as a whole; else it was planned
    # Of a batch that was planned: the sources of the query whose offsets it commits, each with its number of the batch
    sources: tuple[tuple[str, int], ...] = ()


def take_ended(options: TransactionOptions, directory: Path | None) -> LastBatch | None:
    """The last batch, if it was ended as a whole, once; None where it was not, or more has happened since."""
    last = _read(options.prefix, directory, _where(options))
    if last is None or not last.ended or directory is None:
        return None
    _path(directory, options.prefix).unlink()
    return last


def planned_last(options: TransactionOptions, directory: Path | None) -> LastBatch | None:
    """The last batch, if it was planned, and has not ended."""
    last = _read(options.prefix, directory, _where(options)[:-1])  # whatever its timeout: it is not planned again
    return None if last is None or last.ended else last


def planned_with(query_id: str, batch: int, prefix: str, directory: Path | None) -> LastBatch | None:
    """The same, if it is one with this batch of a source, which is of the same cluster, however that is named."""
    last = _read(prefix, directory, [])
    return None if last is None or last.ended or (query_id, batch) not in last.sources else last


def leave(options: TransactionOptions, directory: Path | None, last: LastBatch) -> None:
    """Say that a batch was planned, or ended."""
    if directory is None:
        return
    value = {
        "prefix": options.prefix,
        "where": _where(options),
        "driver": list(last.driver),
        "timeout_ms": last.timeout_ms,
        "described": last.described,
        "decision": None if last.decision is None else last.decision.to_json().decode(),
        "offset": last.offset,
        "ended": last.ended,
        "sources": last.sources,
    }
    path = _path(directory, options.prefix)
    written = path.with_suffix(".new")
    try:
        written.write_text(json.dumps(value))
        written.replace(path)
    except OSError as error:  # the next batch is planned like a restart
        log.warning("kafka.transactional.id %s: cannot write %s: %s", options.prefix, path, error.strerror)
        path.unlink(missing_ok=True)


def forget(directory: Path | None, prefix: str) -> None:
    """Have the next batch be planned like a restart, as the prefix was taken meanwhile, and none be aborted."""
    if directory is not None:
        _path(directory, prefix).unlink(missing_ok=True)


def _read(prefix: str, directory: Path | None, where: list[Any]) -> LastBatch | None:
    """What is known if `where` is how it begins."""
    if directory is None:
        return None
    try:
        value = json.loads(_path(directory, prefix).read_bytes())
        if value["where"][: len(where)] != where:
            return None
        decision = None if value["decision"] is None else Decision.from_json(value["decision"].encode())
        driver = ProducerIdAndEpoch(*value["driver"])
        sources = tuple((query_id, batch) for query_id, batch in value["sources"])
        return LastBatch(
            driver, value["timeout_ms"], value["described"], decision, value["offset"], value["ended"], sources
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(directory: Path, prefix: str) -> Path:
    return directory / f"{PLANS_PREFIX}{file_name(prefix)}.json"


def _where(options: TransactionOptions) -> list[Any]:
    """The cluster, the decision topic in it, and the timeout that was asked for: with another one, a plan is no use."""
    transacting = options.transacting
    return [
        options.client.connection.bootstrap_servers, transacting.decision_topic, transacting.transaction_timeout_ms,
    ]  # fmt: skip
