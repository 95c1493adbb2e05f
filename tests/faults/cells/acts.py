"""What each kind of fault of a storm does: to the driver, workers, brokers, proxies, and as others of the group do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.structs import TopicPartition

from faults.cells.brokers import controller, coordinator, leader
from faults.cells.neighbours import neighbour
from faults.cells.network import Rules
from faults.cells.queries import BY_THE_GROUP
from faults.evidence import GROUPKAFKA, TP, Acknowledged
from faults.load import identity
from faults.processes import command
from faults.programs.points import POINTS
from faults.running import STARTED_WITHIN_S, Query, said_last
from faults.scene import Scene, now_ms
from faults.storm import Step
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.node import children

MOST_PARTITIONS = 12
OF_A_TRANSACTION = 40
TRANSACTION_MS = 8_000
COMMAND_WITHIN_S = 180
ENDS_WITHIN_S = 90.0
OPTIONS = {"kafka.isolation.level": "read_committed"}

Act = Callable[[Scene, Step], None]
ACTS: dict[str, Act] = {}


def act(do: Act) -> Act:
    """Register what a kind of fault does, by its name."""
    ACTS[do.__name__.replace("_", "-")] = do
    return do


# The driver


def fenced_by_the_dead(query: Query) -> bool:
    """Whether the broker has taken the process that ended for the replaced one, and the killed one for the new one.

    1. The network is silent, and keeps a JoinGroup. 2. The process that sent it is killed, or its JVM. 3. Its successor
    joins. 4. The JoinGroup arrives, and for the broker the later one is the newer process. Static members of Java end
    so, too.
    """
    before = query.endings[-1] if query.endings else None
    killed = before is not None and before.wanted and not before.how.startswith(("stopped", "replaced"))
    return killed and "FENCED_INSTANCE_ID" in said_last(query.log)


def up_again(query: Query) -> None:
    """Start a process of a query; if it ends before its query runs, that is noted, and one more is started."""
    for _ in range(2):
        query.launch()
        wait_until(lambda: query.started() or not query.running, within=STARTED_WITHIN_S)
        if query.running:
            return
        query.ended_by_itself(wanted=fenced_by_the_dead(query))
    raise RuntimeError(f"{query.name} does not start: {query.log.read_text(errors='replace')[-600:]}")


def ended(query: Query) -> None:
    """Wait until a process has ended that has lost another one that it needs."""
    try:
        query.program.ends(ENDS_WITHIN_S)
    except AssertionError:
        query.kill()
        raise
    query.ended_by_itself(wanted=True)


@act
def driver_kill(scene: Scene, step: Step) -> None:
    scene.query.kill()
    up_again(scene.query)


@act
def driver_kill_at_a_point(scene: Scene, step: Step) -> None:
    query = scene.query
    points = [point for point in POINTS if point != "sink"]
    point = points[step.choice % len(points)]
    query.arm(point)
    with contextlib.suppress(TimeoutError):  # no batch gets there while brokers are away
        wait_until(lambda: query.at(point) or not query.running, within=step.lasts_s)
    query.kill()
    up_again(query)


@act
def jvm_kill(scene: Scene, step: Step) -> None:
    os.kill(scene.query.program.jvm(), signal.SIGKILL)
    ended(scene.query)
    up_again(scene.query)


@act
def reader_kill(scene: Scene, step: Step) -> None:
    query = scene.query
    wait_until(lambda: query.program.reads() or not query.running, within=STARTED_WITHIN_S)  # a new one comes later
    if not query.running:  # by itself: it is noted, and started again, before the next fault
        return
    os.kill(query.program.reader(), signal.SIGKILL)
    ended(query)
    up_again(query)


@act
def driver_term(scene: Scene, step: Step) -> None:
    scene.query.note_interrupted()
    try:
        scene.left += scene.query.stop()
    except AssertionError:
        scene.query.kill()
        raise
    finally:
        up_again(scene.query)


@act
def driver_pause(scene: Scene, step: Step) -> None:
    program = scene.query.program
    program.signal_all(signal.SIGSTOP)
    time.sleep(step.lasts_s)  # the fault itself
    program.signal_all(signal.SIGCONT)


@act
def driver_zombie(scene: Scene, step: Step) -> None:
    query = scene.query
    zombie = query.program
    zombie.signal_all(signal.SIGSTOP)
    query.note_interrupted()
    try:
        up_again(query)
        zombie.signal_all(signal.SIGCONT)
        wait_until(lambda: zombie.process.poll() is not None or not query.running, within=ENDS_WITHIN_S)
        ended_ms = now_ms()
        # Both may end: the zombie logs a batch first, and is fenced; the other one finds that batch logged.
        wait_until(lambda: not query.running or query.checkpoint.done_since(ended_ms) > 0, within=ENDS_WITHIN_S)
    finally:
        zombie.kill()
    if not query.running:
        query.ended_by_itself(wanted=True)
        up_again(query)


# Workers


@contextlib.contextmanager
def alive() -> Iterator[None]:
    """A process may be gone, or another one in its place, as other lanes end programs."""
    with contextlib.suppress(ProcessLookupError):
        yield


def signalled(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with alive():
            os.kill(pid, number)


def workers_of_tasks(scene: Scene) -> list[int]:
    """Those alone: Spark runs others while it plans a query's first batch, once, and ends the query without them."""
    return [pid for pid in scene.query.workers() if b"\0pyspark.worker\0" in command(pid)]


@act
def worker_kill(scene: Scene, step: Step) -> None:
    """Their daemon, which forks them, lives."""
    signalled([pid for daemon in workers_of_tasks(scene) for pid in children(daemon)], signal.SIGKILL)


@act
def worker_daemon_kill(scene: Scene, step: Step) -> None:
    signalled(workers_of_tasks(scene), signal.SIGKILL)


@act
def worker_pause(scene: Scene, step: Step) -> None:
    stopped = workers_of_tasks(scene)
    signalled(stopped, signal.SIGSTOP)
    time.sleep(step.lasts_s)  # the fault itself
    signalled(stopped, signal.SIGCONT)


# Brokers: one of three at a time


def away(scene: Scene, node: Any, lasts_s: float) -> None:
    node.kill()
    time.sleep(lasts_s)  # the fault itself
    node.start()
    scene.kafka.wait_until_ready()


@act
def leader_kill(scene: Scene, step: Step) -> None:
    away(scene, leader(scene), step.lasts_s)


@act
def coordinator_kill(scene: Scene, step: Step) -> None:
    away(scene, coordinator(scene), step.lasts_s)


@act
def controller_kill(scene: Scene, step: Step) -> None:
    away(scene, controller(scene), step.lasts_s)


@act
def broker_restart(scene: Scene, step: Step) -> None:
    node = scene.kafka.node(step.choice % len(scene.kafka.nodes))
    node.stop()
    node.start()
    scene.kafka.wait_until_ready()


@act
def broker_pause(scene: Scene, step: Step) -> None:
    node = coordinator(scene) if step.choice % 2 == 0 and scene.source == GROUPKAFKA else leader(scene)
    node.pause()
    time.sleep(step.lasts_s)  # the fault itself
    node.resume()
    scene.kafka.wait_until_ready()


# Proxies between the queries and the brokers


def ruled(scene: Scene, step: Step, change: Callable[[Rules], None]) -> None:
    rules: Rules = scene.room["rules"]
    change(rules)
    time.sleep(step.lasts_s)  # the fault itself
    rules.mend()


@act
def proxies_cut(scene: Scene, step: Step) -> None:
    ruled(scene, step, lambda rules: rules.cut_every(0.5, 1.5))


@act
def proxies_delay(scene: Scene, step: Step) -> None:
    ruled(scene, step, lambda rules: setattr(rules, "delay_s", 0.2))


@act
def proxies_throttle(scene: Scene, step: Step) -> None:
    ruled(scene, step, lambda rules: setattr(rules, "bytes_per_s", 30_000))


@act
def proxies_silent(scene: Scene, step: Step) -> None:
    ruled(scene, step, lambda rules: setattr(rules, "silent", True))


# Other members of the group


def of_client(client: str) -> Act:
    def visit(scene: Scene, step: Step) -> None:
        """A consumer joins, and leaves or is killed; what it does of itself meanwhile is not judged."""
        found = neighbour(client, scene, f"neighbour-{now_ms():.0f}-{client}.jsonl")
        try:
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: found.process.poll() is not None, within=step.lasts_s)
            if found.process.poll() is None:
                found.end(signal.SIGKILL if step.choice % 2 else signal.SIGTERM)
        except subprocess.TimeoutExpired:
            pass
        finally:
            found.process.kill()
            found.process.wait()

    return visit


NEIGHBOURS = ("kafka-python", "confluent-kafka", "java")
ACTS.update({f"{client}-visits": of_client(client) for client in NEIGHBOURS})


def second(scene: Scene) -> Query:
    """A second query of the group, with a checkpoint and a sink of its own."""
    if len(scene.queries) == 1:
        scene.add_query(OPTIONS | BY_THE_GROUP, "parquet", *scene.query.more)
    return scene.queries[1]


@act
def second_query_visits(scene: Scene, step: Step) -> None:
    query = second(scene)
    up_again(query)
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not query.running, within=step.lasts_s)
    if not query.running:
        query.ended_by_itself(wanted=False)
    elif step.choice % 2:
        query.kill()
    else:
        query.note_interrupted()
        try:
            scene.left += query.stop()
        except AssertionError:
            query.kill()
            raise


# Operators, with clients of their own: that of the scene's cluster is for one thread


def asked(scene: Scene, *command: str) -> None:
    """Run a command of the package. It may fail while brokers are away, with a sentence."""
    servers = ("--bootstrap-server", scene.kafka.bootstrap_servers, "--group", scene.group)
    words = [sys.executable, "-m", "spark_kafka_group", *command, *servers]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=COMMAND_WITHIN_S)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-600:]}")


@act
def operator_describes(scene: Scene, step: Step) -> None:
    asked(scene, "describe")


@act
def operator_reads_lag(scene: Scene, step: Step) -> None:
    asked(scene, "top", "--once", "--interval", "1")


@act
def operator_reads_offsets(scene: Scene, step: Step) -> None:
    asked(scene, "offsets", "--last")


@contextlib.contextmanager
def own_admin(scene: Scene) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=scene.kafka.bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


@act
def partition_added(scene: Scene, step: Step) -> None:
    assert scene.load is not None
    with own_admin(scene) as admin:
        (topic,) = admin.describe_topics([scene.topic])
        there = len(topic["partitions"])
        if there == scene.topics[scene.topic] < MOST_PARTITIONS:
            admin.create_partitions({scene.topic: there + 1})
            there += 1
    scene.topics[scene.topic] = there
    scene.load.spread(scene.topic, there)


@act
def committed_records_deleted(scene: Scene, step: Step) -> None:
    with own_admin(scene) as admin:
        admin.delete_records({TopicPartition(*tp): offset for tp, offset in scene.room["not needed"].items() if offset})


def not_needed(scene: Scene) -> dict[TP, int]:
    """The group's offsets; but before each batch that a query has planned, and has to read again if it is ended."""
    offsets = scene.committed()
    for query in scene.queries:
        for batch in query.checkpoint.batches():
            if batch.done_ms is None:
                offsets = {tp: min(offset, batch.starts.get(tp, offset)) for tp, offset in offsets.items()}
    return offsets


# Transactions of one more producer


@act
def transaction(scene: Scene, step: Step) -> None:
    """Records in a transaction that is committed, aborted, or left open until the broker aborts it."""
    name = f"t{now_ms():.0f}"
    producer = KafkaProducer(
        bootstrap_servers=scene.kafka.bootstrap_servers, transactional_id=f"{scene.topic}-{name}", acks="all",
        transaction_timeout_ms=TRANSACTION_MS, request_timeout_ms=5_000, max_block_ms=TRANSACTION_MS,
    )  # fmt: skip
    partitions = scene.topics[scene.topic]
    places = [(identity(name, scene.topic, n % partitions, n), n % partitions) for n in range(OF_A_TRANSACTION)]
    names = {record for record, _ in places}
    wanted = ("commit", "commit", "abort", "leave")[step.choice % 4]
    scene.gone |= names  # until its end is known
    try:
        producer.init_transactions()
        producer.begin_transaction()
        sent = [producer.send(scene.topic, record.encode(), partition=p) for record, p in places]
        producer.flush(timeout=TRANSACTION_MS / 1000)
        if wanted == "commit":
            answers = [future.get(timeout=TRANSACTION_MS / 1000) for future in sent]
            answered(producer.commit_transaction)
            assert scene.load is not None
            scene.load.also([
                Acknowledged(record, a.topic, a.partition, a.offset)
                for (record, _), a in zip(places, answers, strict=True)
            ])  # fmt: skip
        else:
            scene.aborted |= names
            if wanted == "abort":
                answered(producer.abort_transaction)
        scene.gone -= names
    except KafkaError as error:  # of the producer, which is not the one that is tried
        print(f"     the end of transaction {name} is not known: {error}", flush=True)
    finally:
        producer.close(timeout=1)


def answered(end: Callable[[], None]) -> None:
    """Wait for the end of a transaction, but not for ever: kafka-python does where no answer comes."""
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            outcome.set_result(end())
        except KafkaError as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        outcome.result(timeout=2 * TRANSACTION_MS / 1000)
    except TimeoutError:
        raise KafkaTimeoutError("no answer") from None
