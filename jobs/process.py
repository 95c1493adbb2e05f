"""Hand each record of Kafka topics to a Python function; a line of progress per batch.

    spark-submit --properties-file conf/spark-defaults.conf --py-files shop.py jobs/process.py \
        --bootstrap-servers localhost:9092 --group billing --topics orders --handler shop:charge \
        --checkpoint /data/billing.checkpoint --retry-topics 60000,600000 --dead-letter-topic '{topic}-dlt' \
        [--output-topic invoices] [--exactly-once] [--available-now]

The function gets a spark_kafka_group.Record, and may be an async def. A record has failed when it raises; it is tried
again, then goes to the retry topics, then to the dead-letter topic. What it returns, ProducerRecords, goes to their
topics, or to --output-topic. Offsets are committed when every record of a batch is done or is in one of the topics for
failures. With --exactly-once all that goes to topics becomes visible together with the committed offsets, once, for
consumers that read with isolation.level=read_committed. Without --available-now it runs until it is stopped (Ctrl-C,
SIGTERM).
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_kafka_group import Processed, RecordProcessor, submit


def arguments() -> argparse.Namespace:
    parser = submit.parser(__doc__)
    parser.add_argument(
        "--handler", required=True, metavar="MODULE:FUNCTION", help="the function that handles a record"
    )
    parser.add_argument("--checkpoint", required=True, help="directory of the query's checkpoint")
    parser.add_argument("--ordering", default="partition", choices=("partition", "key", "unordered"))
    parser.add_argument("--threads", type=int, default=16, help="handlers at once in a task (default: %(default)s)")
    parser.add_argument("--cell-records", type=int, default=100, help="records of a cell (default: %(default)s)")
    parser.add_argument("--window-cells", type=int, default=32, help="cells in flight in a task (default: %(default)s)")
    parser.add_argument(
        "--stall-timeout-ms",
        type=int,
        default=300_000,
        help="a handler that takes longer has failed (default: %(default)s)",
    )
    parser.add_argument(
        "--max-local-retries", type=int, default=3, help="further tries before a retry topic (default: %(default)s)"
    )
    parser.add_argument(
        "--retry-topics", default="", metavar="MS,...", help="delays in ms, of the topics <topic>-retry-<ms>"
    )
    parser.add_argument("--dead-letter-topic", help="the topic for records that still fail, for example {topic}-dlt")
    parser.add_argument("--error-headers", default="connect", choices=("connect", "spring", "kip1191"))
    parser.add_argument(
        "--fatal", action="append", default=[], metavar="MODULE:CLASS", help="an exception that is not tried again"
    )
    parser.add_argument("--output-topic", help="the topic for records that the function returns and that name none")
    parser.add_argument(
        "--exactly-once",
        action="store_true",
        help="write in transactions, with --group as kafka.transactional.id; reads committed records only",
    )
    parser.add_argument("--available-now", action="store_true", help="handle all records up to now, then end")
    parser.add_argument("--trigger", default="1 second", help="interval of micro-batches (default: %(default)s)")
    submit.add_sink_option(parser)
    return with_options(parser.parse_args())


def with_options(args: argparse.Namespace) -> argparse.Namespace:
    """With the options of the source, and those of the sink."""
    more = {"retryTopics": args.retry_topics} if args.retry_topics else {}
    if args.exactly_once:
        more |= {"kafka.transactional.id": args.group, "kafka.isolation.level": "read_committed"}
    args.options = submit.options(args, **{"kafka.auto.offset.reset": "earliest", "includeHeaders": "true"}, **more)
    args.write_options = write_options(args)
    return args


def write_options(args: argparse.Namespace) -> dict[str, str]:
    """The options that the sink alone has."""
    own = {} if args.output_topic is None else {"topic": args.output_topic}
    if args.exactly_once:
        own |= {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": args.group}
    options = submit.sink_options(args, **own)
    return {name: value for name, value in options.items() if args.options.get(name) != value}


def named(text: str) -> Any:
    """The object module:name, also from the working directory."""
    module, _, name = text.partition(":")
    if not name or not module or module.startswith("."):
        raise SystemExit(f"{text} is not MODULE:NAME: write it as shop:charge")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            raise SystemExit(f"{text}: module {module} cannot be imported: {error}: correct or install that") from error
        raise SystemExit(
            f"{text}: {error}: start this program in the folder of the module, or send it with spark-submit --py-files"
        ) from error
    if not hasattr(found, name):
        raise SystemExit(f"{text}: module {module} has no {name}: correct the name")
    return getattr(found, name)


def ship(spark: SparkSession, handler: Callable[..., Any]) -> None:
    """Send the handler's module to executors, if it is a file of its own; packages are for --py-files."""
    module = sys.modules[handler.__module__]
    if "." not in handler.__module__ and not hasattr(module, "__path__") and getattr(module, "__file__", None):
        if hasattr(spark, "_jsparkSession"):
            spark.sparkContext.addPyFile(module.__file__)
        else:
            spark.addArtifacts(module.__file__, pyfile=True)


def described(progress: StreamingQueryProgress) -> str:
    """The text about a batch for its line."""
    of = Processed.of(progress.observedMetrics["processing"])
    return (
        f"records {of.records:>8,}  done {of.done:>8,}  retried {of.retried:>6,}  dead {of.dead:>6,}  "
        f"in flight <= {of.most_in_flight:>6,}  oldest cell {of.oldest_cell_ms / 1000:>6.1f} s  "
        f"handler p50 {of.latency_p50_ms or 0:>7.1f} p99 {of.latency_p99_ms or 0:>7.1f} ms"
    )


def main() -> None:
    args = arguments()
    with submit.orderly(args.group):
        handler = named(args.handler)
        processor = RecordProcessor(
            handler,
            ordering=args.ordering,
            threads=args.threads,
            cell_records=args.cell_records,
            window_cells=args.window_cells,
            stall_timeout_ms=args.stall_timeout_ms,
            max_local_retries=args.max_local_retries,
            retry_topics=[int(delay) for delay in args.retry_topics.split(",") if delay],
            dead_letter_topic=args.dead_letter_topic,
            error_headers=args.error_headers,
            fatal=[named(fatal) for fatal in args.fatal],
            options=args.options,
            write_options=args.write_options,
        )
        spark = submit.session(f"process {args.topics} with {args.handler}")
        ship(spark, handler)
        trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
        query = processor.start(
            spark.readStream.format("groupkafka").options(**args.options).load(), args.checkpoint, **trigger
        )
        submit.follow(query, described, progress=args.progress)
        spark.stop()


if __name__ == "__main__":
    main()
