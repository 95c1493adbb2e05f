"""The reaction to each of Kafka's errors, by request; and advice about errors that stop a query.

The errors of a member's requests are all in one table. Of other requests only those are listed that do something else
than kafka-python's class for them says: retriable, or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.wire.lacking import without


class Request(Enum):
    """Requests to brokers, by Kafka's names."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"
    COMMIT_FOR_MEMBER = "OffsetCommit from outside, in a member's name"
    DESCRIBE = "DescribeGroups"
    LEAVE = "LeaveGroup"
    FETCH = "Fetch"
    LIST_OFFSETS = "ListOffsets"
    EPOCH_END = "OffsetForLeaderEpoch"
    PRODUCE = "Produce"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_GROUP = "AddOffsetsToTxn"
    COMMIT_IN_TRANSACTION = "TxnOffsetCommit"
    END_TRANSACTION = "EndTxn"
    DESCRIBE_TRANSACTION = "DescribeTransactions"
    CREATE_TOPICS = "CreateTopics"


OF_A_MEMBER = (
    Request.FIND_COORDINATOR, Request.JOIN, Request.SYNC, Request.HEARTBEAT, Request.COMMIT, Request.OFFSET_FETCH,
)  # fmt: skip
"""Requests of a member to its coordinator, and the lookup of the coordinator."""


class Reaction(Enum):
    """The reaction to an error; its value is the documentation's text. A position taken again starts as after a
    restart, by checkpoint, group and options; one that is kept goes on after the last micro-batch."""

    RETRY = "send the same request again"
    FIND_COORDINATOR = "look up the coordinator, then send the request again; membership and generation stay"
    REJOIN = "join again as the same member; keep positions unless a generation was missed"
    RETAKE = "join again as the same member; look up positions again"
    JOIN_AS_NEW = "join again as a new member; look up positions again"
    FENCED = "the query stops: another process took its place"
    FATAL = "the query stops: the message says which setting or right to change"
    NOT_SENT = "brokers do not answer this"
    NO_SUCH_GROUP = "there is no such group"
    LEFT_TO_MEMBER = "nothing is committed: the member has gone on, and commits itself"
    FIND_LEADER = "look the leader up, then again"
    LEADER_CHANGED = "look the leader up, then again; its log may differ"
    LEADS_LATER = "look where the planned epoch ends in the leader's log"
    LEADS_EARLIER = "again; after a while, look where the planned epoch ends in the leader's log"
    OUT_OF_LOG = "look which offsets the log holds: unless this one is there again, records are lost"
    DAMAGED = "look for the next record batch that can be read"
    UNCLEAR = "again; after a while, look whether the log is damaged"
    BATCH_REFUSED = "nothing was written: the record batch is given up, and no other"
    REPLICAS_AWAY = "look up which replicas are in sync, then again; where some are not, their brokers are waited for"
    BROKERS_AWAY = "again; brokers are waited for"
    ENDED = "the transaction is not open any more: look how it ended"
    NO_SUCH_TRANSACTION = "there is no such transactional id"
    TOO_LARGE = "send the record batch in halves; a record that is too large alone is refused"
    WRITTEN_BEFORE = "the record batch is written: an earlier attempt has come to the broker"
    OUT_OF_SEQUENCE = "again, once the record batches before it are written; if they are, records are lost"
    PRODUCER_FORGOTTEN = "begin to count anew, if the log holds no record of this producer any more"
    OUTDATED_PRODUCER = "the task ends: its transaction is over, or another attempt of it goes on"


RETRIED = {
    Reaction.RETRY, Reaction.FIND_COORDINATOR, Reaction.FIND_LEADER, Reaction.REPLICAS_AWAY, Reaction.BROKERS_AWAY,
}  # fmt: skip
LED_BY_ANOTHER = {Reaction.LEADER_CHANGED, Reaction.LEADS_LATER, Reaction.LEADS_EARLIER}
"""Another leader was elected, or is about to be."""


def _rows() -> dict[str, dict[Request, Reaction]]:
    again, find, rejoin, retake = Reaction.RETRY, Reaction.FIND_COORDINATOR, Reaction.REJOIN, Reaction.RETAKE
    as_new, fenced, fatal, never = Reaction.JOIN_AS_NEW, Reaction.FENCED, Reaction.FATAL, Reaction.NOT_SENT
    rows = {
        "REBALANCE_IN_PROGRESS":        (never,  rejoin,  rejoin,  rejoin,  retake,  never),
        "ILLEGAL_GENERATION":           (never,  never,   retake,  retake,  retake,  never),
        "UNKNOWN_MEMBER_ID":            (never,  as_new,  as_new,  as_new,  as_new,  never),
        "MEMBER_ID_REQUIRED":           (never,  rejoin,  never,   never,   never,   never),
        "FENCED_INSTANCE_ID":           (never,  fenced,  fenced,  fenced,  fenced,  never),
        "NOT_COORDINATOR":              (never,  find,    find,    find,    find,    find),
        "COORDINATOR_LOAD_IN_PROGRESS": (again,  again,   again,   again,   again,   again),
        "COORDINATOR_NOT_AVAILABLE":    (again,  find,    find,    find,    find,    again),
        "GROUP_MAX_SIZE_REACHED":       (never,  fatal,   never,   never,   never,   never),
        "INCONSISTENT_GROUP_PROTOCOL":  (never,  fatal,   fatal,   never,   never,   never),
        "INVALID_SESSION_TIMEOUT":      (never,  fatal,   never,   never,   never,   never),
        "INVALID_GROUP_ID":             (never,  fatal,   fatal,   fatal,   fatal,   fatal),
        "GROUP_AUTHORIZATION_FAILED":   (fatal,  fatal,   fatal,   fatal,   fatal,   fatal),
        "TOPIC_AUTHORIZATION_FAILED":   (never,  never,   never,   never,   fatal,   fatal),
        "OFFSET_METADATA_TOO_LARGE":    (never,  never,   never,   never,   fatal,   never),
        "INVALID_COMMIT_OFFSET_SIZE":   (never,  never,   never,   never,   fatal,   never),
        "UNKNOWN_TOPIC_OR_PARTITION":   (never,  never,   never,   never,   again,   never),
        "UNSTABLE_OFFSET_COMMIT":       (never,  never,   never,   never,   never,   again),
        "REQUEST_TIMED_OUT":            (never,  never,   never,   never,   find,    never),
    }  # fmt: skip
    return {error: dict(zip(OF_A_MEMBER, reactions, strict=True)) for error, reactions in rows.items()}


REACTIONS: Mapping[str, Mapping[Request, Reaction]] = _rows()
"""Kafka's name of an error to its reaction in the answer to each request of a member."""

_OF_A_TRANSACTION = {
    "NOT_COORDINATOR": Reaction.FIND_COORDINATOR,
    "COORDINATOR_NOT_AVAILABLE": Reaction.FIND_COORDINATOR,
    "COORDINATOR_LOAD_IN_PROGRESS": Reaction.RETRY,
    "CONCURRENT_TRANSACTIONS": Reaction.RETRY,  # the markers of the one before are being written
    "PRODUCER_FENCED": Reaction.FENCED,
    "INVALID_PRODUCER_EPOCH": Reaction.FENCED,
    "INVALID_PRODUCER_ID_MAPPING": Reaction.FENCED,
}
_WHILE_BROKERS_DIE = {"UNKNOWN_SERVER_ERROR": Reaction.FIND_COORDINATOR}
"""Of requests that a coordinator never refuses for good with this error, as for a transaction that is too large."""

OTHERS: Mapping[Request, Mapping[str, Reaction]] = {
    Request.COMMIT_FOR_MEMBER: {
        # Between looking for the member and the commit it left, was replaced, or the group began to rebalance.
        "UNKNOWN_MEMBER_ID": Reaction.RETRY,
        "FENCED_INSTANCE_ID": Reaction.RETRY,
        "REBALANCE_IN_PROGRESS": Reaction.RETRY,
        "ILLEGAL_GENERATION": Reaction.LEFT_TO_MEMBER,
    },
    Request.DESCRIBE: {
        "GROUP_ID_NOT_FOUND": Reaction.NO_SUCH_GROUP,
        "UNSUPPORTED_VERSION": Reaction.NO_SUCH_GROUP,
    },
    Request.FETCH: {
        "NOT_LEADER_FOR_PARTITION": Reaction.LEADER_CHANGED,
        "FENCED_LEADER_EPOCH": Reaction.LEADS_LATER,
        "UNKNOWN_LEADER_EPOCH": Reaction.LEADS_EARLIER,
        "OFFSET_OUT_OF_RANGE": Reaction.OUT_OF_LOG,
        "CORRUPT_MESSAGE": Reaction.DAMAGED,
        "INVALID_RECORD": Reaction.DAMAGED,
        "UNKNOWN_SERVER_ERROR": Reaction.UNCLEAR,
    },
    Request.EPOCH_END: {
        "FENCED_LEADER_EPOCH": Reaction.LEADS_LATER,
    },
    Request.PRODUCE: {
        "MESSAGE_SIZE_TOO_LARGE": Reaction.TOO_LARGE,
        "RECORD_LIST_TOO_LARGE": Reaction.TOO_LARGE,
        "INVALID_RECORD": Reaction.BATCH_REFUSED,
        "TOPIC_AUTHORIZATION_FAILED": Reaction.BATCH_REFUSED,
        "NOT_ENOUGH_REPLICAS": Reaction.REPLICAS_AWAY,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": Reaction.REPLICAS_AWAY,
        "REQUEST_TIMED_OUT": Reaction.BROKERS_AWAY,
        "CORRUPT_MESSAGE": Reaction.RETRY,
        "DUPLICATE_SEQUENCE_NUMBER": Reaction.WRITTEN_BEFORE,
        "OUT_OF_ORDER_SEQUENCE_NUMBER": Reaction.OUT_OF_SEQUENCE,
        "UNKNOWN_PRODUCER_ID": Reaction.PRODUCER_FORGOTTEN,
        "INVALID_PRODUCER_EPOCH": Reaction.OUTDATED_PRODUCER,
        "PRODUCER_FENCED": Reaction.OUTDATED_PRODUCER,
        "INVALID_PRODUCER_ID_MAPPING": Reaction.OUTDATED_PRODUCER,
        "INVALID_TXN_STATE": Reaction.OUTDATED_PRODUCER,
    },
    Request.INIT_PRODUCER_ID: _OF_A_TRANSACTION | _WHILE_BROKERS_DIE,
    Request.ADD_PARTITIONS: _OF_A_TRANSACTION | {
        "OPERATION_NOT_ATTEMPTED": Reaction.RETRY,  # as another partition of the request was refused
        "INVALID_TXN_STATE": Reaction.FENCED,
    },
    Request.ADD_GROUP: _OF_A_TRANSACTION | {"INVALID_TXN_STATE": Reaction.FENCED},
    Request.END_TRANSACTION: _OF_A_TRANSACTION | _WHILE_BROKERS_DIE | {
        "PRODUCER_FENCED": Reaction.ENDED,
        "INVALID_PRODUCER_EPOCH": Reaction.ENDED,
        "INVALID_PRODUCER_ID_MAPPING": Reaction.ENDED,
        "INVALID_TXN_STATE": Reaction.ENDED,
    },
    Request.DESCRIBE_TRANSACTION: _OF_A_TRANSACTION | {
        "TRANSACTIONAL_ID_NOT_FOUND": Reaction.NO_SUCH_TRANSACTION,
    },
}  # fmt: skip
"""A request that is no member's to the errors that kafka-python's class for them is not enough for."""


UNRECOGNIZED = "UNKNOWN"  # what kafka-python calls each error code that it does not know


def name_of(kind: Any) -> str:
    """Kafka's name of an error, which kafka-python's class calls its message; else the class's own."""
    if kind is kafka_errors.UnknownError:
        return "UNKNOWN_SERVER_ERROR"
    name = getattr(kind, "message", None) or str(kind.__name__)
    return f"error code {kind.errno}" if name == UNRECOGNIZED else name


def reaction_to(error: BaseException | type[BaseException] | None, request: Request | None = None) -> Reaction:
    """The reaction to an error of kafka-python's, of a broker's answer or of none. `request`: the request that it
    answers; None for any request without a table."""
    kind = error if isinstance(error, type) else type(error)
    if request is not None:
        listed = OTHERS[request].get(name_of(kind)) if request in OTHERS else _of_a_member(kind, request)
        if listed is not None:
            return listed
    if not issubclass(kind, kafka_errors.RetriableError):
        return Reaction.FATAL
    return Reaction.FIND_LEADER if request in (Request.FETCH, Request.PRODUCE) else Reaction.RETRY


def _of_a_member(kind: Any, request: Request) -> Reaction | None:
    found = REACTIONS.get(name_of(kind), {}).get(request, Reaction.NOT_SENT)
    return None if found is Reaction.NOT_SENT else found


DESCRIBE = "Describe (or Read, which includes it)"
OPERATIONS = (
    dict.fromkeys(Request, "Read")
    | dict.fromkeys((Request.FIND_COORDINATOR, Request.OFFSET_FETCH, Request.DESCRIBE), DESCRIBE)
    | dict.fromkeys(
        (Request.PRODUCE, Request.INIT_PRODUCER_ID, Request.ADD_PARTITIONS, Request.ADD_GROUP, Request.END_TRANSACTION),
        "Write",
    )
    | {Request.DESCRIBE_TRANSACTION: "Describe (or Write, which includes it)", Request.CREATE_TOPICS: "Create"}
)
"""The ACL operation that a request needs on the group or transactional id, and on the topics it names."""

FENCED = "FENCED_INSTANCE_ID"

ADVICE: Mapping[str, str] = {
    FENCED: (
        "another process has joined with this query's group.instance.id ({instance_id}): it was started from the same "
        "checkpoint, or with the same kafka.group.instance.id. It goes on, and this query stops. Run one query for "
        "each checkpoint: give this one a checkpoint of its own, or leave the work to the other"
    ),
    "NOT_COORDINATOR": "brokers do not agree on the group's coordinator: look at the leaders of __consumer_offsets",
    "COORDINATOR_LOAD_IN_PROGRESS": (
        "the coordinator is still reading its groups from __consumer_offsets: try again later, "
        "or raise kafka.default.api.timeout.ms"
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "the group has no coordinator: its partition of __consumer_offsets has no leader, or the topic could not be "
        "made because there are fewer brokers than offsets.topic.replication.factor"
    ),
    "GROUP_ID_NOT_FOUND": (
        "{group_id} is not a group of consumers, but a share group, for example: take another kafka.group.id"
    ),
    "GROUP_MAX_SIZE_REACHED": (
        "the group has as many members as the broker's group.max.size allows: stop one, raise group.max.size, "
        "or take another kafka.group.id"
    ),
    "INCONSISTENT_GROUP_PROTOCOL": (
        "the group's other members support none of this query's kafka.partition.assignment.strategy names "
        "({strategies}), or they are no consumers, or have Kafka's newer protocol (group.protocol=consumer) while the "
        "broker's group.consumer.migration.policy is disabled: name a strategy that all of them support, set that "
        "policy to bidirectional, or take another kafka.group.id. If this query was killed under another strategy, "
        "start it again when the session of its former process has ended"
    ),
    "INVALID_SESSION_TIMEOUT": (
        "kafka.session.timeout.ms ({session_timeout_ms}) is outside the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms: choose one between {session_bounds}"
    ),
    "INVALID_GROUP_ID": "the broker does not take kafka.group.id ({group_id}): choose another one",
    "GROUP_AUTHORIZATION_FAILED": "this user needs the ACL operation {operation} on Group {group_id}",
    "TOPIC_AUTHORIZATION_FAILED": "this user needs the ACL operation {operation} on Topic {topics}",
    "OFFSET_METADATA_TOO_LARGE": (
        "the note in this query's commits is longer than the broker's offset.metadata.max.bytes: raise it "
        "(unless changed, 4096)"
    ),
    "INVALID_COMMIT_OFFSET_SIZE": (
        "the commit does not fit into one record batch of __consumer_offsets: raise that topic's max.message.bytes"
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "the coordinator does not know {topics}: if it was deleted, start a query without it; if it is new, try again"
    ),
    "UNSTABLE_OFFSET_COMMIT": (
        "a transaction that commits offsets of the group is open: wait until it ends or its transaction.timeout.ms is "
        "over"
    ),
    "MESSAGE_SIZE_TOO_LARGE": "raise max.message.bytes of topic {topics}",
    "RECORD_LIST_TOO_LARGE": "raise max.message.bytes of topic {topics}",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "this user needs the ACL operation {operation} on TransactionalId {transactional_id}, with the pattern type "
        "prefixed"
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "kafka.transaction.timeout.ms is above the brokers' transaction.max.timeout.ms: lower it, or raise theirs"
    ),
    "REQUEST_TIMED_OUT": (
        "the replicas of __consumer_offsets did not take the commit in time: see whether they are in sync"
    ),
    "THROTTLING_QUOTA_EXCEEDED": (
        "a quota of this user or kafka.client.id is used up: raise it (request_percentage, consumer_byte_rate or "
        "controller_mutation_rate)"
    ),
}
"""Advice where an error stops a query, at once or when retries took too long."""

ADVICE_FOR_WRITING: Mapping[str, str] = {
    "UNKNOWN_TOPIC_OR_PARTITION": "create topic {topics}, or the partition",
    "REQUEST_TIMED_OUT": "the replicas did not take the records in time: see whether they are in sync",
    "NOT_ENOUGH_REPLICAS": (
        "fewer replicas are in sync than min.insync.replicas of topic {topics}: start the brokers that are away, or "
        "lower it"
    ),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (
        "fewer replicas are in sync than min.insync.replicas of topic {topics}: start the brokers that are away, or "
        "lower it"
    ),
    "INVALID_RECORD": (
        "the broker refuses a record: topic {topics} may be compacted, which needs keys, validate its records, or "
        "(from Kafka 4.4 on) have a max.decompressed.message.bytes below the size of a record that comes compressed: "
        "raise that, or set kafka.compression.type to none"
    ),
    "INVALID_TIMESTAMP": (
        "the clock here is further from the broker's than message.timestamp.before.max.ms or "
        "message.timestamp.after.max.ms of topic {topics} allows: set the clocks, or raise them"
    ),
    "UNSUPPORTED_COMPRESSION_TYPE": (
        "set kafka.compression.type to a codec that the brokers know, as zstd needs Kafka 2.1"
    ),
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "raise message.format.version of topic {topics} to 0.11 or newer",
    "INVALID_REQUIRED_ACKS": "set kafka.acks to all",
    "POLICY_VIOLATION": "a policy of the cluster's does not allow it: ask who runs the cluster",
    "CLUSTER_AUTHORIZATION_FAILED": (
        "this user needs the ACL operation Write on Topic {topics}, and with brokers before Kafka 2.8 IdempotentWrite "
        "on the Cluster, too; or set kafka.enable.idempotence to false"
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "this user needs the ACL operation Write on the TransactionalId that begins with kafka.transactional.id"
    ),
    "INVALID_PRODUCER_EPOCH": "another attempt to write these rows has begun, or the transaction timed out",
    "PRODUCER_FENCED": "another attempt to write these rows has begun, or the transaction timed out",
    "INVALID_PRODUCER_ID_MAPPING": "brokers do not know the transaction any more",
    "INVALID_TXN_STATE": "the transaction has ended, as when kafka.transaction.timeout.ms is over",
    "TRANSACTION_ABORTABLE": "the transaction cannot be completed: the rows are to be written again",
}
"""Advice about errors of Produce and InitProducerId, in place of the others."""

ADVICE_FOR_LOOKUPS: Mapping[str, str] = {
    "INVALID_RECORD": (
        "the broker unpacks no record above max.decompressed.message.bytes of topic {topics}, so it does not find "
        "times among them: raise that setting, or give offsets in place of times"
    ),
}
"""Advice about errors of ListOffsets, in place of the others."""

ADVICE_FOR_IDS: Mapping[str, str] = {
    "UNKNOWN_SERVER_ERROR": (
        "the coordinator cannot write its log, or these brokers do not let a producer say which producer it takes the "
        "transactional id from (KIP-360, Kafka 2.5): deliveryGuarantee=exactly-once needs that"
    ),
}
"""Advice about errors of InitProducerId, where they are answered until time is up."""

_OF_REQUEST = {
    Request.PRODUCE: ADVICE_FOR_WRITING,
    Request.LIST_OFFSETS: ADVICE_FOR_LOOKUPS,
    Request.INIT_PRODUCER_ID: ADVICE_FOR_IDS,
}


@dataclass(frozen=True)
class Facts:
    """A query's settings that advice names."""

    group_id: str | None = None
    instance_id: str | None = None
    session_timeout_ms: int | None = None
    strategies: tuple[str, ...] = ()
    session_bounds: tuple[int, int] | None = None
    transactional_id: str | None = None


def advice(error: str, request: Request | None, facts: Facts, topics: Collection[str] = ()) -> str | None:
    """Advice about an error by Kafka's name; None where there is none. `request`: the request that it answers; None for
    one that is not about groups, for example Metadata. `topics`: the topics the error is about."""
    if error == "UNSUPPORTED_VERSION" and request is not None:
        return without(request.value)
    of_request = _OF_REQUEST.get(request, {}) if request is not None else {}
    text = of_request.get(error) or ADVICE.get(error)
    return text and text.format(
        group_id=facts.group_id,
        instance_id=facts.instance_id,
        transactional_id=facts.transactional_id,
        session_timeout_ms=facts.session_timeout_ms,
        session_bounds="them" if facts.session_bounds is None else "{} and {}".format(*facts.session_bounds),
        strategies=", ".join(facts.strategies),
        topics=", ".join(sorted(topics)),
        operation=_operation(error, request),
    )


def _operation(error: str, request: Request | None) -> str:
    """The ACL operation that is lacking. Requests about a transaction need Write on it, and name other things, too."""
    match error:
        case "GROUP_AUTHORIZATION_FAILED" if request is Request.ADD_GROUP:
            return OPERATIONS[Request.COMMIT]
        case "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" if request is Request.COMMIT_IN_TRANSACTION:
            return OPERATIONS[Request.END_TRANSACTION]
        case _:
            return DESCRIBE if request is None else OPERATIONS[request]
