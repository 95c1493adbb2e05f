"""Workers that call the handler: threads, or coroutines if it is an ``async def``; and how long its calls take."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from spark_kafka_group.errors import ProcessingError
from spark_kafka_group.processing.record import Record, materialized
from spark_kafka_group.processing.work_queue import Slice, WorkQueue

BUCKETS = 8 * 40  # up to some hours, in microseconds


class Latencies:
    """Counts a handler's calls by their duration. For one thread."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS

    def add(self, nanoseconds: int) -> None:
        us = nanoseconds // 1000
        exponent = us.bit_length() - 4
        index = us if exponent <= 0 else (exponent << 3) + (us >> exponent)
        self.counts[index if index < BUCKETS else BUCKETS - 1] += 1

    def merge(self, other: Latencies) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]

    def milliseconds(self) -> Iterator[tuple[float, int]]:
        """Middle of each bucket that has any, and how many it has."""
        for index, count in enumerate(self.counts):
            if count:
                yield middle_us(index) / 1000, count


def middle_us(index: int) -> float:
    """Of a bucket, in microseconds."""
    if index < 16:
        return index + 0.5
    exponent = (index >> 3) - 1
    return (((index & 7) + 8) << exponent) + (1 << exponent) / 2


WATCHED_EVERY_S = 1.0
MOST_ABANDONED = 1000
"""The most threads of a task whose handlers hang, as a thread cannot be ended. With more, single records are not the
cause."""

ENDED_WITHIN_S = 10.0  # how long a task that fails waits for handlers that still run


class Workers(Protocol):
    """Takes records from the queue until the work is over."""

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Run the workers in this block; leaving it waits for all that are not abandoned."""

    def latencies(self) -> Latencies:
        """Durations of all calls of the handler, also of those that failed."""


class _Thread:
    """One thread that calls the handler for one record after the other."""

    def __init__(self, queue: WorkQueue, handler: Callable[[Record], Any]) -> None:
        self._queue = queue
        self._handler = handler
        self._taken: Slice | None = None
        self._at = 0
        self._done = 0
        self._began = 0
        self._first = 0
        # Whoever empties this list reports how the call ended: this thread, or the thread that abandons it.
        self._call: list[None] = []
        self.latencies = Latencies()
        self.thread = threading.Thread(target=self._run, name="groupkafka-handler", daemon=True)

    def _run(self) -> None:
        try:
            while (taken := self._queue.take_slice()) is not None:
                self._taken, self._done = taken, 0
                if not self._handle(taken):
                    return
                self._queue.finished(taken, self._done, (time.perf_counter_ns() - self._first) / 1e9)
        except BaseException as error:  # noqa: BLE001 - raised by process(), a SystemExit of a handler's included
            self._queue.abort(error)

    def _handle(self, taken: Slice) -> bool:
        """Handle a slice. Returns False if this thread was abandoned meanwhile."""
        handler, add = self._handler, self.latencies.add
        self._first = began = time.perf_counter_ns()
        for at, record in enumerate(taken.records):
            self._at, self._began = at, began
            call = self._call = [None]
            error: BaseException | None = None
            result: object = None
            try:
                result = handler(record)
                if result is not None:
                    result = materialized(result)
            except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - a handler may raise anything
                error = raised
            ended = time.perf_counter_ns()
            try:
                call.pop()
            except IndexError:
                return False
            add(ended - began)
            began = ended
            if error is None and result is not None:
                error = self._queue.returned(record, result)
                began = time.perf_counter_ns()  # a registry may have been away
            if error is None:
                self._done += 1
            elif self._queue.failed(taken, at, error):
                break
            else:
                began = time.perf_counter_ns()
        self._call = []
        return True

    def abandon(self, after_ns: int) -> bool:
        """Abandon this thread if its handler takes longer."""
        call, taken, at, now = self._call, self._taken, self._at, time.perf_counter_ns()
        ran_ns = now - self._began
        if not call or taken is None or ran_ns <= after_ns or call is not self._call:
            return False
        try:
            call.pop()
        except IndexError:
            return False
        self.latencies.add(ran_ns)
        self._queue.stalled(taken, at, self._done, (now - self._first) / 1e9, ran_ns / 1e9)
        return True


class Threads:
    """A pool of threads. A thread that hangs is replaced."""

    def __init__(self, queue: WorkQueue, handler: Callable[[Record], Any], threads: int, stall_timeout_ms: int) -> None:
        self._queue = queue
        self._handler = handler
        self._stall_timeout_ms = stall_timeout_ms
        self._over = threading.Event()
        self._threads = [_Thread(queue, handler) for _ in range(threads)]
        self._gone: list[_Thread] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        for worker in self._threads:
            worker.thread.start()
        watchman = threading.Thread(target=self._watch, name="groupkafka-watchman", daemon=True)
        watchman.start()
        try:
            yield
        finally:
            self._over.set()
            watchman.join()
            _join([worker.thread for worker in self._threads])

    def latencies(self) -> Latencies:
        merged = Latencies()
        for worker in self._threads + self._gone:
            merged.merge(worker.latencies)
        return merged

    def _watch(self) -> None:
        every_s = min(WATCHED_EVERY_S, self._stall_timeout_ms / 4000)
        while not self._over.wait(every_s):
            for index, worker in enumerate(self._threads):
                if worker.abandon(self._stall_timeout_ms * 1_000_000):
                    self._gone.append(worker)
                    self._threads[index] = _Thread(self._queue, self._handler)
                    self._threads[index].thread.start()
            if len(self._gone) > MOST_ABANDONED:
                self._queue.abort(
                    ProcessingError(
                        f"{len(self._gone)} handlers of one task hang: give each call that they make a timeout"
                    )
                )
                return


class Coroutines:
    """Up to `most` coroutines of an ``async def`` handler at once, on the event loop of one thread."""

    def __init__(
        self, queue: WorkQueue, handler: Callable[[Record], Awaitable[Any]], most: int, stall_timeout_ms: int
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._most = most
        self._stall_s = stall_timeout_ms / 1000
        self._latencies = Latencies()
        self._thread = threading.Thread(target=self._run, name="groupkafka-handlers", daemon=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            _join([self._thread])

    def latencies(self) -> Latencies:
        return self._latencies

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - raised by process()
            self._queue.abort(error)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(self._most)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await free.acquire()
                taken = await loop.run_in_executor(None, self._queue.take_slice)
                if taken is None:
                    return
                tasks.create_task(self._handle(taken, free))

    async def _handle(self, taken: Slice, free: asyncio.Semaphore) -> None:
        done, first = 0, time.perf_counter_ns()
        try:
            for at, record in enumerate(taken.records):
                began = time.perf_counter_ns()
                try:
                    async with asyncio.timeout(self._stall_s) as limit:
                        result = materialized(await self._handler(record))
                except (Exception, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                        raise
                    ran_ns = time.perf_counter_ns() - began
                    self._latencies.add(ran_ns)
                    if limit.expired():
                        self._queue.stalled(taken, at, done, (time.perf_counter_ns() - first) / 1e9, ran_ns / 1e9)
                        return
                    if self._queue.failed(taken, at, error):
                        break
                else:
                    self._latencies.add(time.perf_counter_ns() - began)
                    problem = None if result is None else await self._returned(record, result)
                    if problem is None:
                        done += 1
                    elif self._queue.failed(taken, at, problem):
                        break
            self._queue.finished(taken, done, (time.perf_counter_ns() - first) / 1e9)
        except (SystemExit, KeyboardInterrupt) as error:
            self._queue.abort(error)  # raised, it would leave the loop at once, and the tasks in it unawaited
        except BaseException as error:
            self._queue.abort(error)  # or the loop would wait, at its end, for the thread that takes the next records
            raise
        finally:
            free.release()

    async def _returned(self, record: Record, result: object) -> Exception | None:
        if self._queue.asks_registries:  # meanwhile other handlers go on, and none seems to hang
            return await asyncio.to_thread(self._queue.returned, record, result)
        return self._queue.returned(record, result)


def _is_cancelled() -> bool:
    """Whether this coroutine was cancelled itself. If not, it awaits something that others have cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _join(threads: Sequence[threading.Thread]) -> None:
    """Wait for threads. Some may still be in a handler when the failure of another ended the work."""
    deadline = time.monotonic() + ENDED_WITHIN_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def workers_for(queue: WorkQueue, handler: Callable[[Record], Any], threads: int, stall_timeout_ms: int) -> Workers:
    """Coroutines for an ``async def`` handler, else threads."""
    kind = Coroutines if is_async(handler) else Threads
    return kind(queue, handler, threads, stall_timeout_ms)


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: an ``async def``, or an object whose ``__call__`` is one."""
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
