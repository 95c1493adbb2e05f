"""The cause of each violation, found after the run, and what has been changed because of it."""

from __future__ import annotations

from faults.evidence import GROUPKAFKA, KAFKA

ENDURANCE = "endurance"
BECOMES_OTHER = (
    "Spark's source compares offsets alone, so it does not notice that the log below its offsets is another one."
)
COMMITTER = (
    "The kill hit also the Python process in which Spark plans and commits a write, which Spark does not repeat: the "
    "query ends, and goes on when it is started again. The cell expects that now."
)
LOGS = ("shorter", "as-long", "longer")
"""What is in place of a log, beside the position."""
CAUSES: dict[tuple[str, str, int | None], str] = {
    ("broker-all-away", GROUPKAFKA, 2113161649): (
        "A partition whose new leader was not elected yet held up all others. Micro-batches go on without it now."
    ),
    ("sink-driver-kill-once", GROUPKAFKA, 1548789138): (
        "A program that writes exactly once first ends the transactions of the killed one. The bound has been 35 s "
        "since."
    ),
    ("sink-driver-kill-once", GROUPKAFKA, 774121029): (
        "The machine was busy with other runs. All took four times as long: also the fault itself, until the program "
        "had started again (21 to 41 s; 5 to 14 s in the 20 faults of the other runs, which took 11.5 s at most)."
    ),
    ("processor-worker-kill-once", GROUPKAFKA, 267666185): (
        "The machine was busy with another cell, and with brokers of tests. The kill ends the query, whose program has "
        "to start again: 38 s here, 18 s at most in the run after it, and 10 s alone (seed 281140)."
    ),
    ("sink-worker-kill", GROUPKAFKA, 2052141530): COMMITTER,
    ("sink-worker-kill-once", GROUPKAFKA, 323093979): COMMITTER,
    ("sink-steps-worker-kill-once", GROUPKAFKA, 1): (
        "Of the harness: the program of several queries started them from several threads, and ended at its start."
    ),
    ("sink-steps-worker-kill-once", GROUPKAFKA, 545800699): (
        "Two sources of one query that joined again in the middle of a batch left out a part of it, so the batch "
        "had other rows than those decided. All sources of a query now read an undecided batch as it was."
    ),
    ("sink-storm-once", GROUPKAFKA, 1696525500): (
        "Of the judge: a broker that was killed looks for transactions that are too old only some time after its "
        "start, which the judge allows for now."
    ),
    ("sink-storm-once", GROUPKAFKA, 969038604): (
        "A program did not notice the end of its JVM, as connections outlived it; it ends with its JVM now. And "
        "the kill of a worker hit the process in which Spark commits a write, which ends a query."
    ),
    ("everything", GROUPKAFKA, 2123783270): (
        "A killed program's request to join was read by the coordinator after that of its successor, which was fenced "
        "in its first join. A successor waits now until the group has removed that member, and joins again. `Race "
        "while writing batch` is Spark's word to the second of two programs of one query; it has not come again in the "
        "90 storms since."
    ),
    ("everything", GROUPKAFKA, 261126): (
        "A coordinator that had lost the group took the query in as a new member, and the next one knew it by its "
        "former id, so it was fenced by itself; it joins again now. `run` is of the harness: it looked for a "
        "reader process to kill before there was one."
    ),
    ("everything", GROUPKAFKA, 271126): (
        "A query was started twice, and the second process set the group's offset back, by an older state of the "
        "checkpoint, before Spark stopped it. No process sets it back now before Spark has logged a batch of its own."
    ),
    ("everything", GROUPKAFKA, 271133): (
        "The machine was busy with another cell. In all three storms the program had been killed late: Spark's start "
        "took up to 31 s, and its first batch, of 146 records, 20 s. The other 27 storms took 19.5 s at most."
    ),
    ("everything", GROUPKAFKA, 271134): (
        "The query ended when its sink had a batch and before the commit. Another member took the partitions over, "
        "committed the offset where the batch began, and left. The query's next process went on there, as after any "
        "commit of another program: its rows were in the sink twice. The guarantees say so now, and the judge knows "
        "it. The other choice, to go on after the batch, may lose records: see docs/design/positions.md."
    ),
    ("election-longer-stops", GROUPKAFKA, 1490161171): (
        "Of the judge: SIGTERM had stopped the query when the sink had the batch and Spark had not logged it. Spark's "
        "file sink skips such a batch when it is repeated, so its progress has no rows. The judge knows that of kills, "
        "and now of SIGTERM, too."
    ),
    (ENDURANCE, GROUPKAFKA, 20261126): (
        "`ended as wanted`, query0-1: as of *everything*, seed 261126. query0-6: its coordinator had stood still, "
        "and it joined anew, when another JoinGroup under its instance id fenced it, most likely one of its own. "
        "It finds out now whether such a process lives, as in its first join. `nothing left`: Spark's JVM loses "
        "descriptors where the daemon of its Python workers is killed, in any query of PySpark; that fault has "
        "been left out since, and a JVM has as many descriptors at the end of a piece as near its beginning. "
        "`run`: with five other runs on the machine, three brokers needed more than 90 s to start. The memory of "
        "the driver JVM: Spark keeps the last 1,000 jobs, stages and executions for its status, and collects "
        "garbage of long-lived objects each 30 min only. Both are set lower in piece 6, of 2.5 hours. Its JVM, "
        "with a heap of 700 MB, had 475 MB after 0.6 and after 1.3 hours, 508 MB after 1.9 hours, and 495 MB at "
        "its end."
    ),
    ("broker-all-away", KAFKA, None): (
        "Spark's source ends its query where the brokers are away for longer than a minute."
    ),
    ("worker-cut-off-lost", KAFKA, 1725535677): (
        "Not looked into: Spark's source alone, on a machine that was busy with two other cells."
    ),
    ("sink-driver-term", KAFKA, 1191971832): "Spark's sink is at least once.",
    ("everything", KAFKA, 1481662125): (
        "Of the harness: it looked for the coordinator of a group, which Spark's source does not have."
    ),
    ("operator-more-partitions", KAFKA, None): (
        "No leak: Spark's source keeps a consumer for each partition, each with two sockets and one or two more "
        "descriptors. A run adds ten partitions."
    ),
    ("operator-topic-made-again", KAFKA, None): "Spark's source does not notice that the topic is another one.",
    **{(f"{cell}-{log}", KAFKA, None): BECOMES_OTHER for cell in ("log", "election") for log in LOGS},
    ("election-under-load", KAFKA, None): BECOMES_OTHER,
}  # fmt: skip
"""By cell, source and seed; None for all seeds."""


def cause(cell: str, source: str, seed: int) -> str | None:
    """Of the violations of a run."""
    return CAUSES.get((cell, source, seed)) or CAUSES.get((cell, source, None))
