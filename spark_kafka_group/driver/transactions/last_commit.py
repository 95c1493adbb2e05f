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
    path, taken = _path(options, directory), _path(options, directory).with_suffix(".taken")
    try:
        path.replace(taken)
        value = json.loads(taken.read_bytes())
        taken.unlink()
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
        "driver": list(last.driver),
        "timeout_ms": last.timeout_ms,
        "described": last.described,
        "decision": None if last.decision is None else last.decision.to_json().decode(),
        "offset": last.offset,
    }
    path = _path(options, directory)
    written = path.with_suffix(".new")
    written.write_text(json.dumps(value))
    written.replace(path)


def _path(options: TransactionOptions, directory: Path) -> Path:
    """The file of a prefix of a cluster."""
    about = [options.client.connection.bootstrap_servers, options.transacting.decision_topic, options.prefix]
    return directory / f"groupkafka-transactions-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:20]}.json"
