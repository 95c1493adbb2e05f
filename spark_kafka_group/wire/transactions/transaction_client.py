"""A client of transaction coordinators: one request for each of many transactional ids, until all are answered."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from secrets import randbelow
from typing import Any, Self

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.producer import InitProducerIdRequest

from spark_kafka_group.errors import BrokerError, ProducerFencedError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.options.transacting import LONGEST_MARK_MS
from spark_kafka_group.text.foreign_text import listed
from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.transactional_ids import TaskId, pattern
from spark_kafka_group.wire.client.connect import connection_configs, reached_client, run_within, translated
from spark_kafka_group.wire.client.refusals import RefusedError
from spark_kafka_group.wire.lacking import version_of
from spark_kafka_group.wire.reactions import RETRIED, Reaction, Request, name_of, reaction_to
from spark_kafka_group.wire.transactions import transaction_requests as requests
from spark_kafka_group.wire.transactions.transaction_coordinators import (
    AT_ONCE,
    LIMIT,
    Answered,
    Coordinators,
    Instead,
    Partitions,
    last_of,
    late,
)
from spark_kafka_group.wire.transactions.transaction_requests import About, Attempts, Described

log = logging.getLogger(__name__)

LISTED_WITHIN_S = 5.0
"""How long a broker that is asked for its open transactions may take: nothing depends on it but time."""
NONE_BEGINS_MS = 1_000
"""Timeout with which an id is taken where no transaction begins by it: brokers may refuse long ones."""
LAST_EPOCH = 2**15 - 2  # brokers give out another producer id after it
LARGEST_RESPONSE = 64 * 1024 * 1024
STOLEN = "another process has begun with this kafka.transactional.id, and this one stops: run one query for each"


class TransactionClient:
    """A context manager, for one thread. It starts none.

    `role`: of the client's name.
    `limit_ms`: how long requests are repeated.
    `reached_before`: this application has reached the cluster: brokers that cannot be reached are an outage, not a
        wrong address.
    Raises BrokerError here, when no broker can be reached, and by everything below.
    """

    def __init__(self, options: ClientOptions, role: str, limit_ms: int, reached_before: bool = False) -> None:
        self._limit_s = limit_ms / 1000
        self._until_s: float | None = None
        configs = connection_configs(options, role)
        configs |= {"max_in_flight_requests_per_connection": 2 * AT_ONCE, "receive_message_max_bytes": LARGEST_RESPONSE}
        with translated(f"connecting to {options.connection.bootstrap_servers}", limit=LIMIT):
            self._client = reached_client(configs, limit_ms, reached_before)
        self.manager = self._client._manager
        self.coordinators = Coordinators(self.manager)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections. Harmless when repeated."""
        self._client.close()

    # What brokers can

    @property
    def describes(self) -> bool:
        """Whether brokers describe and list transactions: from Kafka 3.0 on."""
        return (
            version_of(self.manager, DescribeTransactionsRequest) >= 0
            and version_of(self.manager, ListTransactionsRequest) >= 0
        )

    @property
    def takes_expected(self) -> bool:
        """Whether an id can be taken from an expected producer only: from Kafka 2.5 on."""
        return version_of(self.manager, InitProducerIdRequest) >= requests.RESUMED_FROM

    # Of one id

    def take_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
        partitions: Collection[TopicPartition] = (),
    ) -> ProducerIdAndEpoch:
        """Take an id: abort what it has open, and fence its producer.

        `timeout_ms`: how long its transactions may be open; up to a second less where a producer is expected.
        `expected`: take it from this producer only.
        `partitions`: of what is open, where no producer is expected: their leaders are waited for.
        Raises ProducerFencedError when another producer than the expected one has it.
        """
        with self.together():
            doing, request = f"taking transactional id {transactional_id}", Request.INIT_PRODUCER_ID
            sent_ms = timeout_ms if expected is None else _marked(timeout_ms)
            ended = {transactional_id: partitions}
            found = self._taken({transactional_id: expected}, doing, sent_ms, ended)[transactional_id]
            if expected is not None and sent_ms != timeout_ms and reaction_to(found.error, request) is Reaction.FENCED:
                ours = self._taken_unanswered(transactional_id, expected, sent_ms)
                if ours is not None:
                    return self.take_id(transactional_id, timeout_ms, ours)
            answered = self._response(request, doing, transactional_id, found)
            return ProducerIdAndEpoch(answered.producer_id, answered.producer_epoch)

    def take_free(self, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch | None:
        """Take an id; None if its transaction, looked up right before, is open, or another process is quicker."""
        doing, request = f"taking transactional id {transactional_id}", Request.INIT_PRODUCER_ID

        def under_way(_: str, looked: Answered) -> Answered | None:
            if looked.error is not None:
                return None if _cannot_say(looked.error) else looked
            return Answered(error=kafka_errors.ProducerFencedError) if looked.described.is_under_way else None

        found = self._all(
            request, doing, [transactional_id], lambda one: requests.init_producer_id(one, timeout_ms, None), under_way
        )[transactional_id]
        if found.error is not None and reaction_to(found.error, request) is Reaction.FENCED:
            return None
        answered = self._response(request, doing, transactional_id, found)
        return ProducerIdAndEpoch(answered.producer_id, answered.producer_epoch)

    def aged(self, transactional_id: str, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch | None:
        """The producer after this one, whose transaction coordinators aborted for its age, or for this process: they
        then raise the epoch before Kafka 4. None where another process may have the id, or brokers cannot say it."""

        def looked(_: float) -> Described | None:
            found = self._next_of(transactional_id, producer)
            if found is not None and found.is_being_aborted:
                raise kafka_errors.ConcurrentTransactionsError(transactional_id)
            return found

        doing = f"waiting for the end of the transaction of {transactional_id}"
        with self.together():
            found = self.retried(doing, looked, Request.INIT_PRODUCER_ID)
        return found.producer if found is not None and found.aborted else None

    def _taken_unanswered(
        self, transactional_id: str, expected: ProducerIdAndEpoch, marked_ms: int
    ) -> ProducerIdAndEpoch | None:
        """The producer that an attempt of this call has made, if it is the newest one.

        1. An attempt takes the id from the expected producer, and its coordinator dies before it has answered. 2. The
        next coordinator refuses the attempt that follows: its log does not say from which producer the id was taken.
        3. It does say the transaction's timeout. Another process that takes the id from this producer has none that is
        marked, as it expects none yet, and with its next requests come other epochs.
        """
        found = self._next_of(transactional_id, expected)
        if found is None or found.open or found.timeout_ms != marked_ms:
            return None
        return found.producer

    def _next_of(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Described | None:
        """What coordinators say of an id, if its producer is the next one after this."""
        found = self.describe([transactional_id]).get(transactional_id) if self.describes else None
        return found if found is not None and is_next(found.producer, producer) else None

    def take_with(self, transactional_id: str, timeouts_ms: Sequence[int]) -> tuple[ProducerIdAndEpoch, int]:
        """Take an id with the first timeout that brokers allow; the producer and that timeout."""
        with self.together():
            partitions = self._partitions_of([transactional_id]).get(transactional_id, ())
            for timeout_ms in timeouts_ms[:-1]:
                try:
                    return self.take_id(transactional_id, timeout_ms, partitions=partitions), timeout_ms
                except BrokerError as error:
                    if not isinstance(error.__cause__, kafka_errors.InvalidTransactionTimeoutError):
                        raise
            return self.take_id(transactional_id, timeouts_ms[-1], partitions=partitions), timeouts_ms[-1]

    def give_up(self, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
        """Abort what this producer, which writes no more, has open, without another epoch for it."""
        doing = f"aborting the transaction of {transactional_id}"
        request, partitions = Request.END_TRANSACTION, self._partitions_of([transactional_id])
        found = self._all(
            request, doing, [transactional_id], lambda one: requests.end(one, producer, commit=False),
            partitions=partitions,
        )  # fmt: skip
        self._ended(request, doing, transactional_id, found[transactional_id])

    def add(self, transactional_id: str, producer: ProducerIdAndEpoch, tps: Collection[TopicPartition]) -> None:
        """Add partitions to a transaction. Raises ProducerFencedError."""
        self._one(
            Request.ADD_PARTITIONS,
            f"adding {listed([str(tp) for tp in sorted(tps)])} to the transaction of {transactional_id}",
            transactional_id,
            lambda: requests.add_partitions(transactional_id, producer, tps),
            About(Request.ADD_PARTITIONS, tuple({tp.topic for tp in tps}), transactional_id=transactional_id),
        )

    def add_group(self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str) -> None:
        """Have a transaction cover offsets of a group. Raises ProducerFencedError."""
        self._one(
            Request.ADD_GROUP,
            f"adding offsets of group {group_id} to the transaction of {transactional_id}",
            transactional_id,
            lambda: requests.add_group(transactional_id, producer, group_id),
            About(Request.ADD_GROUP, group_id=group_id, transactional_id=transactional_id),
        )

    def commit(self, transactional_id: str, producer: ProducerIdAndEpoch) -> bool:
        """Commit a transaction, perhaps again; whether it is committed. If not, it had ended before, or was fenced."""
        return self.commit_all({transactional_id: producer})[transactional_id]

    # Of many

    def commit_all(
        self, transactions: Mapping[str, ProducerIdAndEpoch], partitions: Partitions | None = None
    ) -> dict[str, bool]:
        """Commit, perhaps again, once partitions have leaders; False for a transaction that had ended before."""
        found = self._all(
            Request.END_TRANSACTION, "committing transactions", transactions,
            lambda one: requests.end(one, transactions[one], commit=True), partitions=partitions,
        )  # fmt: skip
        return {
            one: not self._ended(Request.END_TRANSACTION, "committing transactions", one, answered)
            for one, answered in found.items()
        }

    def abort_all(self, transactions: Mapping[str, ProducerIdAndEpoch]) -> None:
        """Abort transactions of just these producers, if they are open, and fence the producers.

        EndTxn would leave a task that is still alive its epoch: 1. the transaction is aborted. 2. A record that the
        task has sent arrives. 3. Brokers before Kafka 3.6 write it, outside of any transaction, and no marker follows:
        readers of committed records wait for it for ever. A new epoch has brokers refuse the record. Brokers before
        2.5 can be asked for that only without saying whose transaction is meant.

        Each one waits for leaders of its partitions (see :meth:`Coordinators.answers`).
        """
        doing = "aborting transactions"
        if self.takes_expected:
            found = self._taken(transactions, doing, NONE_BEGINS_MS)
            request = Request.INIT_PRODUCER_ID
        else:
            found = self._all(
                Request.END_TRANSACTION, doing, transactions,
                lambda one: requests.end(one, transactions[one], commit=False),
            )  # fmt: skip
            request = Request.END_TRANSACTION
        for one, answered in found.items():
            self._ended(request, doing, one, answered)

    def _taken(
        self,
        expected: Mapping[str, ProducerIdAndEpoch | None],
        doing: str,
        timeout_ms: int,
        partitions: Partitions | None = None,
    ) -> dict[str, Answered]:
        """Take ids, each from this producer only, if one is expected; then touch no transaction of others.

        Brokers refuse InitProducerId with an outdated producer, but first they abort what the newer one has open, and
        fence it. A process that was replaced, and comes back, would end the one that has taken its place. So each
        attempt looks before what is open. A newer producer may still begin in the moment between the two.

        An attempt of this call may have raised the epoch, and not ended the transaction, as replicas of the
        coordinator's log were away. The transaction has begun when it did, then; another process's begins later.

        Where brokers have raised the last epoch of all, to abort, they answer UNKNOWN_SERVER_ERROR to the producer
        before it, before transaction.version 2. It is fenced, then.
        """
        began_ms: dict[str, int] = {}

        def of_another(one: str, looked: Answered) -> Answered | None:
            if looked.error is not None:
                return None if _cannot_say(looked.error) else looked
            known = looked.described
            if not known.open and _is_used_up(known.producer, expected[one]):
                return Answered(error=kafka_errors.ProducerFencedError)
            if known.open and known.producer == expected[one]:
                began_ms[one] = known.started_ms
            elif known.open and known.started_ms != began_ms.get(one):
                return Answered(error=kafka_errors.ProducerFencedError)
            return None

        return self._all(
            Request.INIT_PRODUCER_ID, doing, expected,
            lambda one: requests.init_producer_id(one, timeout_ms, expected[one]),
            of_another if self.describes and any(expected.values()) else None, partitions,
        )  # fmt: skip

    def _partitions_of(self, transactional_ids: Collection[str]) -> Partitions:
        """The partitions of transactions that are not over, as far as coordinators tell."""
        if not self.describes:
            return {}
        doing, request = "describing transactions", Request.DESCRIBE_TRANSACTION
        found = self._all(request, doing, transactional_ids, lambda one: requests.describe([one]))
        return {one: answered.described.partitions for one, answered in found.items() if answered.error is None}

    def describe(self, transactional_ids: Collection[str]) -> dict[str, Described]:
        """Those of the ids that coordinators know."""
        doing, request = "describing transactions", Request.DESCRIBE_TRANSACTION
        found = self._all(request, doing, transactional_ids, lambda one: requests.describe([one]))
        known = {}
        for one, answered in found.items():
            if answered.error is None:
                known[one] = answered.described
            elif reaction_to(answered.error, request) is not Reaction.NO_SUCH_TRANSACTION:
                raise self._refused(request, f"{doing} (of {one})", one, answered.error)
        return known

    def open_of(self, prefix: str) -> dict[str, Described]:
        """The open transactions of tasks of a prefix, by their ids; those of brokers that do not answer are missing."""
        of_tasks = self._of_tasks(prefix, [requests.OPEN])
        return {one: found for one, found in self.describe(of_tasks).items() if found.open}

    def committed_of(self, prefix: str) -> list[str]:
        """The ids of tasks of a prefix that committed last; without those of brokers that do not answer."""
        return sorted(self._of_tasks(prefix, requests.COMMITTED))

    def _of_tasks(self, prefix: str, states: Collection[str]) -> list[str]:
        if not self.describes:
            return []
        listed: set[str] = set()
        for node in [broker.node_id for broker in self.manager.cluster.brokers()]:
            listed |= self._listed(node, prefix, states)
        return [one for one in listed if TaskId.parsed(one, prefix) is not None]

    def _listed(self, node: Any, prefix: str, states: Collection[str]) -> set[str]:
        attempts = Attempts(min(LISTED_WITHIN_S, self._left_s))
        request = requests.list_in(states, pattern(prefix))
        while True:
            try:
                response = self.run(attempts.left_ms, lambda: self.manager.send(request, node_id=node))
                requests.check(response.error_code, f"node {node}")
                return {found.transactional_id for found in response.transaction_states}
            except kafka_errors.KafkaError as error:
                if reaction_to(error) not in RETRIED or not attempts.pause():
                    log.warning(
                        "kafka.transactional.id %s: node %s does not list its transactions: %s. Those that nobody "
                        "ends stay open until their timeout",
                        prefix, node, name_of(type(error)),
                    )  # fmt: skip
                    return set()
            if not self._is_there(node, attempts):
                return set()  # others coordinate its transactions by now, or soon

    def _is_there(self, node: Any, attempts: Attempts) -> bool:
        """Whether the cluster counts a broker among its own now."""
        cluster = self.manager.cluster
        with contextlib.suppress(kafka_errors.KafkaError):
            self.run(attempts.left_ms, cluster.refresh_metadata)
        return any(broker.node_id == node for broker in cluster.brokers())

    # Requests

    @contextlib.contextmanager
    def together(self, within_s: float = math.inf) -> Iterator[None]:
        """All requests of the block are repeated for no longer than one of them is elsewhere, and at most so long."""
        outer = self._until_s
        until_s = time.monotonic() + min(self._limit_s, within_s)
        self._until_s = until_s if outer is None else min(outer, until_s)
        try:
            yield
        finally:
            self._until_s = outer

    @property
    def _left_s(self) -> float:
        """How long the next request may be repeated."""
        return self._limit_s if self._until_s is None else max(0.0, self._until_s - time.monotonic())

    def run(self, timeout_ms: float, call: Callable[[], Any]) -> Any:
        """A call of kafka-python's manager; raises kafka-python's errors."""
        return run_within(self.manager, timeout_ms, call)

    def send(self, request: Any, node_id: Any, timeout_ms: float) -> Any:
        """A broker's response to a request, which waits for its throttle time; raises kafka-python's errors."""

        until_s = time.monotonic() + timeout_ms / 1000

        async def sent() -> Any:
            await self.manager.unthrottled(node_id)
            if time.monotonic() >= until_s:  # nobody waits for it any more
                raise kafka_errors.KafkaTimeoutError
            return await self.manager.send(request, node_id=node_id)

        return self.run(timeout_ms, sent)

    def retried(
        self,
        doing: str,
        call: Callable[[float], Any],
        request: Request | None = None,
        about: About | None = None,
    ) -> Any:
        """Call with the milliseconds left until it works, at most until the limit; `request` says what is repeated."""
        attempts = Attempts(self._left_s)
        last: Any = None
        while True:
            try:
                return call(attempts.left_ms)
            except kafka_errors.KafkaError as error:
                if reaction_to(error, request) not in RETRIED:
                    name = name_of(type(error))
                    text = (about or About()).advice(name)
                    if text is not None:
                        raise BrokerError(f"{doing}: {name}: {text}") from error
                    with translated(doing):
                        raise
                last = last_of(last, type(error))
                if not attempts.pause():
                    raise late(self.manager, doing, last, about) from error

    def _all(
        self,
        request: Request,
        doing: str,
        transactional_ids: Iterable[str],
        make: Callable[[str], Any],
        instead: Instead | None = None,
        partitions: Partitions | None = None,
    ) -> dict[str, Answered]:
        return self.coordinators.answers(request, doing, transactional_ids, make, self._left_s, instead, partitions)

    def _one(
        self, request: Request, doing: str, transactional_id: str, make: Callable[[], Any], about: About | None = None
    ) -> Any:
        answered = self._all(request, doing, [transactional_id], lambda _: make())[transactional_id]
        return self._response(request, doing, transactional_id, answered, about)

    def _response(
        self, request: Request, doing: str, transactional_id: str, answered: Answered, about: About | None = None
    ) -> Any:
        if answered.error is not None:
            raise self._refused(request, doing, transactional_id, answered.error, about)
        return answered.response

    def _ended(self, request: Request, doing: str, transactional_id: str, answered: Answered) -> bool:
        """Whether the answer is that the transaction is not open, or not this producer's."""
        if answered.error is None:
            return False
        if reaction_to(answered.error, request) in (Reaction.ENDED, Reaction.FENCED):
            return True
        raise self._refused(request, f"{doing} (of {transactional_id})", transactional_id, answered.error)

    def _refused(
        self, request: Request, doing: str, transactional_id: str, error: Any, about: About | None = None
    ) -> Exception:
        name = name_of(error)
        if issubclass(error, RefusedError) and self.manager.last_failure is not None:
            name = self.manager.last_failure  # the class does not say why
        text = (about or About(request, transactional_id=transactional_id)).advice(name)
        refused: Exception = BrokerError(": ".join([doing, name, text] if text else [doing, name]))
        if reaction_to(error, request) is Reaction.FENCED:
            refused = ProducerFencedError(f"{doing}: {name}: {STOLEN}")
        refused.__cause__ = error(transactional_id)
        return refused


def _cannot_say(error: Any) -> bool:
    """Whether a coordinator does not know an id, is an older broker (before 3.0), or may not tell this user."""
    unknown = reaction_to(error, Request.DESCRIBE_TRANSACTION) is Reaction.NO_SUCH_TRANSACTION
    silent = (kafka_errors.IncompatibleBrokerVersion, kafka_errors.TransactionalIdAuthorizationFailedError)
    return unknown or error in silent


def _marked(timeout_ms: int) -> int:
    """A timeout that is shorter, and probably no other call's."""
    return timeout_ms - randbelow(longest_mark(timeout_ms)) - 1 if timeout_ms > 1 else timeout_ms


def longest_mark(timeout_ms: int) -> int:
    """By how much a timeout with which an id is taken from an expected producer may be shorter."""
    return max(1, min(LONGEST_MARK_MS, timeout_ms // 100))


def is_next(producer: ProducerIdAndEpoch, expected: ProducerIdAndEpoch) -> bool:
    """Whether brokers have made a producer from another one, with one request."""
    if producer.producer_id == expected.producer_id:
        return producer.epoch == expected.epoch + 1
    return producer.epoch == 0 and expected.epoch >= LAST_EPOCH


def _is_used_up(producer: ProducerIdAndEpoch, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether brokers have raised a producer's last epoch, and have none left for its producer id."""
    return expected is not None and is_next(producer, expected) and producer.epoch > LAST_EPOCH
