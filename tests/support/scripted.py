"""A coordinator with scripted answers, which speaks Kafka through kafka-python's own message classes.

Left alone it coordinates one group of at most one member as Kafka does, so that a script says only what is unusual.
"""

from __future__ import annotations

import contextlib
import socketserver
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse, DescribeProducersRequest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest, ProduceRequest, ProduceResponse
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.members import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from spark_kafka_group.wire.reactions import OF_A_MEMBER, Request

FOREVER = 1_000_000
CODES = {error.message: code for code, error in kafka_errors.kafka_errors.items()}
VERSIONS = {
    ListOffsetsRequest: 10, MetadataRequest: 12, OffsetCommitRequest: 8, OffsetFetchRequest: 8,
    FindCoordinatorRequest: 4, JoinGroupRequest: 9, HeartbeatRequest: 4, LeaveGroupRequest: 5, SyncGroupRequest: 5,
    ApiVersionsRequest: 4, InitProducerIdRequest: 4, ProduceRequest: 9, EndTxnRequest: 3,
    SaslHandshakeRequest: 1, SaslAuthenticateRequest: 2, DescribeGroupsRequest: 5,
    ConsumerGroupDescribeRequest: 1, DescribeProducersRequest: 0,
}  # fmt: skip
"""Its requests, each with the highest version."""
SPOKEN = {message.API_KEY: message for message in VERSIONS}


class ScriptedBroker:
    """A cluster of some nodes, all in this process; a context manager.

    Parameters
    ----------
    topics
        Topics and how many partitions they have. Their logs hold ten records a partition.
    nodes
        Number of nodes. The first one coordinates.

    Attributes
    ----------
    member_id, generation
        Of the group; the member id is empty without a member.
    assigns
        Whether it assigns the partitions itself, as in a group of the newer protocol.
    waits, newer_members
        Where it assigns: whether the group has an epoch for which it has not, and how many more members it has, which
        are of the newer protocol.
    rebalances
        Whether a classic group waits for its member to join.
    committed
        Offset and metadata by partition.
    fetch
        Versions of Fetch that it says it speaks; it speaks none.
    written
        How often records for a partition were taken.
    refuses, refused
        With which error records are refused, if they are, and how often they were.
    cut_off
        Nodes that know no topic, as those that were made while no controller could reach a broker.
    takes_s
        How long requests of a kind take, by its name; a connection's next request waits.
    """

    def __init__(self, topics: Mapping[str, int], nodes: int = 1) -> None:
        self.topics = dict(topics)
        self.coordinator = 1
        self.member_id, self.instance_id, self.generation = "", None, 0
        self.members_made = 0
        self.assignment = b""
        self.assigns = self.rebalances = self.waits = False
        self.newer_members = 0
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.fetch: tuple[int, int] | None = None
        self.written: dict[TopicPartition, int] = defaultdict(int)
        self.refuses: str | None = None
        self.refused = 0
        self.cut_off: set[int] = set()
        self.takes_s: dict[str, float] = {}
        self._script: dict[str, deque[Any]] = defaultdict(deque)
        self._received: list[Any] = []
        self._lock = threading.Lock()
        self._nodes = [_Node(self, number) for number in range(1, nodes + 1)]

    def __enter__(self) -> ScriptedBroker:
        for node in self._nodes:
            node.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.go_away()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._nodes[0].port}"

    @contextlib.contextmanager
    def entrance(self) -> Iterator[str]:
        """An address besides those of the nodes, as of a load balancer, at which the first one answers."""
        node = _Node(self, 1)
        node.start()
        try:
            yield f"127.0.0.1:{node.port}"
        finally:
            node.stop()

    # What tests say and ask

    @property
    def open(self) -> int:
        """How many connections there are."""
        return sum(len(node.open) for node in self._nodes)

    def answer(self, request: Request, error: str | Mapping[TopicPartition, str] | None, times: int = 1) -> None:
        """Answer so many of the next requests of a kind with an error, of some partitions only if it is a mapping, or
        with None as ever."""
        with self._lock:
            self._script[request.value].extend([error] * min(times, 10_000))

    def behave(self) -> None:
        """Forget the rest of the script."""
        with self._lock:
            self._script.clear()

    def received(self, request: Request | None = None) -> list[Any]:
        """Requests of a kind, oldest first; all of the group's if not given."""
        kinds = {kind.value for kind in OF_A_MEMBER} if request is None else {request.value}
        with self._lock:
            return [message for message in self._received if message.name.removesuffix("Request") in kinds]

    def forget_received(self) -> None:
        """Count requests from here on."""
        with self._lock:
            self._received.clear()

    def remove_member(self) -> None:
        """Throw the member out, as when its session has timed out."""
        with self._lock:
            self.member_id, self.generation = "", self.generation + 1

    def become_classic(self, epoch: int) -> None:
        """The last member of the newer protocol has left, and the group's epoch, which numbers the generation now, is
        ahead of that of the member."""
        with self._lock:
            self.assigns, self.rebalances, self.generation = False, True, epoch

    def move_coordinator(self) -> None:
        """Another node coordinates from now on, with everything this one knew."""
        self.coordinator = self.coordinator % len(self._nodes) + 1

    def silence(self, *numbers: int) -> None:
        """These nodes, and no others, take connections and requests, and answer none; leaders are elsewhere."""
        for node in self._nodes:
            node.silent = node.number in numbers

    def go_away(self) -> None:
        """Close all connections and take no new ones."""
        for node in self._nodes:
            node.stop()

    def come_back(self, elsewhere: bool = False) -> None:
        """Take connections again, at the same ports, or all at others."""
        self._nodes = [_Node(self, node.number, 0 if elsewhere else node.port) for node in self._nodes]
        for node in self._nodes:
            node.start()

    def swap_addresses(self) -> None:
        """The first two nodes are at each other's addresses from now on. Their connections stay, as when a client has
        met the wrong one."""
        first, second = self._nodes[:2]
        first.number, second.number = second.number, first.number

    # Answers

    def on_the_wire(self, message: Any, response: bytes) -> tuple[bytes, bool]:
        """What is sent of a response, and whether the connection ends then."""
        return response, False

    def respond(self, node: int, message: Any) -> dict[str, Any]:
        """Fields of the response."""
        kind = message.name.removesuffix("Request")
        with self._lock:
            self._received.append(message)
            answer = getattr(self, f"_{kind}")
            if kind == "LeaveGroup" and node != self.coordinator:
                return {"error_code": CODES["NOT_COORDINATOR"]}
            if kind == "Metadata":
                return self._Metadata(message, {} if node in self.cut_off else self.topics)
            if kind == "ListOffsets":
                error = self._script[kind].popleft() if self._script[kind] else None
                error = error if node == self._leader() else "NOT_LEADER_FOR_PARTITION"
                return self._ListOffsets(message, CODES[error] if error else 0)
            if kind not in {request.value for request in OF_A_MEMBER}:
                return answer(message)
            scripted = self._script[kind].popleft() if self._script[kind] else None
            if isinstance(scripted, Mapping):
                return answer(message, {tp: CODES[error] for tp, error in scripted.items()})
            if scripted is None and kind != "FindCoordinator" and node != self.coordinator:
                scripted = "NOT_COORDINATOR"
            if scripted is None:
                return answer(message)
            return self._refusal(message, CODES[scripted])

    def _refusal(self, message: Any, code: int) -> dict[str, Any]:
        if isinstance(message, OffsetCommitRequest):
            return self._commit_response(message, dict.fromkeys(_partitions(message.topics), code))
        if isinstance(message, OffsetFetchRequest):
            group = OffsetFetchResponse.OffsetFetchResponseGroup
            return {"groups": [group(group_id=message.groups[0].group_id, error_code=code)]}
        if isinstance(message, FindCoordinatorRequest):
            coordinator = FindCoordinatorResponse.Coordinator
            key = message.coordinator_keys[0]
            return {"coordinators": [coordinator(key=key, node_id=-1, host="", port=-1, error_code=code)]}
        if code == CODES["MEMBER_ID_REQUIRED"]:
            return {"error_code": code, "member_id": self._new_member_id()}
        return {"error_code": code}

    def _ApiVersions(self, message: Any) -> dict[str, Any]:
        key = ApiVersionsResponse.ApiVersion
        spoken = [key(api_key=m.API_KEY, min_version=0, max_version=v) for m, v in VERSIONS.items()]
        if self.fetch is not None:
            spoken.append(key(api_key=FetchRequest.API_KEY, min_version=self.fetch[0], max_version=self.fetch[1]))
        return {"api_keys": spoken}

    def _Metadata(self, message: Any, topics: Mapping[str, int]) -> dict[str, Any]:
        broker, topic = MetadataResponse.MetadataResponseBroker, MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition
        leader = self._leader()
        named = topics if message.topics is None else [asked.name for asked in message.topics]
        return {
            "brokers": [broker(node_id=n.number, host="127.0.0.1", port=n.port, rack=None) for n in self._nodes],
            "cluster_id": "scripted",
            "controller_id": 1,
            "topics": [
                topic(
                    error_code=0 if name in topics else CODES["UNKNOWN_TOPIC_OR_PARTITION"],
                    name=name,
                    partitions=[
                        partition(partition_index=p, leader_id=leader, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
                        for p in range(topics.get(name, 0))
                    ],
                )
                for name in named
            ],
        }

    def _leader(self) -> int:
        return min((node.number for node in self._nodes if not node.silent), default=-1)

    def _ListOffsets(self, message: Any, code: int) -> dict[str, Any]:
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        partition = topic.ListOffsetsPartitionResponse
        return {
            "topics": [
                topic(
                    name=asked.name,
                    partitions=[
                        partition(
                            partition_index=p.partition_index, offset=0 if p.timestamp == -2 else 10, error_code=code
                        )
                        for p in asked.partitions
                    ],
                )
                for asked in message.topics
            ]
        }

    def _InitProducerId(self, message: Any) -> dict[str, Any]:
        return {"producer_id": 1, "producer_epoch": 0}

    def _EndTxn(self, message: Any) -> dict[str, Any]:
        script = self._script["EndTxn"]
        return {"error_code": CODES[script.popleft()] if script else 0}

    def _Produce(self, message: Any) -> dict[str, Any]:
        code, topic = CODES[self.refuses] if self.refuses else 0, ProduceResponse.TopicProduceResponse
        for tp in (TopicPartition(asked.name, p.index) for asked in message.topic_data for p in asked.partition_data):
            self.written[tp] += not code
            self.refused += bool(code)
        return {
            "responses": [
                topic(
                    name=asked.name,
                    partition_responses=[
                        topic.PartitionProduceResponse(index=p.index, error_code=code, base_offset=0)
                        for p in asked.partition_data
                    ],
                )
                for asked in message.topic_data
            ]
        }

    def _FindCoordinator(self, message: Any) -> dict[str, Any]:
        coordinator = FindCoordinatorResponse.Coordinator
        key = message.coordinator_keys[0]
        (port,) = (node.port for node in self._nodes if node.number == self.coordinator)
        return {"coordinators": [coordinator(key=key, node_id=self.coordinator, host="127.0.0.1", port=port)]}

    def _new_member_id(self) -> str:
        self.members_made += 1
        return f"member-{self.members_made}"

    def _JoinGroup(self, message: Any) -> dict[str, Any]:
        if not message.member_id and message.group_instance_id is None:
            self.member_id = self._new_member_id()
            return {"error_code": CODES["MEMBER_ID_REQUIRED"], "member_id": self.member_id}
        if message.member_id and message.member_id != self.member_id:
            return {"error_code": CODES["UNKNOWN_MEMBER_ID"]}
        self.member_id = message.member_id or self._new_member_id()
        self.generation += 1
        self.rebalances = self.waits = False
        protocol = message.protocols[0]
        member = JoinGroupResponse.JoinGroupResponseMember(
            member_id=self.member_id, group_instance_id=message.group_instance_id, metadata=protocol.metadata
        )
        return {
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": protocol.name,
            "leader": "" if self.assigns else self.member_id,
            "member_id": self.member_id,
            "members": [] if self.assigns else [member],
        }

    def _not_a_member(self, member_id: str, generation: int) -> int:
        if member_id != self.member_id:
            return CODES["UNKNOWN_MEMBER_ID"]
        return 0 if generation == self.generation else CODES["ILLEGAL_GENERATION"]

    def _SyncGroup(self, message: Any) -> dict[str, Any]:
        code = self._not_a_member(message.member_id, message.generation_id)
        if code:
            return {"error_code": code}
        if self.assigns:
            everything = [(topic, list(range(count))) for topic, count in self.topics.items()]
            self.assignment = ConsumerProtocolAssignment(0, everything, b"").encode()
        else:
            self.assignment = message.assignments[0].assignment
        return {
            "protocol_type": "consumer",
            "protocol_name": message.protocol_name,
            "assignment": self.assignment,
        }

    def _Heartbeat(self, message: Any) -> dict[str, Any]:
        code = self._not_a_member(message.member_id, message.generation_id)
        return {"error_code": code or (CODES["REBALANCE_IN_PROGRESS"] if self.rebalances else 0)}

    def _DescribeGroups(self, message: Any) -> dict[str, Any]:
        group = DescribeGroupsResponse.DescribedGroup
        if self.assigns:
            return {"groups": [group(group_id=message.groups[0], group_state="Dead")]}
        members = [group.DescribedGroupMember(member_id=self.member_id)] if self.member_id else []
        state = "PreparingRebalance" if self.rebalances else "Stable"
        found = group(group_id=message.groups[0], group_state=state, protocol_type="consumer", members=members)
        return {"groups": [found]}

    def _ConsumerGroupDescribe(self, message: Any) -> dict[str, Any]:
        group = ConsumerGroupDescribeResponse.DescribedGroup
        if not self.assigns:
            return {"groups": [group(group_id=message.group_ids[0], error_code=CODES["GROUP_ID_NOT_FOUND"])]}
        types = {self.member_id: 0} | {f"newer-{n}": 1 for n in range(self.newer_members)}
        members = [
            group.Member(
                member_id=member_id,
                member_epoch=self.generation,
                member_type=kind,
                assignment=group.Member.Assignment(topic_partitions=[]),
                target_assignment=group.Member.Assignment(topic_partitions=[]),
            )
            for member_id, kind in types.items()
        ]
        found = group(
            group_id=message.group_ids[0],
            group_state="Assigning" if self.waits else "Stable",
            group_epoch=self.generation + self.waits,
            assignment_epoch=self.generation,
            assignor_name="uniform",
            members=members,
        )
        return {"groups": [found]}

    def _LeaveGroup(self, message: Any) -> dict[str, Any]:
        self.member_id = ""
        return {}

    def _OffsetCommit(self, message: Any, codes: Mapping[TopicPartition, int] | None = None) -> dict[str, Any]:
        code = self._not_a_member(message.member_id, message.generation_id_or_member_epoch)
        if code:
            return self._commit_response(message, dict.fromkeys(_partitions(message.topics), code))
        codes = codes or {}
        for topic in message.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                if not codes.get(tp):
                    self.committed[tp] = partition.committed_offset, partition.committed_metadata
        return self._commit_response(message, codes)

    def _commit_response(self, message: Any, codes: Mapping[TopicPartition, int]) -> dict[str, Any]:
        topic = OffsetCommitResponse.OffsetCommitResponseTopic
        partition = topic.OffsetCommitResponsePartition
        return {
            "topics": [
                topic(
                    name=asked.name,
                    partitions=[
                        partition(
                            partition_index=p.partition_index,
                            error_code=codes.get(TopicPartition(asked.name, p.partition_index), 0),
                        )
                        for p in asked.partitions
                    ],
                )
                for asked in message.topics
            ]
        }

    def _OffsetFetch(self, message: Any, codes: Mapping[TopicPartition, int] | None = None) -> dict[str, Any]:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        topic = group.OffsetFetchResponseTopics
        partition = topic.OffsetFetchResponsePartitions
        topics = []
        for asked in message.groups[0].topics:
            partitions = []
            for index in asked.partition_indexes:
                tp = TopicPartition(asked.name, index)
                offset, metadata = self.committed.get(tp, (-1, ""))
                code = (codes or {}).get(tp, 0)
                partitions.append(
                    partition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        metadata=metadata,
                        error_code=code,
                    )
                )
            topics.append(topic(name=asked.name, partitions=partitions))
        return {"groups": [group(group_id=message.groups[0].group_id, topics=topics)]}


def _partitions(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, p.partition_index) for topic in topics for p in topic.partitions]


class _Node(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = True

    def __init__(self, broker: ScriptedBroker, number: int, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self.broker = broker
        self.number = number
        self.silent = False
        self.port = self.server_address[1]
        self.open: set[Any] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        for connection in list(self.open):
            connection.end()
        self.server_close()


class _Connection(socketserver.StreamRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.server.open.add(self)

    def finish(self) -> None:
        self.server.open.discard(self)
        with contextlib.suppress(OSError):
            super().finish()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while size := self.rfile.read(4):
                frame = self.rfile.read(struct.unpack(">i", size)[0])
                key, version = struct.unpack_from(">hh", frame)
                if version > VERSIONS[SPOKEN[key]]:
                    raise AssertionError(f"{SPOKEN[key].name} v{version} was not offered")
                message = SPOKEN[key].decode(frame, version=version, header=True)
                if self.server.silent:
                    continue
                time.sleep(self.server.broker.takes_s.get(message.name.removesuffix("Request"), 0))
                fields = self.server.broker.respond(self.server.number, message)
                response = ResponseClassRegistry.get_response_class(message.header)(**fields)
                response.with_header(message.header.correlation_id)
                sent, ends = self.server.broker.on_the_wire(message, response.encode(header=True, framed=True))
                self.wfile.write(sent)
                if ends:
                    return
