"""Where a stream's reading ends: at the logs' ends when availableNow began, and where options say.

read_committed ends at the last stable offset. minOffsetsPerTrigger and maxTriggerDelay say whether the backlog is worth
a micro-batch yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping

from spark_kafka_group.driver.positions.lookup import looked_up
from spark_kafka_group.driver.positions.rules import spoken_of
from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.bounds import AtTime
from spark_kafka_group.values.offsets import LATEST, TopicPartition
from spark_kafka_group.wire import LogClient

log = logging.getLogger(__name__)


class EndBounds:
    """Offsets at which reading ends, also where the logs go on. `caps`: with availableNow, the ends of all logs when
    the query started."""

    def __init__(self, options: Options, caps: Mapping[TopicPartition, int] | None) -> None:
        self._ending = options.reading.ending
        self._retry_delays_ms = options.reading.retry_delays_ms
        self._caps = caps
        self._stops: dict[TopicPartition, int] = {}  # by option, as far as they are known

    @property
    def available_now(self) -> bool:
        """Whether the query ends at the logs' ends at its start."""
        return self._caps is not None

    def learn(
        self, client: LogClient, ends: Collection[TopicPartition], existing_at_start: Collection[TopicPartition]
    ) -> None:
        """Look up where options say that reading ends; a time is looked up until a record is as new.

        Partitions without a leader are looked up once they have one, unless they are among `ends`, to be read now.

        1. Ends of logs are looked up. 2. A record comes that is as new. 3. The time is looked up: the answer is that
        record's offset, which is at or after these ends. So no record that is read next is as new.

        Raises BrokerError.
        """
        if self._ending is None:
            return
        tps = spoken_of(self._ending, {*existing_at_start, *ends}, self._retry_delays_ms)
        unknown = {tp: self._ending.get(tp) for tp in tps if tp not in self._stops}
        # A partition made since the query started can only be bounded by a time: without one, none of it is read.
        later = {tp for tp, p in unknown.items() if tp not in existing_at_start and not isinstance(p, AtTime)}
        self._stops |= dict.fromkeys(later, 0)
        leaderless = client.without_leader(unknown.keys() - {*ends})
        wanted = {tp: p for tp, p in unknown.items() if p is not None and tp not in later | leaderless}
        self._stops |= looked_up(client, wanted, timeless=None)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget these topics, which were recreated: their old offsets mean other records."""
        self._stops = {tp: stop for tp, stop in self._stops.items() if tp.topic not in topics}

    def bounded(self, tp: TopicPartition, begin: int, end: int) -> int:
        """`end`, or the bound before it; never before `begin`."""
        bounds = [end]
        if tp in self._stops:
            bounds.append(self._stops[tp])
        if self._caps is not None:
            bounds.append(self._caps.get(tp, begin))
        return max(begin, min(bounds))

    def stopped(self, ends: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Partitions whose logs go to where options say that reading ends: nothing more of them will be read."""
        return {tp for tp, stop in self._stops.items() if ends.get(tp, 0) >= stop}

    def caps_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether, with availableNow, the logs go to where it ends: later ends change nothing."""
        return self._caps is not None and all(end >= self._caps.get(tp, 0) for tp, end in ends.items())


class MinOffsets:
    """Holds micro-batches back that are too small; the first of a run never is. `max_delay_ms`: how long after a batch
    the next one can be held back."""

    def __init__(self, max_delay_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_delay_s = max_delay_ms / 1000
        self._clock = clock
        self._last_batch = float("-inf")

    def worth(self, offsets: int, least: int | None) -> bool:
        """Whether so many offsets are to be read now, where options ask for `least`."""
        if least is None or offsets >= least:
            return offsets > 0
        return offsets > 0 and self._clock() - self._last_batch >= self._max_delay_s

    def planned(self) -> None:
        """Note that a batch was planned just now."""
        self._last_batch = self._clock()


HINT = "; under kafka.isolation.level=read_committed a read ends where the first open transaction begins"


def check_ends(ends: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]) -> None:
    """Refuse to read beyond the last stable offsets, for records that may never come. Raises OptionError."""
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
        The others are a warning, once each. Raises BrokerError."""
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
