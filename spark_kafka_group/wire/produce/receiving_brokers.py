"""Leaders that records are sent to. Who they are is looked up, and connections are made, while others receive."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from spark_kafka_group.errors import BrokerError, UnsupportedVersionError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.connect import RETRY_BACKOFF_S, translated
from spark_kafka_group.wire.client.reachability import address
from spark_kafka_group.wire.client.sockets import noticing
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.produce.produce_connection import ProduceConnection
from spark_kafka_group.wire.produce.produce_messages import VERSIONS
from spark_kafka_group.wire.reactions import RETRIED, Facts, Request, advice, name_of, reaction_to

T = TypeVar("T")

LAST_OF_INIT = 4  # the last version of InitProducerId that is needed
ANSWERED_WITHIN_MS = 5_000.0
"""How long a leader may take to say what it knows of a producer, while records of others wait."""
MOST_ROUNDS = 100  # of kafka-python's event loop in one call, which goes on in the next one


class ReceivingBrokers(Leaders[ProduceConnection[T]]):
    """Who leads a partition, and connections for records; kafka-python's event loop runs in :meth:`work` only."""

    def __init__(self, options: ClientOptions, role: str = "executor") -> None:
        super().__init__(options, role)
        self._look_up: Any = None
        self.looked_up_s = float("-inf")  # when brokers last said who leads, by time.monotonic()
        self.begun = 0  # how many lookups have begun
        self.answered = 0  # the number of the last lookup that brokers have answered; 0 for none
        self._attempts: dict[int, Any] = {}

    @property
    def busy(self) -> bool:
        """Whether leaders are being looked up, or a connection is being made."""
        # One that is made may stay here unused: its node leads no more.
        return self._look_up is not None or not all(attempt.is_done for attempt in self._attempts.values())

    def descriptor(self) -> int:
        """Ready for reading when :meth:`work` has something to do, timers left out."""
        return int(self._bootstrapped()._net._selector.fileno())

    def work(self) -> None:
        """Let lookups and connecting go on, without waiting. Raises BrokerError when a lookup has failed."""
        net = self._bootstrapped()._net
        net.poll(timeout_ms=0)
        for _ in range(MOST_ROUNDS):
            if not net._ready:
                break
            net.poll(timeout_ms=0)
        if self._look_up is not None and self._look_up.is_done:
            done, self._look_up = self._look_up, None
            with translated("looking up leaders"):
                if done.exception is not None:
                    raise done.exception
            self.looked_up_s = time.monotonic()
            self.answered = self.begun

    # Leaders

    def begin_look_up(self, topics: Collection[str]) -> None:
        """Have leaders of topics looked up by :meth:`work`, unless a lookup is under way. Raises BrokerError."""
        if self._look_up is not None:
            return
        with translated("looking up leaders"):
            manager = self._bootstrapped()._manager
            cluster = manager.cluster
            try:
                cluster.set_topics(set(cluster._topics) | set(topics))
            except (TypeError, ValueError) as error:
                raise BrokerError(f"looking up leaders of {', '.join(sorted(topics))}: {error}") from error
            # Another broker than before may be asked: that may be cut off from the cluster, and not know it.
            self._look_up = manager.call_soon(lambda: cluster.refresh_metadata(manager.any_node()))
            self.begun += 1

    def leader(self, tp: TopicPartition) -> int | None:
        """Node id of the leader by the last lookup, if there is one; no I/O."""
        return self._known_leaders(self._bootstrapped().cluster, [tp], {}).get(tp)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, by the last lookup; None if it is not known. No I/O."""
        partitions = self._bootstrapped().cluster.partitions_for_topic(topic)
        return None if partitions is None else len(partitions)

    def denied(self, topic: str) -> bool:
        """Whether this user may not know of a topic, by the last lookup; no I/O."""
        return topic in self._bootstrapped().cluster.unauthorized_topics

    def topic_id(self, topic: str) -> str | None:
        """Id of a topic in the last lookup (KIP-516); brokers before Kafka 2.8 give none. No I/O."""
        found = self._bootstrapped().cluster.topic_id(topic)
        return None if found is None else str(found)

    # Connections

    def connected(self, node_id: int) -> ProduceConnection[T] | None:
        """The connection to a node; None until :meth:`work` has made it. Raises BrokerError, OSError if that failed."""
        connection = self._usable(node_id)
        if connection is not None:
            return connection
        manager = self._bootstrapped()._manager
        attempt = self._attempts.get(node_id)
        if attempt is None:

            async def connect() -> ProduceConnection[T]:
                return self._taken_over(node_id, await self._connected(node_id))

            self._attempts[node_id] = manager.call_soon(connect)
            return None
        if not attempt.is_done:
            return None
        del self._attempts[node_id]
        with translated(f"connecting to node {node_id}"):
            if attempt.exception is not None:
                raise attempt.exception
        self._connections[node_id] = attempt.value
        return self._usable(node_id)

    def connections(self) -> list[tuple[int, ProduceConnection[T]]]:
        """Those that there are, with their nodes."""
        return list(self._connections.items())

    def name(self, node_id: int) -> str:
        """A node, with its address if that is known; no I/O."""
        node = None if self._client is None else self._client.cluster.broker_metadata(node_id)
        return f"node {node_id}" if node is None else f"node {node_id} ({address(node.host, node.port)})"

    def close(self) -> None:
        for attempt in self._attempts.values():
            if attempt.is_done and attempt.exception is None:
                attempt.value.close()
        self._attempts.clear()
        self._look_up = None
        super().close()

    def _over(self, sock: socket.socket, node_id: int, conn: Any, lifetime_s: float | None) -> ProduceConnection[T]:
        version = conn.broker_version_data.api_version(ProduceRequest, max_version=VERSIONS[-1])
        # While a broker waits for its followers it takes no more bytes, and that is no sign of death.
        for option in noticing(self.options.connection.request_timeout_ms):
            sock.setsockopt(*option)
        client_id = f"{self.options.connection.client_id}-{self._role}"
        return ProduceConnection(sock, client_id, version, lifetime_s, conn.made_to)

    # Producer ids

    def new_producer_id(self, within_s: float, topics: Collection[str]) -> tuple[int, int]:
        """A producer id and its epoch, for a producer without transactions. `topics`: for the error. Raises BrokerError
        when brokers refuse, or none has answered by then."""
        deadline = time.monotonic() + within_s
        with translated("asking for a producer id", None, "kafka.delivery.timeout.ms", lambda: self.last_failure):
            while True:
                try:
                    response = self._run(self._ask_for_producer_id, max(1.0, (deadline - time.monotonic()) * 1000))
                    if not response.error_code:
                        return response.producer_id, response.producer_epoch
                    error = kafka_errors.for_code(response.error_code)
                    change = advice(name_of(error), Request.PRODUCE, Facts(), topics)
                    if change is not None and reaction_to(error) not in RETRIED:
                        raise BrokerError(f"asking for a producer id: {name_of(error)}: {change}")
                    raise error
                except kafka_errors.IncompatibleBrokerVersion as error:
                    raise UnsupportedVersionError(
                        "asking for a producer id: the brokers have none: set kafka.enable.idempotence to false"
                    ) from error
                except kafka_errors.KafkaError as error:
                    if reaction_to(error) not in RETRIED or time.monotonic() + RETRY_BACKOFF_S >= deadline:
                        raise
                    time.sleep(RETRY_BACKOFF_S)

    def last_sequence(self, tp: TopicPartition, producer_id: int) -> int | None:
        """Sequence of a producer's last record in a log, by its leader (KIP-664); None where that has no such producer,
        the user may not read, or before Kafka 2.8. Raises BrokerError without an answer."""
        from kafka.protocol.admin import DescribeProducersRequest

        manager = self._bootstrapped()._manager
        of_topic = DescribeProducersRequest.TopicRequest(name=tp.topic, partition_indexes=[tp.partition])
        request = DescribeProducersRequest(topics=[of_topic])
        with translated(f"asking for the last record in {tp}"):
            node_id = self.leader(tp)
            if node_id is None:
                raise kafka_errors.LeaderNotAvailableError(tp)
            try:
                response = self._run(lambda: manager.send(request, node_id), ANSWERED_WITHIN_MS)
            except kafka_errors.IncompatibleBrokerVersion:
                return None
            for found in (partition for topic in response.topics for partition in topic.partitions):
                error = kafka_errors.for_code(found.error_code)
                if found.error_code and reaction_to(error, Request.PRODUCE) in RETRIED:
                    raise error(found.error_message)
                for producer in found.active_producers:
                    if producer.producer_id == producer_id:
                        return int(producer.last_sequence)
        return None

    async def _ask_for_producer_id(self) -> Any:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1, max_version=LAST_OF_INIT
        )
        return await self._bootstrapped()._manager.send(request)
