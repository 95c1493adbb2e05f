"""The last stable offset, at which read_committed ends, and positions beyond it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_kafka_group.errors import OptionError
from spark_kafka_group.values.offsets import LATEST, TopicPartition
from spark_kafka_group.wire import LogClient

log = logging.getLogger(__name__)

HINT = "; under kafka.isolation.level=read_committed a read ends where the first open transaction begins"


def check_ends(ends: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]) -> None:
    """Refuse a batch read up to ends beyond the last stable offsets: it would wait for records that may never come.

    Raises
    ------
    OptionError
    """
    for tp, end in sorted(ends.items()):
        if end != LATEST and end > stable.get(tp, end):
            raise OptionError(
                f"{tp}: endingOffsets ({end}) is beyond the last stable offset ({stable[tp]}), where a transaction is "
                f"open or the log ends, and kafka.isolation.level=read_committed reads no further. Set endingOffsets "
                f"to latest, wait until the transaction has ended, or set read_uncommitted"
            )


class BeyondLastStable:
    """Positions that are beyond the last stable offset: kafka.isolation.level was changed, or a member of the group
    that reads uncommitted records has committed them. Nothing is read there until the transaction has ended."""

    def __init__(self) -> None:
        self._reported: set[TopicPartition] = set()

    def lost(
        self, client: LogClient, begin: Mapping[TopicPartition, int], behind: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Those of `behind`, whose positions `begin` are beyond their last stable offsets, whose logs end before them.

        The others are a warning, once each.

        Raises
        ------
        BrokerError
        """
        ends = client.log_ends(behind) if behind else {}
        lost = sorted(tp for tp in behind if ends.get(tp, begin[tp]) < begin[tp])
        waiting = set(behind) - set(lost)
        for tp in sorted(waiting - self._reported):
            log.warning(
                "%s: position %d is beyond the last stable offset: under kafka.isolation.level=read_committed nothing "
                "is read until the transaction that is open there has ended",
                tp, begin[tp],
            )  # fmt: skip
        self._reported = waiting
        return lost
