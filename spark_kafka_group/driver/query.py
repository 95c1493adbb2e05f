"""One query in its group: the parts that all its steps share."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from spark_kafka_group.driver.committer import Committer
from spark_kafka_group.driver.hooks import Hooks
from spark_kafka_group.driver.membership.manual_assignment import ManualAssignment
from spark_kafka_group.driver.membership.member import Member
from spark_kafka_group.driver.membership.member_protocol import Membership
from spark_kafka_group.driver.planner import Batch
from spark_kafka_group.driver.positions.standing import Standing
from spark_kafka_group.driver.positions.truncation import DataLoss
from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.options import Options
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.values.commit_metadata import group_id_of, instance_id_of
from spark_kafka_group.values.offsets import GroupOffset
from spark_kafka_group.wire import Generation, GroupClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Query:
    """One query: its place in the group, its positions, its commits, and its reports."""

    options: Options
    query_id: str  # its id, kept in its checkpoint
    member: Membership
    standing: Standing
    committer: Committer
    losses: DataLoss  # option failOnDataLoss
    events: EventLog
    metrics: Metrics

    @classmethod
    def started(cls, options: Options, query_id: str, first: GroupOffset) -> Query:
        """The query whose first offset that Spark showed is `first`. Makes its clients, and joins nothing."""
        group_id = group_id_of(options.group.id, options.group.id_prefix, query_id)
        metrics = Metrics()
        hooks = Hooks(options, metrics)
        events = EventLog(options.reading.event_log, group_id, query_id)
        member: Membership
        if options.reading.subscription.manual:
            member = ManualAssignment(options, group_id, query_id, events)
        else:
            static_id = instance_id_of(options.group.instance_id, query_id)
            member = Member(options, group_id, static_id, hooks, events, metrics)
        standing = Standing.after(first, joins=not options.reading.subscription.manual)
        by_sink = options.group.transactional_id
        committer = Committer(group_id, query_id, member.client, hooks, events, metrics, standing.epochs, by_sink)
        losses = DataLoss(options.reading.fail_on_data_loss, metrics)
        return cls(options, query_id, member, standing, committer, losses, events, metrics)

    @property
    def client(self) -> GroupClient:
        """The group's client, which also looks up logs."""
        return self.member.client

    @property
    def generation(self) -> Generation:
        """The generation joined last."""
        return self.member.generation

    @property
    def subscription(self) -> Subscription:
        """The topics or partitions that the query reads."""
        return self.options.reading.subscription

    @property
    def group_id(self) -> str:
        return self.committer.group_id

    def plan(self, batch: Batch, replay: bool = False) -> None:
        """Take note of a batch that Spark is about to run, and report it."""
        self.committer.plan(batch)
        if batch.generation >= 0:
            self.standing.held_generation = batch.generation
        self.events.planned(batch.generation, batch.end.batch, batch.reads, replay)
        if log.isEnabledFor(logging.INFO):
            log.info(
                "group %s: generation %d: %s batch %d, %d records: %s",
                self.group_id, batch.generation, "replaying" if replay else "planned", batch.end.batch,
                batch.records, " ".join(map(str, batch.reads)) or "nothing",
            )  # fmt: skip
