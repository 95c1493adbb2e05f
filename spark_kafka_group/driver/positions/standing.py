"""Where a query stands in each partition: the one state that is kept from trigger to trigger."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_kafka_group.driver.positions.truncation import LeaderEpochs
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition


@dataclass
class Standing:
    """Where a query stands, and how its partitions have changed. Every field is read and changed under the lock of
    `StreamDriver`. Only stop() goes without, after it has waited a second for the thread between triggers: a query must
    end, whatever brokers do. Each field says what changes it."""

    proven: GroupOffset
    """End of the last batch that has succeeded; the first offset that Spark showed until one has.

    The session sets it at every trigger, before it replays a batch, and as soon as a batch is proven."""

    epochs: LeaderEpochs
    """Leader epoch under which each position is known to be in its partition's log.

    Taking sets it with the position, each look at the logs' ends confirms or replaces it."""

    topic_ids: dict[str, str]
    """Id of each topic as last seen, at first the checkpoint's: another id means that the topic was recreated.

    Taking updates it, after positions of the old topic have been dropped."""

    newer_than_group: bool
    """Whether the checkpoint's positions are newer than all that the group has: Spark's own kafka source has written
    them, which never commits, or the user had no right on the group. Never changes."""

    is_new_query: bool  # whether no checkpoint has positions. Ends when positions have been taken for the first time.

    known: set[TopicPartition]
    """Partitions that existed when this query began, and those that it has read: one that is not among them is new, and
    starts at its first record. At first those of the checkpoint. Grows by those that are taken: another member may own
    a new partition for a while, or none. For a new query, grows by all existing ones when positions have been taken."""

    is_restart: bool = True
    """Whether this process has not yet taken positions. Ends when it has, at its first settled trigger."""

    positioned: set[TopicPartition] = field(default_factory=set)
    """Partitions whose start has been decided, and which this member has owned without a break since.

    Grows when the group has agreed to a start. A rebalance reduces it to what the member kept; a lost membership, or a
    lost commit, empties it; topics that change take theirs out."""

    moved: dict[TopicPartition, int] = field(default_factory=dict)
    """Positions that differ from `proven`.

    Set when a start is taken, and when lost records move a position. An entry goes when a batch with its partition is
    proven, or when its partition is neither owned nor exists."""

    truncated_at: dict[TopicPartition, int] = field(default_factory=dict)
    """Where a replayed batch ends, in logs that lost their ends. Set by a replay; becomes `moved` when it is proven."""

    left_to_group: set[TopicPartition] = field(default_factory=set)
    """Partitions that this process has never owned, and about which the group is right, not the checkpoint.

    Set when positions are taken for the first time; a batch takes out what it owns."""

    existing_at_start: set[TopicPartition] = field(default_factory=set)
    """Partitions that existed when this process started, without those of topics recreated since."""

    deleted: set[TopicPartition] = field(default_factory=set)
    """Partitions of `proven` that were deleted, each reported once. One that exists again goes out."""

    recreated: set[str] = field(default_factory=set)
    """Topics that were recreated, from the moment this is seen until positions have been taken."""

    recreated_unowned: set[TopicPartition] = field(default_factory=set)
    """Partitions of recreated topics whose old positions are void, and which others own. One that is taken goes out."""

    may_be_behind: bool = False
    """Whether another process may be at work on the checkpoint, and be further than this one has read it: until Spark
    has logged a batch of this process. False for a new query, and with a checkpoint that is newer than the group."""

    disputed: set[TopicPartition] = field(default_factory=set)
    """Partitions whose offset in the group is of a later batch of this query than the checkpoint has, or may be:
    another process may be at work on it, so that offset is not moved before Spark has logged the next batch of this
    one. Spark does not where another process has logged that batch.

    Taking sets them. Emptied when Spark has logged a batch."""

    to_set_right: set[TopicPartition] = field(default_factory=set)
    """Partitions whose offset was disputed, and is still to be set back: from the moment in which Spark has logged a
    batch, until the commit has gone through."""

    overrides: dict[TopicPartition, int] = field(default_factory=dict)
    """The group's offsets than which the checkpoint's positions are newer, of partitions that this process did not own
    when it took positions for the first time. Set then."""

    is_unseen: bool = False
    """Whether the user had no right on the group as this process took its positions. Ends when the group has them."""

    noted_generation: int = -1
    """Latest generation in the metadata of this query's commits when this process took positions for the first time.
    Where the group was empty in between, it may be later than the current one: a group of the newer protocol that
    becomes one of the classic protocol counts from 1 again."""

    held_generation: int | None = None
    """Latest generation in which this process took positions, planned or committed.

    A commit of this query under a later one is that of another process, which has taken its place."""

    @classmethod
    def after(cls, first: GroupOffset, joins: bool = True) -> Standing:
        """By the first offset that Spark shows, which is the checkpoint's.

        `joins`: whether the query is a member of its group. Before its first join it plans batches without data only,
            under no generation: their positions are still those of Spark's own source, if there are any.
        """
        not_joined = joins and first.group_id is None and first.generation < 0
        before_joining = not_joined and bool(first.positions) and not first.topic_ids
        newer_than_group = first.query_id is None or before_joining or first.unseen
        is_new_query = not first.positions and not first.left
        return cls(
            proven=first,
            epochs=LeaderEpochs(first),
            topic_ids=dict(first.topic_ids),
            newer_than_group=newer_than_group,
            is_new_query=is_new_query,
            known={*first.positions, *first.left},
            may_be_behind=not is_new_query and not newer_than_group,
        )

    def position(self, tp: TopicPartition) -> int:
        """Next offset to read of a partition that has been positioned."""
        moved = self.moved.get(tp)
        return self.proven.positions[tp] if moved is None else moved

    def starts(self, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Positions of owned partitions whose start has been decided."""
        return {tp: self.position(tp) for tp in self.positioned.intersection(owned)}

    def kept(self) -> dict[TopicPartition, int]:
        """Positions of all partitions that this query has read, or was about to read, owned or not."""
        positions = self.proven.left | self.proven.positions | self.moved
        return {tp: at for tp, at in positions.items() if tp not in self.recreated_unowned}

    def known_before(self) -> set[TopicPartition]:
        """Partitions that are not new: those known, but for recreated ones."""
        return {tp for tp in self.known - self.recreated_unowned if tp.topic not in self.recreated}

    def prove(self, end: GroupOffset, owned: Collection[TopicPartition]) -> None:
        """Move positions to `end`: the batch that ends there has succeeded."""
        stays = {tp: at for tp, at in self.moved.items() if tp in owned and tp not in end.positions}
        self.moved = stays | self.truncated_at
        self.truncated_at = {}
        self.proven = end

    def recreate(self, topics: Collection[str], owned: Collection[TopicPartition]) -> None:
        """Forget all positions in these topics: they were deleted and made again."""
        concerned = {tp for tp in self.kept() if tp.topic in topics}
        self.recreated_unowned |= concerned.difference(owned)
        self.positioned -= concerned.intersection(owned)
        self.recreated.update(topics)
        self.existing_at_start = {tp for tp in self.existing_at_start if tp.topic not in topics}
        self.known = {tp for tp in self.known if tp.topic not in topics}

    def take_starts(
        self,
        offsets: Mapping[TopicPartition, int],
        moved: Mapping[TopicPartition, int],
        newer: Collection[TopicPartition],
    ) -> None:
        """Take these starts, to which the group has agreed, except those with `newer` commits: these are decided again.
        `moved`: all positions that differ from `proven` from now on."""
        self.moved = dict(moved)
        self.positioned |= offsets.keys() - newer
        self.known |= offsets.keys()
        self.recreated_unowned -= offsets.keys()

    def hold(self, generation: int) -> None:
        """Note that a commit goes out under this generation: it is this process's own, also if no answer comes. This
        process has been a member all the time since it took the positions that it has."""
        if self.positioned:
            held = self.held_generation
            self.held_generation = generation if held is None else max(held, generation)

    def disputes(self, tp: TopicPartition, offset: int, in_group: Mapping[TopicPartition, int]) -> bool:
        """Whether the group has the disputed offset still, `in_group` as last looked up."""
        return tp in self.disputed and in_group.get(tp) == offset

    def batch_is_logged(self) -> None:
        """Note that Spark has logged a batch that this process has planned."""
        self.may_be_behind = False
        self.to_set_right |= self.disputed
        self.disputed.clear()

    def taken(self) -> None:
        """Note that positions of all owned partitions have been taken: from now on the query runs."""
        if self.is_new_query:
            self.known |= self.existing_at_start
        self.is_new_query = self.is_restart = False
        self.recreated.clear()
