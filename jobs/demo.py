"""`make demo`: a streaming query at work in its consumer group, in one to two minutes.

It starts a Kafka broker, sends a million orders, and streams them to parquet with stream_to_parquet.py. Meanwhile a
second consumer joins the query's group and leaves it, and the query is killed and started again. At the end it counts.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from pyarrow import parquet

from spark_kafka_group.testing import KafkaCluster, wait_until

ROOT = Path(__file__).resolve().parent.parent
TOPIC, GROUP, PARTITIONS = "orders", "billing", 6
NEIGHBOUR = "a-python-consumer"
SENT_EACH_S = 0.03
"""Share of the orders not yet sent that goes each second: there is something to read however long a step takes."""
READS_S = 5
"""How long the other consumer reads at least."""
STEP_S = 300
STARTS = 2
"""How often the query is started where Spark's own limit ends its start: a busy machine is quicker the second time."""
SHOWN_WITHIN_S = 10
"""How long the last lines of a query that has ended may take."""
TOO_SLOW = "Python worker failed to connect back", "Timed out while waiting for the Python worker to connect back"
ITEMS = ["espresso", "flat white", "cold brew", "croissant", "cinnamon roll", "beans 250 g", "beans 1 kg", "mug"]
STORY = """\
What you will see, in two minutes, or in more if the machine has other work:
  1. a Kafka broker starts, and {records:,} orders are sent to {partitions} partitions
  2. a streaming query reads them into parquet, as a member of group {group!r}
  3. a consumer that is not Spark joins the group, takes its share, and leaves
  4. the query is killed with kill -9, and started again
  5. every order is counted: none may be lost, none may be there twice
"""


def event(number: int, rng: random.Random) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """Key, value and headers of one order."""
    customer = f"customer-{rng.randrange(20_000):05d}"
    order = {
        "order_id": number,
        "customer": customer,
        "item": rng.choice(ITEMS),
        "quantity": rng.randrange(1, 5),
        "price": round(rng.uniform(2, 40), 2),
        "currency": "EUR",
        "shop": rng.randrange(1, 120),
    }
    headers = [("event", b"order-placed"), ("trace", b"%016x" % rng.getrandbits(64))]
    return customer.encode(), json.dumps(order).encode(), headers


def produce(bootstrap_servers: str, first: int, last: int, hurry: Event) -> None:
    """Send the orders with numbers from `first` up to `last`: ever fewer a second, and all the rest after `hurry`."""
    rng = random.Random(first)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=50, batch_size=131_072, acks="all")
    while first < last:
        share = 1 if hurry.wait(0.1) else SENT_EACH_S / 10
        until = first + max(1, int(share * (last - first)))
        for number in range(first, until):
            key, value, headers = event(number, rng)
            producer.send(TOPIC, key=key, value=value, headers=headers)
        first = until
    producer.flush()
    producer.close()


class Neighbour:
    """A consumer of the same group that is not Spark: kafka-python's, in a thread of its own."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.orders: list[int] = []
        self.partitions: set[int] = set()
        self._leaves = threading.Event()
        self._consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap_servers,
            group_id=GROUP,
            client_id=NEIGHBOUR,
            auto_offset_reset="earliest",
        )
        self._thread = threading.Thread(target=self._consume, daemon=True)
        self._thread.start()

    def _consume(self) -> None:
        while not self._leaves.is_set():
            polled = self._consumer.poll(timeout_ms=200)
            self.partitions = {partition for _, partition in self._consumer.assignment()}
            records = itertools.chain.from_iterable(polled.values())
            self.orders += [json.loads(record.value)["order_id"] for record in records]
        self._consumer.close()  # commits, and leaves

    def leave(self) -> None:
        self._leaves.set()
        self._thread.join()


class Job:
    """stream_to_parquet.py, through spark-submit, as a user would start it; its log is a file."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        command = [
            Path(sys.executable).with_name("spark-submit"),
            "--master", "local[2]",
            "--properties-file", ROOT / "conf/spark-defaults.conf",
            ROOT / "jobs/stream_to_parquet.py",
            "--bootstrap-servers", bootstrap_servers,
            "--group", GROUP,
            "--topics", TOPIC,
            "--output", directory / "parquet",
            "--checkpoint", directory / "checkpoint",
            "--trigger", "2 seconds",
            "--progress",
            "--option", f"eventLog={directory / 'events.jsonl'}",
        ]  # fmt: skip
        self.log = directory / "spark.log"
        self._starts_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a") as log:
            # A process group of its own: kill -9 is then for the JVM and for Python, as when a machine dies.
            self._process = subprocess.Popen(
                [str(part) for part in command],
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        self._shown = threading.Thread(target=self._show, daemon=True)
        self._shown.start()

    def _show(self) -> None:
        """Show the program's lines; a traceback goes to the log. spark-submit joins both outputs of Python."""
        assert self._process.stdout is not None
        failed = False
        with self.log.open("ab") as log:
            for line in self._process.stdout:
                failed = failed or line.startswith(b"Traceback ")
                (log if failed else sys.stdout.buffer).write(line)
                (log if failed else sys.stdout).flush()

    @property
    def said(self) -> list[str]:
        """What it has logged so far."""
        return self.log.read_bytes()[self._starts_at :].decode(errors="replace").splitlines()

    def require_running(self) -> None:
        """Raise :class:`QueryEndedError` if it has ended."""
        code = self._process.poll()
        if code is not None:
            self._shown.join(SHOWN_WITHIN_S)
            raise QueryEndedError([line for line in self.said if line.strip()], code, self.log)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # all its processes have ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._shown.join(SHOWN_WITHIN_S)

    def stop(self) -> None:
        """End it as Ctrl-C does; it prints its last line."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._shown.join(SHOWN_WITHIN_S)


class QueryEndedError(Exception):
    """Raised when the query ends, though nobody has stopped it.

    Attributes
    ----------
    too_slow
        Whether Spark has given up a Python process that did not start within its 10 s.
    """

    def __init__(self, lines: list[str], code: int, log: Path) -> None:
        self.too_slow = any(words in line for line in lines for words in TOO_SLOW)
        if self.too_slow:
            what = "a Python process did not start within Spark's limit of 10 s: try again while the machine does less"
        elif code < 0:
            what = f"it was killed by {signal.Signals(-code).name}: perhaps memory was short"
        else:
            what = lines[-1] if lines else f"exit code {code}"
        super().__init__(f"the streaming query ended by itself: {what}. Its log: {log}")


class Demo:
    """The steps of the story."""

    def __init__(self, cluster: KafkaCluster, directory: Path, records: int) -> None:
        self.cluster, self.directory, self.records = cluster, directory, records
        self.servers = cluster.bootstrap_servers
        self.began = time.monotonic()
        bounds = (0, records // 2, records)
        self.hurry = multiprocessing.Event()
        self.producers = [
            multiprocessing.Process(target=produce, args=(self.servers, *pair, self.hurry), daemon=True)
            for pair in itertools.pairwise(bounds)
        ]
        self.job: Job | None = None

    def say(self, text: str) -> None:
        clear_bar()
        print(f"\n[{time.monotonic() - self.began:3.0f} s] {text}", flush=True)

    def send(self) -> None:
        self.say(f"broker at {self.servers}; {self.records:,} orders go to topic {TOPIC!r}")
        for producer in self.producers:
            producer.start()

    def start_query(self) -> None:
        """Start the query, and wait for its first commit."""
        before = self.committed
        for left in reversed(range(STARTS)):
            self.job = Job(self.servers, self.directory)
            try:
                self.wait(lambda: self.committed > before)
                return
            except QueryEndedError as ended:
                if not ended.too_slow or not left:
                    raise
                self.job.kill()
                self.say("Spark gave up a Python process that took more than 10 s to start: once more")

    def share(self) -> list[int]:
        """Have another consumer join, read and leave; returns its orders."""
        neighbour = Neighbour(self.servers)
        self.wait(lambda: neighbour.partitions)
        self.say("the group has two members now; each reads its own partitions:")
        self.describe()
        enough = time.monotonic() + READS_S
        self.wait(lambda: neighbour.orders and time.monotonic() > enough)
        neighbour.leave()
        self.say(f"the consumer read {len(neighbour.orders):,} orders, and left; the query takes over")
        self.wait(lambda: len({row.consumer_id for row in self.cluster.describe_group(GROUP)}) == 1)
        return neighbour.orders

    def kill(self) -> None:
        assert self.job is not None
        self.say("kill -9: the query dies in the middle of its work, and is started again")
        self.job.kill()
        killed = time.monotonic()
        self.start_query()
        self.say(f"it went on, {time.monotonic() - killed:.0f} s after it was killed, from its checkpoint")

    def finish(self) -> None:
        """Wait until every order is committed, and stop the query."""
        assert self.job is not None
        self.say("the rest of the orders is sent at once:")
        self.hurry.set()
        self.wait(lambda: self.sent and self.committed == self.records)
        self.describe()
        self.say("Ctrl-C for the query:")
        self.job.stop()
        self.job = None

    def abort(self) -> None:
        """Leave no process behind."""
        if self.job is not None:
            self.job.kill()
        for producer in self.producers:
            if producer.pid is not None:
                producer.kill()

    @property
    def committed(self) -> int:
        return sum(offset for offset, _ in self.cluster.committed(GROUP).values())

    @property
    def sent(self) -> bool:
        if any(producer.exitcode for producer in self.producers):
            raise RuntimeError("a process that sends the orders has ended: its error is above")
        return all(producer.exitcode == 0 for producer in self.producers)

    def wait(self, condition: Callable[[], object]) -> None:
        def met() -> object:
            if not self.cluster.node(0).alive:
                raise RuntimeError(f"the broker has ended{self.cluster.node(0).why_ended()}")
            if self.job is not None:
                self.job.require_running()
            return condition()

        wait_until(met, within=STEP_S, every=0.2)

    def describe(self) -> None:
        """Print columns of Kafka's own kafka-consumer-groups."""
        lines = [f"$ kafka-consumer-groups --describe --group {GROUP}"]
        lines += ["PARTITION  CURRENT-OFFSET  LOG-END-OFFSET         LAG  CLIENT-ID"]
        for row in self.cluster.describe_group(GROUP):
            current, end, lag = ("-" if n is None else n for n in (row.current_offset, row.log_end_offset, row.lag))
            lines += [f"{row.partition:<9}{current:>16}{end:>16}{lag:>12}  {row.client_id or '-'}"]
        clear_bar()
        print("\n".join(lines), flush=True)


def clear_bar() -> None:
    """Take the query's bar away, which may be in the line where the next text begins."""
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")


def written(directory: Path) -> Iterator[str]:
    """Values in the parquet files of batches that have ended, which the sink lists; a killed batch may leave others."""
    listed = {
        json.loads(line)["path"]
        for batch in (directory / "_spark_metadata").iterdir()
        if not batch.name.startswith(".")
        for line in batch.read_text().splitlines()[1:]
    }
    for file in sorted(listed):
        for value in parquet.read_table(file.removeprefix("file://"), columns=["value"])["value"]:
            yield value.as_py()


def count(directory: Path, elsewhere: list[int], records: int) -> bool:
    """Print and return whether every order was read once, into the files or by the other consumer."""
    rows = [json.loads(value) for value in written(directory)]
    print("\nsome rows:")
    for row in rows[:3]:
        print(f"  order {row['order_id']:>7}  {row['customer']}  {row['quantity']} x {row['item']}")
    orders = [row["order_id"] for row in rows]
    distinct = len({*orders, *elsewhere})
    complete = records == len(orders) + len(elsewhere) == distinct
    print(f"\norders sent                  {records:>10,}")
    print(f"rows in parquet              {len(orders):>10,}")
    print(f"read by the other consumer   {len(elsewhere):>10,}")
    print(f"different orders             {distinct:>10,}   {'none lost, none twice' if complete else 'WRONG'}")
    return complete


def what_next(directory: Path) -> None:
    """Print commands to try."""
    here, there = Path.cwd(), Path(sys.executable).parent
    place = shlex.quote(str(there.relative_to(here) if there.is_relative_to(here) else there))
    print(f"""
The files stay in {directory}. To try next:

  # check the run by the events that the query wrote
  {place}/groupkafka verify {directory}/events.jsonl
  # a broker for a first query of your own: README.md has it
  {place}/python -m spark_kafka_group.testing start --port 9092
  # all tools
  {place}/groupkafka --help""")


def run(records: int, directory: Path) -> bool:
    """Tell the story; returns whether every order was read once."""
    with KafkaCluster(directory=directory / "kafka") as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        cluster.consumer_groups("--list")  # downloads Kafka's tools: now, and not in the middle of the story
        demo = Demo(cluster, directory, records)
        try:
            demo.send()
            demo.say("the query starts, which takes some seconds; then a line for each batch:")
            demo.start_query()
            elsewhere = demo.share()
            demo.kill()
            demo.finish()
        finally:
            demo.abort()
    shutil.rmtree(directory / "kafka")
    return count(directory / "parquet", elsewhere, records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    directory = Path(tempfile.mkdtemp(prefix="groupkafka-"))
    try:
        print(STORY.format(records=records, partitions=PARTITIONS, group=GROUP), flush=True)
        complete = run(records, directory)
    except KeyboardInterrupt:
        raise SystemExit(f"\nthe demo was stopped; its files are in {directory}") from None
    except (QueryEndedError, RuntimeError, TimeoutError, KafkaError, OSError) as error:
        clear_bar()
        raise SystemExit(f"the demo has failed: {error}") from None
    what_next(directory)
    if not complete:
        raise SystemExit(f"some orders are lost or there twice: {directory} has all files; please report it")


if __name__ == "__main__":
    main()
