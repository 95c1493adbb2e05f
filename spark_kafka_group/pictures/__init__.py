"""Pictures of runs and of queries, for notebooks; ``python -m spark_kafka_group plot`` draws the first four.

From the files that option ``eventLog`` writes, one or several queries of a group each:

- :func:`overview`: the next three, one below the other
- :func:`owners`: which member owned which partition when
- :func:`batches`: micro-batches from plan to commit, rebalances, replays, members that were lost
- :func:`records`: records committed over time, and their rate

From the progress of a query, such as ``query.recentProgress``:

- :func:`lag`: lag and rate of each partition
- :func:`durations`: how long each micro-batch took, by phase
- :func:`skew`: how unequal the partitions are

Each returns a :class:`matplotlib.figure.Figure`, which a notebook shows, and whose ``savefig`` writes it. They need
matplotlib, which the extra ``notebook`` has; this package can be imported without it.
"""

from __future__ import annotations

from spark_kafka_group.pictures.batch_timeline import batches
from spark_kafka_group.pictures.committed_records import records
from spark_kafka_group.pictures.owned_partitions import owners
from spark_kafka_group.pictures.plot import overview
from spark_kafka_group.pictures.progress_samples import durations, lag, skew

__all__ = ["batches", "durations", "lag", "overview", "owners", "records", "skew"]
