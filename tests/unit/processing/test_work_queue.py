"""Handlers in threads or coroutines: their order, their failures, and the counts."""

import asyncio
import gc
import threading
import time
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_group.errors import HandlerStalledError, OptionError, ProcessingError
from spark_kafka_group.executor.writing.sink_columns import OutputRow
from spark_kafka_group.processing.processor_settings import Backoff, Settings
from spark_kafka_group.processing.record import ProducerRecord, Record
from spark_kafka_group.processing.work_queue import Window, WorkQueue, cells_of
from spark_kafka_group.processing.workers import workers_for

SOON = Backoff(1, 2)


def settings_of(**more):
    values = {
        "ordering": "partition", "threads": 8, "cell_records": 10, "window_cells": 8, "stall_timeout_ms": 60_000,
        "max_local_retries": 2, "backoff": SOON, "retry_topics": (), "dead_letter_topic": None,
        "error_headers": "connect", "fatal": (), "group": None, "topic": None, "handler_name": "tests:handler",
    }  # fmt: skip
    return Settings(**values | more)


def records(count, partitions=3, keys=7):
    return [Record(b"k%d" % (n % keys), b"%d" % n, "t", n % partitions, n // partitions, 0, 0) for n in range(count)]


class Elsewhere:
    """Takes records that fail."""

    def __init__(self, counter="dead"):
        self.counter, self.sent = counter, []
        self._lock = threading.Lock()

    def __call__(self, record, failure):
        with self._lock:
            self.sent.append((record, failure))
        return self.counter, OutputRow(self.counter, record.key, record.value, ())


def rows_of_work(handler, of, hand_on=None, **more):
    """The rows that a task would write, the queue, and its workers."""
    result = settings_of(**more)
    queue = WorkQueue(result, hand_on or Elsewhere())
    workers = workers_for(queue, handler, result.threads, result.stall_timeout_ms)
    with workers.running():
        rows = [row for many in queue.process(of) for row in many]
    return rows, queue, workers


def work(handler, of, hand_on=None, **more):
    _, queue, workers = rows_of_work(handler, of, hand_on, **more)
    return queue, workers


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_each_record_is_handled_once_and_in_the_order_that_was_asked_for(ordering, kind):
    seen, lock = defaultdict(list), threading.Lock()

    def note(record):
        with lock:
            order = {"partition": record.partition, "key": (record.partition, record.key), "unordered": 0}[ordering]
            seen[order].append(record)

    async def note_later(record):
        await asyncio.sleep(0)
        note(record)

    of = records(2000)
    queue, workers = work(note if kind == "def" else note_later, of, ordering=ordering)
    assert Counter(r for rs in seen.values() for r in rs) == Counter(of)
    if ordering != "unordered":
        assert all([r.offset for r in rs] == sorted(r.offset for r in rs) for rs in seen.values())
    assert (queue.counts.records, queue.counts.done) == (2000, 2000)
    assert queue.most_in_flight <= 80
    assert queue.positions == {("t", p): len([r for r in of if r.partition == p]) for p in range(3)}
    assert sum(workers.latencies().counts) == 2000


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_all_threads_work_at_once_where_the_order_allows_it(ordering):
    together = threading.Barrier(8)

    def handler(record):
        together.wait(30)  # breaks unless all eight are here

    work(handler, [r._replace(partition=0, key=b"%d" % n) for n, r in enumerate(records(8))], ordering="unordered")
    lanes_of = 8
    of = [r._replace(partition=0, offset=n, key=None) for n, r in enumerate(records(lanes_of))]
    work(handler, of, ordering=ordering)


def test_records_of_one_partition_are_handled_one_after_the_other():
    at_work, most, lock = Counter(), Counter(), threading.Lock()

    def handler(record):
        with lock:
            at_work[record.partition] += 1
            most[record.partition] = max(most[record.partition], at_work[record.partition])
        time.sleep(0.0002)
        with lock:
            at_work[record.partition] -= 1

    work(handler, records(300))
    assert set(most.values()) == {1}


class Flaky:
    """Fails a number of times for each record that is chosen."""

    def __init__(self, times, chosen, error=ValueError):
        self.times, self.chosen, self.error = times, chosen, error
        self.tries, self._lock = Counter(), threading.Lock()

    def __call__(self, record):
        with self._lock:
            self.tries[record] += 1
            tries = self.tries[record]
        if self.chosen(record) and tries <= self.times:
            raise self.error(f"not yet: {record}")


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_a_handler_that_fails_twice_is_tried_a_third_time(ordering):
    handler = Flaky(2, lambda record: record.offset % 5 == 0)
    order, lock = [], threading.Lock()

    def noted(record):
        handler(record)
        with lock:
            order.append(record)

    of = records(200)
    elsewhere = Elsewhere()
    queue, _ = work(noted, of, elsewhere, ordering=ordering)
    assert elsewhere.sent == []
    assert (queue.counts.done, queue.counts.tries_again) == (200, 2 * len([r for r in of if r.offset % 5 == 0]))
    if ordering == "partition":  # what comes after a record waits for it
        for p in range(3):
            assert [r.offset for r in order if r.partition == p] == list(
                range(len([r for r in of if r.partition == p]))
            )


@pytest.mark.parametrize("poison_per_mille", [0, 1, 50, 1000])
@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_every_record_is_done_or_handed_on_however_many_fail(poison_per_mille, ordering):
    of = records(1000)
    handler = Flaky(10**9, lambda record: int(record.value) % 1000 < poison_per_mille)
    elsewhere = Elsewhere("retried")
    rows, queue, _ = rows_of_work(handler, of, elsewhere, ordering=ordering, max_local_retries=1)
    counts = queue.counts
    assert sorted(row.value for row in rows) == sorted(record.value for record, _ in elsewhere.sent)
    assert counts.records == counts.done + counts.retried + counts.dead == 1000
    assert counts.retried == len(elsewhere.sent) == poison_per_mille
    assert counts.tries_again == poison_per_mille
    assert all(handler.tries[r] == 2 and f.exception == "ValueError" for r, f in elsewhere.sent)


def test_a_fatal_exception_is_not_tried_again():
    handler = Flaky(10**9, lambda record: record.offset == 3, error=KeyError)
    elsewhere = Elsewhere()
    queue, _ = work(handler, records(30), elsewhere, fatal=(LookupError,))
    assert queue.counts.tries_again == 0
    assert [f.fatal for _, f in elsewhere.sent] == [True] * 3


def test_a_record_with_nowhere_to_go_ends_the_work_with_the_handler_s_error_as_the_cause():
    def nowhere(record, failure):
        raise ProcessingError(f"{record}: {failure.message}")

    handler = Flaky(10**9, lambda record: record.offset == 3)
    with pytest.raises(ProcessingError, match="t-0: offset 3: not yet") as raised:
        work(handler, records(3000, partitions=1), nowhere)
    assert isinstance(raised.value.__cause__, ValueError)
    assert len(handler.tries) < 3000


WRITING = {"group": "billing", "topic": "out"}


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("kind", ["def", "async def", "generator"])
def test_what_handlers_return_is_written_in_the_order_in_which_records_are_handled(ordering, kind):
    def three(record):
        return [ProducerRecord(b"%d" % n, record.key, partition=record.partition) for n in range(3)]

    def returned(record):
        text = str(record.offset)
        return None if record.offset % 3 == 0 else ProducerRecord(text, record.key, "one", [("h", None)])

    def yielded(record):
        if record.offset % 3 != 0:
            yield returned(record)

    async def returned_later(record):
        await asyncio.sleep(0)
        return returned(record)

    handler = {"def": returned, "async def": returned_later, "generator": yielded}[kind]
    of = records(5000)
    rows, queue, _ = rows_of_work(handler, of, ordering=ordering, **WRITING)
    wanted = [OutputRow("one", r.key, b"%d" % r.offset, [("h", None)]) for r in of if r.offset % 3]
    assert Counter(map(repr, rows)) == Counter(map(repr, wanted))
    assert queue.counts.done == 5000
    if ordering != "unordered":
        of_keys, wanted_of_keys = defaultdict(list), defaultdict(list)
        for row in rows:
            of_keys[row.key].append(int(row.value))
        for record in of:
            wanted_of_keys[record.partition, record.key].append(record.offset)
        for key, offsets in of_keys.items():
            for (_, of_key), in_order in wanted_of_keys.items():
                if of_key == key:
                    wanted = [offset for offset in in_order if offset % 3]
                    found = iter(offsets)
                    assert all(offset in found for offset in wanted)
    rows, _, _ = rows_of_work(three, records(1, partitions=1), **WRITING)
    assert rows == [OutputRow("out", b"k0", b"%d" % n, [], 0) for n in range(3)]


def test_rows_come_while_records_are_handled_and_no_more_than_a_window_waits_for_who_takes_them():
    handled = Counter()

    def handler(record):
        handled["now"] += 1
        return ProducerRecord(bytes(100_000))

    result = settings_of(threads=1, **WRITING)
    queue = WorkQueue(result, Elsewhere())
    window = result.cell_records * result.window_cells
    with workers_for(queue, handler, 1, result.stall_timeout_ms).running():
        taken = 0
        for rows in queue.process(records(2000, partitions=1)):
            assert handled["now"] <= taken + len(rows) + 2 * window
            taken += len(rows)
    assert taken == 2000


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("done", "returned 'done', of type str: return None, a ProducerRecord, or several"),
        ([1], "returned 1, of type int: return None, a ProducerRecord, or several"),
        ({"topic": "t"}, "of type dict: return None"),
        (records(1)[0], "of type Record: return None"),
        (ProducerRecord(5), "returned a ProducerRecord whose value is of type int: make it bytes, str or None"),
        (ProducerRecord(b"", topic="no topic"), "whose topic is 'no topic', which is not a topic name"),
        (ProducerRecord(b"", headers=[("a", "b")]), "whose headers are .*: make them pairs of str and bytes"),
        (ProducerRecord(b"", partition=-1), "whose partition is -1: make it a number from 0 on, or None"),
        (ProducerRecord("\ud800"), "text that is not valid Unicode"),
    ],
    ids=str,
)
def test_what_cannot_be_written_ends_the_work_and_is_no_failure_of_the_record(kind, result, problem):
    async def later(record):
        return result

    handler = later if kind == "async def" else lambda record: result
    elsewhere = Elsewhere()
    with pytest.raises(ProcessingError, match=rf"^t-0: offset 0: the handler tests:handler .*{problem}"):
        work(handler, records(1), elsewhere, max_local_retries=0, **WRITING)
    assert elsewhere.sent == []


def test_a_record_needs_a_topic_and_brokers():
    with pytest.raises(ProcessingError, match="whose topic is None: give it one, or set topic in write_options"):
        work(lambda record: ProducerRecord(b""), records(1), group="g")
    with pytest.raises(ProcessingError, match="the RecordProcessor has no options: give it those of the source"):
        work(lambda record: ProducerRecord(b"", topic="t"), records(1))


def test_a_generator_that_raises_has_failed_and_nothing_of_it_is_written():
    def handler(record):
        yield ProducerRecord(b"first")
        raise ValueError(record)

    rows, queue, _ = rows_of_work(handler, records(3), max_local_retries=0, **WRITING)
    assert (queue.counts.done, queue.counts.dead) == (0, 3)
    assert {row.topic for row in rows} == {"dead"}


def test_what_a_handler_returns_after_it_was_given_up_is_not_written():
    over = threading.Event()

    def handler(record):
        if record.offset == 1:
            over.wait(30)
        return ProducerRecord(b"late" if over.is_set() else b"in time")

    def hand_on(record, failure):
        over.set()
        return "dead", OutputRow("dead", record.key, record.value, ())

    rows, _, _ = rows_of_work(
        handler, records(2, partitions=1), hand_on, stall_timeout_ms=100, max_local_retries=0, threads=1, **WRITING
    )
    assert sorted(row.topic for row in rows) == ["dead", "out"]


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
def test_a_handler_that_hangs_is_abandoned_and_the_rest_goes_on(ordering, caplog):
    never = threading.Event()
    calls = Counter()

    def handler(record):
        calls[record] += 1
        if record.offset == 5:
            never.wait()

    elsewhere = Elsewhere()
    try:
        queue, _ = work(
            handler, records(90), elsewhere, ordering=ordering, stall_timeout_ms=100, max_local_retries=1, threads=4
        )
    finally:
        never.set()
    counts = queue.counts
    assert (counts.done, counts.dead, counts.stalled) == (87, 3, 6)
    assert {f.exception for _, f in elsewhere.sent} == {f"{HandlerStalledError.__module__}.HandlerStalledError"}
    assert max(calls.values()) == 2
    assert "its handler has not returned" in caplog.text


def test_a_coroutine_that_hangs_is_cancelled():
    cancelled = []

    async def handler(record):
        if record.offset == 5:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(record)
                raise

    elsewhere = Elsewhere()
    queue, _ = work(handler, records(90), elsewhere, stall_timeout_ms=50, max_local_retries=0)
    assert (queue.counts.done, queue.counts.dead, queue.counts.stalled) == (87, 3, 3)
    assert len(cancelled) == 3


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_that_awaits_what_others_have_cancelled_has_failed(kind):
    async def later(record):
        if record.offset == 5:
            shared = asyncio.ensure_future(asyncio.sleep(60))  # as a token that coroutines fetch together
            asyncio.get_running_loop().call_soon(shared.cancel)
            await shared

    def handler(record):
        asyncio.run(later(record))

    elsewhere = Elsewhere()
    queue, _ = work(later if kind == "async def" else handler, records(90), elsewhere, max_local_retries=1)
    assert (queue.counts.done, queue.counts.dead, queue.counts.tries_again) == (87, 3, 3)
    assert {failure.exception for _, failure in elsewhere.sent} == {"asyncio.exceptions.CancelledError"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_that_ends_its_thread_ends_the_work(kind, caplog):
    def handler(record):
        raise SystemExit("that is all")

    async def later(record):
        handler(record)

    with pytest.raises(SystemExit):
        work(later if kind == "async def" else handler, records(100))
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]  # of tasks that nobody has awaited


def test_input_that_fails_ends_the_workers():
    def broken():
        yield from records(50)
        raise OSError("the socket is gone")

    before = set(threading.enumerate())  # those of handlers that stalled in other tests may end meanwhile
    with pytest.raises(OSError, match="the socket is gone"):
        work(lambda record: None, broken())
    assert set(threading.enumerate()) <= before


@settings(max_examples=settings.default.max_examples // 5)
@given(
    st.sampled_from(["partition", "key", "unordered"]), st.integers(1, 5), st.integers(1, 6), st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), max_size=40),
)  # fmt: skip
def test_whatever_fails_how_often_each_record_ends_once(ordering, threads, size, window_cells, wanted):
    """Of each record: its partition, its key, and how often it fails; with two retries, more than that is for ever."""
    of = [Record(b"%d" % key or None, b"", "t", p, n, 0, 0) for n, (p, key, _) in enumerate(wanted)]
    failures = {record: times for record, (_, _, times) in zip(of, wanted, strict=True)}
    tries, ended, lock = Counter(), defaultdict(list), threading.Lock()

    def handler(record):
        with lock:
            tries[record] += 1
            if tries[record] <= failures[record]:
                raise ValueError(record)
            ended[record.partition, record.key].append(record.offset)

    elsewhere = Elsewhere()
    queue, _ = work(
        handler, of, elsewhere, ordering=ordering, threads=threads, cell_records=size, window_cells=window_cells,
        backoff=Backoff(0.01, 0.02),
    )  # fmt: skip
    assert queue.counts.done == sum(len(offsets) for offsets in ended.values())
    assert sorted(r.offset for r, _ in elsewhere.sent) == [r.offset for r in of if failures[r] > 2]
    assert queue.counts.done + queue.counts.dead == len(of)
    assert all(tries[r] == min(failures[r], 2) + 1 for r in of)
    if ordering != "unordered":
        assert all(offsets == sorted(offsets) for offsets in ended.values())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threads": 0}, "threads must be a whole number of at least 1, and is 0"),
        ({"window_cells": 0}, "window_cells must be"),
        ({"cell_records": -1}, "cell_records must be"),
        ({"ordering": "random"}, "ordering must be one of partition, key, unordered"),
        ({"error_headers": "mine"}, "error_headers must be one of connect, kip1191, spring"),
        ({"backoff": Backoff(10, 1)}, "retry_backoff_ms must be"),
        ({"retry_topics": (1000, 1000)}, "must be different delays"),
        ({"fatal": (ValueError("x"),)}, "fatal must have classes of exceptions"),
        ({"dead_letter_topic": "dlt"}, "need options"),
    ],
)
def test_settings_that_do_not_fit_say_what_to_change(wrong, message):
    with pytest.raises(OptionError, match=message):
        settings_of(**wrong)


def record(offset, partition=0, topic="t"):
    return Record(None, b"v", topic, partition, offset, 0, 0)


def cells(count, size):
    return list(cells_of(map(record, range(count * size)), size))


def finish(window, cell):
    cell.left = 0
    return window.slide(cell.partition)


def test_cells_of_100_in_a_window_of_4_the_article_s_example():
    all_cells = cells(8, 100)
    window = Window(4)
    for cell in all_cells[:4]:
        window.admit(cell)
    assert window.full
    assert not finish(window, all_cells[1])
    assert not finish(window, all_cells[2])
    assert window.positions == {("t", 0): 0}  # 100-199 and 200-299 are done, and nothing may be committed
    assert window.full  # and they stay in the window
    assert finish(window, all_cells[0])
    assert window.positions == {("t", 0): 300}
    for cell in all_cells[4:7]:
        assert not window.full
        window.admit(cell)
    assert window.full  # 300-699


def test_cells_that_finish_in_the_order_2_3_1_count_0_0_300():
    one, two, three = cells(3, 100)
    window = Window(3)
    for cell in (one, two, three):
        window.admit(cell)
    seen = []
    for cell in (two, three, one):
        finish(window, cell)
        seen.append(window.positions["t", 0])
    assert seen == [0, 0, 300]
    assert window.empty


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 7), st.integers(1, 5),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_every_record_is_in_one_cell_in_order_and_positions_never_pass_what_is_not_done(
    partitions, size, window_cells, random
):
    records, next_offset = [], dict.fromkeys(range(3), 0)
    for partition in partitions:
        next_offset[partition] += random.randint(1, 3)  # offsets have gaps
        records.append(record(next_offset[partition], partition))
    cut = list(cells_of(records, size))
    for partition in range(3):
        of_cells = [r for cell in cut if cell.partition == ("t", partition) for r in cell.records]
        assert of_cells == [r for r in records if r.partition == partition]
    window, waiting, flying = Window(window_cells), list(cut), []
    done = set()
    while waiting or flying:
        while waiting and not window.full:
            flying.append(waiting.pop(0))
            window.admit(flying[-1])
        cell = flying.pop(random.randrange(len(flying)))
        done.update((r.partition, r.offset) for r in cell.records)
        finish(window, cell)
        for (_, partition), position in window.positions.items():
            before = [r for r in records if r.partition == partition and r.offset < position]
            assert all((r.partition, r.offset) in done for r in before)
        assert window.most_records <= window_cells * size
    assert window.empty
    assert window.positions == {
        ("t", p): max(r.offset for r in records if r.partition == p) + 1 for p in set(partitions)
    }
