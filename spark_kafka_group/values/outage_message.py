"""The words in which an outage of brokers ends a query, as maxBrokerOutage says; the same on driver and executors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime


def outlasted(
    brokers: Iterable[str], since_s: float, away_s: float, attempts: int, limit_ms: int, last_s: float, problem: str
) -> str:
    """Brokers, times and the last attempt; times of day are in seconds since 1970."""
    return (
        f"brokers ({', '.join(brokers)}) have not answered since {_time(since_s)}, {away_s:.0f} s ago, in {attempts} "
        f"attempts, and maxBrokerOutage is {limit_ms} ms. The last attempt, at {_time(last_s)}: {problem}"
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
