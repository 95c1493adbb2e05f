"""``transactions``: the transactions of an exactly-once write, listed, and ended; also of a query that was stopped.

Spark calls for that itself, but not where it stops a query that waits for the commit (`deciding.abort_left`). The
source of the query does it where it commits its offsets with the write; this is for the queries with other sources.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_group.options import parsing
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.tools.admin_connection import connected
from spark_kafka_group.tools.arguments import Commands, UsageError, add_cluster_arguments, add_command
from spark_kafka_group.tools.formatting import partitions, sentence, table
from spark_kafka_group.transactions.mending import Choice, SeenTransactions, end, look, steps
from spark_kafka_group.values.exactly_once import Decision, State
from spark_kafka_group.values.files import PLANS_PREFIX
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from spark_kafka_group.wire.transactions.transaction_ends import End

SUMMARY = "list, commit or abort the transactions of an exactly-once write"
DESCRIPTION = """\
Shows the open transactions of a write with deliveryGuarantee=exactly-once, and
the last micro-batch that was decided to be published. Readers of committed
records wait for transactions that are open.

With --execute, commit and abort end them, as the next start of the query does:
those of the decided batch are committed, all others are aborted. They differ
only if a part of the decided batch was published, and the other part was lost,
which stops the query until one of them was called:

  commit   the batch counts as published, without what is lost
  abort    the batch is written again when the query starts, and so what was
           published is there twice

Without --execute they say what they would do. Stop the query first: a query
that runs is fenced by them, and stops.
"""
LIST = "list"
OF_STATE = {
    State.DECIDED: "is to be published",
    State.REVOKED: "was not published, and is written again at the next start",
    State.SETTLED: "counts as published, without what was lost",
    State.ENDED: "was published",
}


def add_to(commands: Commands) -> None:
    parser = add_command(commands, "transactions", SUMMARY, DESCRIPTION)
    add_cluster_arguments(parser)
    parser.add_argument(
        "--transactional-id", required=True, type=_prefix, metavar="PREFIX", help="the write's kafka.transactional.id"
    )
    parser.add_argument(
        "--decision-topic",
        default=DECISION_TOPIC,
        metavar="TOPIC",
        help=f"its decisionTopic (default {DECISION_TOPIC})",
    )
    parser.add_argument("--execute", action="store_true", help="commit or abort; without it nothing is changed")
    parser.add_argument(
        "action",
        nargs="?",
        choices=(LIST, Choice.COMMIT.value, Choice.ABORT.value),
        default=LIST,
        help="list if not given",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show them, say what is to be done, and do it if --execute is given."""
    prefix = args.transactional_id
    if args.execute and args.action == LIST:
        raise UsageError("--execute needs commit or abort: say which")
    with connected(
        args, lambda options: TransactionClient(options, "transactions", options.connection.request_timeout_ms)
    ) as client:
        decisions = DecisionLog(client, args.decision_topic)
        seen = look(client, decisions, prefix)
        _print_json(seen) if args.json else _print(seen)
        if args.action == LIST:
            return 0
        choice = Choice(args.action)
        to_do = steps(seen, choice)
        is_decided = seen.decision is not None and seen.decision.state is State.DECIDED
        published = ", and the decided batch is published" if is_decided else ""
        _say(args, to_do or [f"nothing: no transaction is open{published}"])
        if args.execute and to_do:
            end(client, decisions, prefix, choice)
            if not args.json:
                print("Done.")
    return 0


def _say(args: argparse.Namespace, to_do: list[str]) -> None:
    if args.json:
        for step in to_do:
            print(json.dumps({"kind": "step", "step": step, "executed": args.execute}))
        return
    print("\nTo do:" if args.execute else "\nWith --execute:")
    for step in to_do:
        print(sentence(f"  {step}"), flush=True)


def _print(seen: SeenTransactions) -> None:
    now_ms = time.time() * 1000
    rows = [
        (
            one.transactional_id, one.state, one.producer.producer_id, one.producer.epoch,
            f"{max(0, now_ms - one.started_ms) / 1000:.0f} of {one.timeout_ms / 1000:.0f}",
            partitions(one.partitions), "-" if one.transactional_id in seen.others else "commit",
        )
        for one in seen.open
    ]  # fmt: skip
    headers = ("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "EPOCH", "AGE-S", "PARTITIONS", "DECISION")
    print(table(headers, rows) if rows else f"no transaction of {printable(seen.prefix)} is open")
    print("\n" + sentence(_decision(seen, seen.decision)), flush=True)


def _decision(seen: SeenTransactions, decision: Decision | None) -> str:
    if decision is None:
        return f"No batch of {printable(seen.prefix)} was decided yet, or that is not a kafka.transactional.id"
    ends = [None if one is None else one.value for one in seen.ends.values()]
    counted = ", ".join(f"{ends.count(end)} {end or 'open'}" for end in sorted(set(ends), key=str))
    if decision.state is State.DECIDED and ends and set(ends) == {End.COMMITTED.value}:
        return f"{str(decision.batch).capitalize()} is published: all of its transactions are committed."
    how = f": of its transactions {counted}" if counted else ""
    return f"{str(decision.batch).capitalize()} {OF_STATE[decision.state]}{how}."


def _print_json(seen: SeenTransactions) -> None:
    for one in seen.open:
        line = {
            "kind": "transaction", "transactional_id": one.transactional_id, "state": one.state,
            "producer_id": one.producer.producer_id, "epoch": one.producer.epoch, "started_ms": one.started_ms,
            "timeout_ms": one.timeout_ms, "partitions": [list(tp) for tp in one.partitions],
            "decided": one.transactional_id not in seen.others,
        }  # fmt: skip
        print(json.dumps(line))
    if seen.decision is not None:
        line = {
            "kind": "decision", "state": seen.decision.state.value, "query": seen.decision.batch.query,
            "batch": seen.decision.batch.batch,
            "ends": {one: None if end is None else end.value for one, end in seen.ends.items()},
        }  # fmt: skip
        print(json.dumps(line), flush=True)


def _prefix(text: str) -> str:
    try:
        return parsing.name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


ABORTED_WITHIN_S = 5.0  # how long the end of a program may wait for brokers


def planned_writes(folder: Path) -> Iterator[tuple[str, int]]:
    """Of the exactly-once writes that were planned, and not ended: kafka.transactional.id, and the timeout in
    milliseconds of their transactions. `folder`: shared by the processes of the Spark application."""
    for path in sorted(folder.glob(f"{PLANS_PREFIX}*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads(path.read_bytes())
            if not value["ended"]:
                yield value["prefix"], value["timeout_ms"]


def abort_planned(folder: Path, queries: Iterable[StreamingQuery]) -> None:
    """Abort what these queries have left open, now that they have stopped; what cannot be aborted stays planned."""
    until = time.monotonic() + ABORTED_WITHIN_S
    for query in queries:
        left_s = until - time.monotonic()
        if left_s > 0 and any(planned_writes(folder)):
            with contextlib.suppress(Exception):  # of Spark's, by its inner names, and of brokers': see planned_writes
                _abort(folder, _written_with(query), int(left_s * 1000))


def _written_with(query: StreamingQuery) -> dict[str, str]:
    """The options of its sink, from the plan that Spark repeats for each batch; empty before the first."""
    execution: Any = query._jsq.streamingQuery()
    if execution.lastExecution() is None or SparkContext._jvm is None:
        return {}  # before that, to ask for the plan would make it
    options = execution.logicalPlan().writeOptions()
    return dict(SparkContext._jvm.scala.jdk.javaapi.CollectionConverters.asJava(options))


def _abort(folder: Path, written_with: dict[str, str], limit_ms: int) -> None:
    from spark_kafka_group.options.sink_options import SinkOptions
    from spark_kafka_group.transactions import last_batch
    from spark_kafka_group.transactions.deciding import abort_left

    options = SinkOptions.parse(written_with)
    write = replace(options.transactions, limit_ms=limit_ms)
    planned = last_batch.planned_last(write, folder) if options.is_exactly_once else None
    if planned is not None:
        abort_left(write, planned, lambda: last_batch.planned_last(write, folder), folder)
