"""Brokers that lack one of Kafka's requests, or its later versions, as brokers that are not Apache's do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import kafka.errors as kafka_errors

STATIC_FROM = 5  # the version of JoinGroup that first has static members (KIP-345, Kafka 2.3)

_GROUPS = "consumer groups need it. A batch read with spark.read does without"
_TRANSACTIONS = "transactions need it, and so does deliveryGuarantee=exactly-once"
_LOOKING = "transactions cannot be looked at. Writing exactly once does without"
NEEDED_FOR: Mapping[str, str] = dict.fromkeys(
    ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch"), _GROUPS
) | dict.fromkeys(
    ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"), _TRANSACTIONS
) | dict.fromkeys(("DescribeTransactions", "ListTransactions"), _LOOKING) | {
    "DescribeGroups": "members of groups cannot be looked up. Queries do without",
    "ListGroups": "groups cannot be listed. Name one: --group",
    "InitProducerId": (
        "deliveryGuarantee=exactly-once and kafka.enable.idempotence need it. The default guarantee does without, with "
        "kafka.enable.idempotence=false"
    ),
    "ListOffsets": "ends of logs, and offsets of times, cannot be looked up",
    "OffsetForLeaderEpoch": "where a log has lost its end cannot be looked up",
    "CreateTopics": "topics cannot be made. Make them yourself",
    "DescribeConfigs": "settings of brokers and topics cannot be looked up",
    "DescribeLogDirs": "sizes of logs cannot be looked up",
}  # fmt: skip
"""Kafka's name of a request to what is not to be had without."""


def version_of(manager: Any, kind: Any) -> int:
    """The version of a request that brokers take; -1 for none."""
    try:
        return int(manager.broker_version_data.api_version(kind))
    except kafka_errors.IncompatibleBrokerVersion:
        return -1


def lacking(error: Exception) -> str:
    """What it means that a broker lacks a request, or the versions of it that are sent, by kafka-python's error."""
    found = re.search(r"'(\w+?)(?:Request)?'", str(error))
    return str(error) if found is None else without(found[1])


def without(request: str) -> str:
    """The same, by Kafka's name of the request."""
    return f"these brokers do not have Kafka's request {request} in a version that is known here: " + NEEDED_FOR.get(
        request, "see docs/compatibility.md"
    )
