"""Hooks as a user writes them; module globals keep the arguments of their calls."""

calls = []


class Listener:
    """Notes every call."""

    def on_partitions_revoked(self, partitions):
        calls.append(("revoked", {tp.partition for tp in partitions}))

    def on_partitions_assigned(self, partitions):
        calls.append(("assigned", {tp.partition for tp in partitions}))

    def on_partitions_lost(self, partitions):
        calls.append(("lost", {tp.partition for tp in partitions}))


class Failing(Listener):
    """Raises as soon as it has noted the call."""

    def on_partitions_revoked(self, partitions):
        super().on_partitions_revoked(partitions)
        raise RuntimeError("no thanks")


doomed = {}
"""Topics to delete as soon as they are assigned, and the function that deletes them."""


class Deleting(Listener):
    """Makes topics go between their assignment and the first look at their offsets."""

    def on_partitions_assigned(self, partitions):
        for topic in {tp.topic for tp in partitions} & doomed.keys():
            doomed.pop(topic)(topic)


class Commits:
    """Notes commits."""

    def on_commit(self, offsets, error):
        calls.append(("committed", {tp.partition: offset for tp, offset in offsets.items()}, type(error).__name__))


class Masking:
    """Takes the keys away."""

    def on_consume(self, batch):
        import pyarrow as pa

        return batch.set_column(0, batch.schema.field(0), pa.nulls(batch.num_rows, pa.binary()))


class Renaming:
    """Gives back another schema."""

    def on_consume(self, batch):
        return batch.rename_columns(["k", *batch.schema.names[1:]])


class Raising:
    """Raises."""

    def on_consume(self, batch):
        raise RuntimeError("cannot decrypt")


class Reverse:
    """An assignment strategy: everything to the last member by id."""

    name = "reverse"

    def assign(self, members, partitions):
        from spark_kafka_group.values.offsets import TopicPartition

        last = max(members, key=lambda member: member.member_id)
        mine = [TopicPartition(topic, n) for topic in last.topics for n in partitions.get(topic, ())]
        return {member.member_id: mine if member is last else [] for member in members}


class First:
    """An assignment strategy that deals the first partition of each topic and no other."""

    name = "first"

    def assign(self, members, partitions):
        from spark_kafka_group.values.offsets import TopicPartition

        return {members[0].member_id: [TopicPartition(topic, 0) for topic in members[0].topics if topic in partitions]}
