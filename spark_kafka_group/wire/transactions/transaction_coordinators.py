"""Requests to the coordinators of transactional ids: one for each of many ids, until all are answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.metadata import FindCoordinatorRequest

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.connect import run_within
from spark_kafka_group.wire.lacking import version_of
from spark_kafka_group.wire.reactions import RETRIED, Reaction, Request, name_of, reaction_to
from spark_kafka_group.wire.transactions import transaction_requests as requests
from spark_kafka_group.wire.transactions.transaction_requests import About, Attempts, Described

AT_ONCE = 200  # requests on their way to one broker
LANES = 8  # connections to one broker over which ids are asked in turn; one for up to eight ids
LEADERS_NEEDED_FROM = (4, 1)
"""The first line of Kafka that may have KAFKA-20734: seen in 4.3.1 and 4.4.0, and not in 3.9.1."""
LIMIT = "kafka.delivery.timeout.ms"
NO_ANSWER = int(kafka_errors.UnknownError.errno)
"""The code that stands for a response without what was asked for: UNKNOWN_SERVER_ERROR."""


@dataclass(frozen=True)
class Answered:
    """A response, or the broker's error, which another attempt would not change."""

    response: Any = None
    error: Any = None

    @property
    def described(self) -> Described:
        """What a coordinator describes, where that was asked."""
        return requests.described(self.response.transaction_states[0])


Instead = Callable[[str, Answered], Answered | None]
"""For an id and what its coordinator describes: an answer that counts instead of another request's."""
Partitions = Mapping[str, Collection[TopicPartition]]  # of transactions, by their ids


@dataclass
class _Asking:
    """What one attempt asks for."""

    request: Request
    make: Callable[[str], Any]
    instead: Instead | None
    partitions: Partitions  # of the transactions that the request ends, as far as the caller knows them
    # Whether the attempt is under way. What goes on with the client's next use sends nothing: it comes too late.
    is_awaited: bool = True
    # Lookups of this attempt, by the connection and the topics
    leaders: dict[tuple[Any, frozenset[str]], Any] = field(default_factory=dict)

    def has_leaders(self, tps: Collection[TopicPartition], node_id: Any) -> bool:
        """Whether no lookup has to be waited for."""
        found = self.leaders.get((node_id, frozenset(tp.topic for tp in tps)))
        return not tps or (found is not None and found.is_done)


class Coordinators:
    """Where transactional ids are coordinated, as far as it was looked up. For one thread; it starts none."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._nodes: dict[str, int] = {}

    def node(self, transactional_id: str) -> int | None:
        """The broker that an id was asked at last, if it has answered."""
        return self._nodes.get(transactional_id)

    def answers(
        self,
        request: Request,
        doing: str,
        transactional_ids: Iterable[str],
        make: Callable[[str], Any],
        limit_s: float,
        instead: Instead | None = None,
        partitions: Partitions | None = None,
    ) -> dict[str, Answered]:
        """The coordinators' answers, once each is one that another attempt would not change.

        `limit_s`: how long requests are repeated.
        `instead`: called with an id and what its coordinator describes, right before each request for the id is sent;
            what it returns counts as the answer, and nothing is sent then.
        `partitions`: of transactions that the requests end. Nothing is sent for an id while one of its partitions has
            no leader: Kafka 4.3 and 4.4 count that as deleted (KAFKA-20734), write no marker to it, and say that the
            transaction has ended. The next marker of the producer would end these records, too: those of an aborted
            batch would be published, or those of a published one lost.
        Raises BrokerTimeoutError.
        """
        done: dict[str, Answered] = {}
        waiting = list(dict.fromkeys(transactional_ids))
        attempts = Attempts(limit_s)
        last: dict[str, Any] = {}
        while waiting:
            for part in [waiting[at : at + AT_ONCE] for at in range(0, len(waiting), AT_ONCE)]:
                for one, found in self._attempt(
                    _Asking(request, make, instead, partitions or {}), part, attempts
                ).items():
                    if found.error is not None and reaction_to(found.error, request) in RETRIED:
                        last[one] = last_of(last.get(one), found.error)
                        if reaction_to(found.error, request) is not Reaction.RETRY or found.response is None:
                            self._nodes.pop(one, None)
                    else:
                        done[one] = found
            waiting = [one for one in waiting if one not in done]
            if waiting and not attempts.pause():
                more = f" and of {len(waiting) - 1} more" if len(waiting) > 1 else ""
                known = About(request) if last[waiting[0]] is kafka_errors.UnknownError else None
                raise late(self._manager, f"{doing} (of {waiting[0]}{more})", last[waiting[0]], known)
        return done

    def _attempt(self, asking: _Asking, transactional_ids: Collection[str], attempts: Attempts) -> dict[str, Answered]:
        found = self._find([one for one in transactional_ids if one not in self._nodes], attempts)
        turns = self._turns(asking, [one for one in transactional_ids if one not in found])

        async def in_turn(ids: list[str], lane: int) -> None:
            for one in ids:
                found[one] = await self._asked(asking, one, self._nodes[one], lane)

        async def all_asked() -> None:
            for future in [self._manager.call_soon(in_turn, *turn) for turn in turns]:
                await future

        try:
            run_within(self._manager, attempts.left_ms, all_asked)
            return found
        except kafka_errors.KafkaError as error:
            return {one: Answered(error=type(error)) for one in transactional_ids} | found
        finally:
            asking.is_awaited = False

    def _turns(self, asking: _Asking, transactional_ids: list[str]) -> list[tuple[list[str], int]]:
        """Ids of which each one is asked when the one before it is answered, with the number of their connection. A
        broker takes the next request of a connection when it has answered the one before, and that may be a throttle
        time later. A look would be as old as that. So where looks are needed, no request waits behind another one."""
        if asking.instead is None:
            return [([one], 0) for one in transactional_ids]
        by_node: dict[int, list[str]] = {}
        for one in transactional_ids:
            by_node.setdefault(self._nodes[one], []).append(one)
        turns = []
        for ids in by_node.values():
            lanes = min(LANES, -(-len(ids) // LANES))
            turns += [(ids[lane::lanes], lane) for lane in range(lanes)]
        return turns

    async def _asked(self, asking: _Asking, one: str, node_id: int, lane: int) -> Answered:
        """An answer to the request, or to the look before it.

        1. A quota of requests is used up, and the answer to a look has a throttle time. 2. kafka-python sends nothing
        on this connection meanwhile. 3. The look is old by then. So another connection looks, which has throttle times
        of its own, once both may send.
        """
        sends_by = looks_by = self._manager.beside(node_id, lane) if lane else node_id
        if asking.instead is not None and self._manager.throttles(sends_by):
            looks_by = self._manager.beside(node_id, LANES + lane)
        await self._manager.unthrottled(sends_by, looks_by)
        if asking.instead is None:
            refused = await self._without_leader(asking, self._needing(asking.partitions.get(one, ())), sends_by)
            await self._manager.unthrottled(sends_by)
        else:
            looked, refused = await self._looked(asking, asking.instead, one, sends_by, looks_by)
            if refused is None and not self._manager.sends_now(sends_by):
                # Later, another process may have begun: look again then.
                throttled = self._manager.throttles(sends_by)
                later = kafka_errors.ThrottlingQuotaExceededError if throttled else kafka_errors.NodeNotReadyError
                refused = Answered(looked.response, later)
        return refused or await self._sent(asking, asking.request, asking.make(one), sends_by)

    async def _looked(
        self, asking: _Asking, instead: Instead, one: str, sends_by: Any, looks_by: Any
    ) -> tuple[Answered, Answered | None]:
        """What the coordinator describes right now, and the answer that counts instead of the request's, if any."""
        while True:
            looked = await self._sent(asking, Request.DESCRIBE_TRANSACTION, requests.describe([one]), looks_by)
            refused = instead(one, looked)
            if refused is not None or looked.error is not None:
                return looked, refused
            tps = self._needing(looked.described.partitions)
            were_known = asking.has_leaders(tps, looks_by)
            if not were_known:
                await self._manager.unthrottled(looks_by)
            refused = await self._without_leader(asking, tps, looks_by)
            if were_known or refused is not None:
                return looked, refused
            await self._manager.unthrottled(sends_by, looks_by)  # leaders were looked up, so what was described is old

    def _needing(self, tps: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Those of the partitions that have to have a leader. Other brokers write the marker once there is one."""
        return tps if self._manager.broker_version_data.broker_version >= LEADERS_NEEDED_FROM else ()

    async def _without_leader(self, asking: _Asking, tps: Collection[TopicPartition], node_id: Any) -> Answered | None:
        """The error where one of the partitions has no leader, as the coordinator knows, which writes the markers."""
        if not tps:
            return None
        topics = frozenset(tp.topic for tp in tps)
        if (node_id, topics) not in asking.leaders:
            asking.leaders[node_id, topics] = self._manager.send(requests.leaders_of(topics), node_id=node_id)
        try:
            response = await asking.leaders[node_id, topics]
        except kafka_errors.KafkaError as error:
            return Answered(error=type(error))
        if requests.leaderless(response).isdisjoint(tps):
            return None
        return Answered(response, kafka_errors.LeaderNotAvailableError)

    async def _sent(self, asking: _Asking, request: Request, message: Any, node_id: Any) -> Answered:
        if not asking.is_awaited:
            return Answered(error=kafka_errors.KafkaTimeoutError)
        try:
            response = await self._manager.send(message, node_id=node_id)
        except kafka_errors.KafkaError as error:
            return Answered(error=type(error))
        code = _code(response, request)
        return Answered(response, kafka_errors.for_code(code)) if code else Answered(response)

    def _find(self, transactional_ids: list[str], attempts: Attempts) -> dict[str, Answered]:
        """Look up coordinators; the errors of those that were not found."""
        if not transactional_ids:
            return {}
        batched = version_of(self._manager, FindCoordinatorRequest) >= requests.BATCHED_FROM
        parts = [transactional_ids] if batched else [[one] for one in transactional_ids]

        async def asked() -> list[Any]:
            futures = [self._manager.send(requests.find_coordinators(part)) for part in parts]
            return [await future for future in futures]

        try:
            responses = run_within(self._manager, attempts.left_ms, asked)
        except kafka_errors.KafkaError as error:
            return {one: Answered(error=type(error)) for one in transactional_ids}
        failed: dict[str, Answered] = {}
        for part, response in zip(parts, responses, strict=True):
            by_id = {found.key: found for found in response.coordinators} if batched else {part[0]: response}
            for one in part:
                found = by_id.get(one)
                if found is None or found.error_code:
                    code = NO_ANSWER if found is None else found.error_code
                    failed[one] = Answered(error=kafka_errors.for_code(code))
                else:
                    self._know(found)
                    self._nodes[one] = found.node_id
        return failed

    def _know(self, found: Any) -> None:
        """Have the manager know a broker that its metadata may not have yet."""
        if self._manager.cluster.broker_metadata(found.node_id) is None:
            with contextlib.suppress(kafka_errors.KafkaError):
                self._manager.cluster.request_update()


def late(manager: Any, doing: str, last: Any, about: About | None = None) -> BrokerTimeoutError:
    """The error where the limit is over, and this was the last answer."""
    unsaid = issubclass(last, (kafka_errors.KafkaTimeoutError, kafka_errors.NodeNotReadyError))
    if unsaid and manager.waits_for_quota and manager.last_failure is None:
        last = kafka_errors.ThrottlingQuotaExceededError
    if about is None and last is kafka_errors.ThrottlingQuotaExceededError:
        about = About()
    name = name_of(last)
    more = (None if about is None else about.advice(name)) or manager.last_failure
    said = "" if more is None else f": {more}"
    return BrokerTimeoutError(f"{doing}: {LIMIT} is over, last answer: {name}{said}", name)


def last_of(last: Any, error: Any) -> Any:
    """The error to name: the last answer, and not that an attempt after it had no time left."""
    return error if last is None or not issubclass(error, kafka_errors.KafkaTimeoutError) else last


def _code(response: Any, request: Request) -> int:
    """The error of a response about one id: the first that stays, where it has several."""
    if request is Request.ADD_PARTITIONS:
        codes = [code for _, code in requests.added(response) if code]
        lasting = [code for code in codes if reaction_to(kafka_errors.for_code(code), request) not in RETRIED]
        return (lasting or codes or [0])[0]
    if request is Request.DESCRIBE_TRANSACTION:
        states = response.transaction_states
        return int(states[0].error_code) if states else NO_ANSWER
    if request is Request.INIT_PRODUCER_ID and not response.error_code and response.producer_id < 0:
        return NO_ANSWER
    return int(response.error_code)
