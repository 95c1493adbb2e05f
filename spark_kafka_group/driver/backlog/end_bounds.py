"""Where a stream's reading ends: at the logs' ends when availableNow began, and where options say."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_kafka_group.driver.positions.lookup import looked_up
from spark_kafka_group.driver.positions.rules import spoken_of
from spark_kafka_group.options import Options
from spark_kafka_group.options.bounds import AtTime
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import LogClient


class EndBounds:
    """Offsets at which reading ends, also where the logs go on.

    Parameters
    ----------
    caps
        With availableNow, the ends of all logs when the query started.
    """

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

        Raises
        ------
        BrokerError
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
