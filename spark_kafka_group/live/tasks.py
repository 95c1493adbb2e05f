"""How many tasks of running jobs have ended, by Spark's status tracker."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import SparkSession


class Tasks(NamedTuple):
    """Tasks of a stage."""

    ended: int
    all: int


def of_stage(spark: SparkSession, job_group: str | None = None) -> Tasks | None:
    """Those of a stage that runs, of any job or of a job group, such as a query's run id.

    None where none runs, or over Spark Connect, which does not show it.
    """
    if not hasattr(spark, "_jsparkSession"):
        return None
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getActiveJobsIds() if job_group is None else tracker.getJobIdsForGroup(job_group)
    active = set(tracker.getActiveStageIds())
    for job in sorted(jobs, reverse=True):
        info = tracker.getJobInfo(job)
        for stage in sorted(active.intersection(info.stageIds)) if info is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                return Tasks(found.numCompletedTasks, found.numTasks)
    return None
