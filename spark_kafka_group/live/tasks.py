"""How many tasks of running jobs have ended, by Spark's status tracker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import SparkSession


class Tasks(NamedTuple):
    """Tasks of a stage."""

    ended: int
    all: int


def of_group(spark: SparkSession, job_group: str) -> Tasks | None:
    """Those of a stage that runs for a job group, such as a query's run id; None where none runs, or over Spark
    Connect, which does not show it."""
    if not hasattr(spark, "_jsparkSession"):
        return None
    return _of_jobs(spark, spark.sparkContext.statusTracker().getJobIdsForGroup(job_group))


def of_all(spark: SparkSession) -> Tasks | None:
    """As :func:`of_group`, of any job."""
    if not hasattr(spark, "_jsparkSession"):
        return None
    return _of_jobs(spark, spark.sparkContext.statusTracker().getActiveJobsIds())


def _of_jobs(spark: SparkSession, jobs: Iterable[int]) -> Tasks | None:
    tracker = spark.sparkContext.statusTracker()
    active = set(tracker.getActiveStageIds())
    for job in sorted(jobs, reverse=True):
        info = tracker.getJobInfo(job)
        for stage in sorted(active.intersection(info.stageIds)) if info is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                return Tasks(found.numCompletedTasks, found.numTasks)
    return None
