"""Other members of the group, which go on from its committed offsets."""

from __future__ import annotations

from collections.abc import Collection

from spark_kafka_group.wire import Generation, GroupClient

UNNAMED = "which the coordinator does not name"


def others_in_group(
    client: GroupClient, generation: Generation, static_id: str | None, apart: Collection[str] = ()
) -> tuple[str, ...]:
    """Names of the group's members but for this one, asked of its coordinator; none where this one is alone.

    Parameters
    ----------
    static_id
        This member's group.instance.id, if it has one.
    apart
        Those of members that are known to read other topics.

    Raises
    ------
    BrokerError
    """
    if generation.alone:
        return ()
    own, members = static_id or generation.member_id, client.live_members()
    if own not in members:
        return (UNNAMED,)  # a coordinator that does not name this member may not name others either
    return tuple(sorted({*members} - {own, *apart}))
