"""What the last commit of this Spark application has left, so that the next batch need not be planned like a restart.

A file in the application's temporary directory, as Spark plans and commits in processes of its own. It says that the
last batch was ended as a whole, and that nothing has begun since: the one who plans takes it away. Without it nothing
is wrong, and more is asked of brokers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_group.exactly_once import Decision, Producer
from spark_kafka_group.options.transacting import TransactionOptions


@dataclass(frozen=True)
class LastCommit:
    """The driver's producer then, the last decision of its prefix, and its offset in the decision topic."""

    driver: Producer
    timeout_ms: int
    described: bool
    decision: Decision | None
    offset: int


def take(options: TransactionOptions, directory: Path | None) -> LastCommit | None:
    """The last commit of this application, once; None where there is none, or more has happened since."""
    if directory is None:
        return None
    path = _path(directory, options.prefix)
    try:
        value = json.loads(path.read_bytes())
        if value["where"] != _where(options):
            return None
        path.unlink()
        decision = None if value["decision"] is None else Decision.from_json(value["decision"].encode())
        driver = Producer(*value["driver"])
        return LastCommit(driver, value["timeout_ms"], value["described"], decision, value["offset"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def leave(options: TransactionOptions, directory: Path | None, last: LastCommit) -> None:
    """Say that a batch was ended as a whole."""
    if directory is None:
        return
    value = {
        "where": _where(options),
        "driver": list(last.driver),
        "timeout_ms": last.timeout_ms,
        "described": last.described,
        "decision": None if last.decision is None else last.decision.to_json().decode(),
        "offset": last.offset,
    }
    path = _path(directory, options.prefix)
    written = path.with_suffix(".new")
    written.write_text(json.dumps(value))
    written.replace(path)


def forget(directory: Path | None, prefix: str) -> None:
    """Have the next batch be planned like a restart, as the prefix was taken meanwhile."""
    if directory is not None:
        _path(directory, prefix).unlink(missing_ok=True)


def _path(directory: Path, prefix: str) -> Path:
    return directory / f"groupkafka-transactions-{hashlib.sha256(prefix.encode()).hexdigest()[:20]}.json"


def _where(options: TransactionOptions) -> list[str]:
    """The cluster, and the decision topic in it."""
    return [options.client.connection.bootstrap_servers, options.transacting.decision_topic]
