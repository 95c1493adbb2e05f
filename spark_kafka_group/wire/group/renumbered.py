"""A group that becomes a classic one again, and with it the number of the generation that a member is in.

While the broker assigns (KIP-848), a member is in a generation by its own epoch, which may be below the group's: the
member has not joined again yet, for example as a micro-batch runs. The last member of the newer protocol leaves: the
group is a classic one at once, its generation has the number of the group's epoch, and it rebalances. The coordinator
waits for this member to join, as before any rebalance, but refuses heartbeats and commits under the member's epoch. It
says ILLEGAL_GENERATION, as if others had the partitions already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kafka.errors as kafka_errors
from kafka.coordinator.base import Generation as KafkaGeneration
from kafka.coordinator.base import MemberState
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest

TRIES = 64
"""How far the group's epoch may be ahead of a member's: it grows by one with each member that joins or leaves, until
the broker assigns again."""
REBALANCES = "PreparingRebalance"


class _RefusedError(Exception):
    """Raised in place of kafka-python's reaction to ILLEGAL_GENERATION, which forgets the generation."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        super().__init__("ILLEGAL_GENERATION")
        self.arguments = arguments


class Renumbered:
    """Finds the new number of a member's generation with the next heartbeat, or commit, so that the member may commit,
    and then join. `by_broker`: whether the broker assigned the generation that the member is in. `moved`: called with
    the new number, on kafka-python's I/O thread."""

    def __init__(self, group_id: str | None, by_broker: Callable[[], bool], moved: Callable[[int], None]) -> None:
        self._group_id = group_id
        self._by_broker = by_broker
        self._moved = moved
        self._numbers: tuple[int, int] | None = None  # of a generation: as it was joined, and now
        self._given_up = False

    def attach(self, coordinator: Any, manager: Any) -> None:
        """Take kafka-python's coordinator, before others listen to its answers."""
        self._coordinator, self._manager = coordinator, manager
        beat, commit = coordinator._send_heartbeat_request, coordinator._send_offset_commit_request
        for name, is_illegal in (
            ("_handle_heartbeat_response", lambda response, sent_s: _illegal(response.error_code)),
            ("_handle_offset_commit_response", lambda offsets, sent_s, response: _illegal(*_codes(response))),
        ):
            setattr(coordinator, name, self._unless_refused(getattr(coordinator, name), is_illegal))

        async def beat_and_follow() -> None:
            before = coordinator._generation
            try:
                await beat()
            except _RefusedError as refused:
                if await self._follow(before):
                    raise kafka_errors.RebalanceInProgressError from None
                self._give_up(coordinator._handle_heartbeat_response, refused)

        async def commit_and_follow(offsets: Any) -> None:
            before = coordinator._generation
            joined_as = self._joined_as(before)
            try:
                await commit(offsets)
            except _RefusedError as refused:
                # Only in the same generation: the partitions may be another member's in one that was joined meanwhile.
                if await self._follow(before) and self._numbers == (joined_as, coordinator._generation.generation_id):
                    await commit_and_follow(offsets)
                else:
                    self._give_up(coordinator._handle_offset_commit_response, refused)

        coordinator._send_heartbeat_request = beat_and_follow
        coordinator._send_offset_commit_request = commit_and_follow

    def _unless_refused(self, handle: Callable[..., Any], is_illegal: Callable[..., bool]) -> Callable[..., Any]:
        def handle_unless_refused(*arguments: Any) -> Any:
            followed = not self._given_up and self._by_broker() and self._coordinator.state is MemberState.STABLE
            if followed and is_illegal(*arguments):
                raise _RefusedError(arguments)
            return handle(*arguments)

        return handle_unless_refused

    def _give_up(self, handle: Callable[..., Any], refused: _RefusedError) -> None:
        """Let kafka-python react."""
        self._given_up = True
        try:
            handle(*refused.arguments)
        finally:
            self._given_up = False

    def now(self, generation: int) -> int:
        """The number by which the coordinator knows a generation that was joined."""
        return self._numbers[1] if self._numbers is not None and self._numbers[0] == generation else generation

    def forget(self) -> None:
        """The member has joined another generation."""
        self._numbers = None

    def _joined_as(self, generation: Any) -> int:
        known = self._numbers is not None and self._numbers[1] == generation.generation_id
        number: int = self._numbers[0] if self._numbers is not None and known else generation.generation_id
        return number

    async def _follow(self, before: Any) -> bool:
        """Go on in the generation `before` by its new number. Returns whether it has one.

        1. The group is a classic one, and rebalances. This member is in it: it has not been thrown out. 2. The
        coordinator takes a heartbeat by that number: so it has completed no rebalance without this member, which has
        not joined since. 3. If it completes one now, it refuses that number.
        """
        coordinator = self._coordinator
        number = await self._number(before) if coordinator._generation is before else None
        with coordinator._lock:
            if coordinator._generation is not before:  # another answer came first
                return not coordinator._generation.is_lost()
            if number is None or coordinator.state is not MemberState.STABLE:
                return False
            coordinator._generation = KafkaGeneration(number, before.member_id, before.protocol)
            coordinator.rejoin_needed = True
            self._numbers = self._joined_as(before), number
        self._moved(number)
        return True

    async def _number(self, before: Any) -> int | None:
        coordinator = self._coordinator
        try:
            (group,) = (await self._send(DescribeGroupsRequest(groups=[self._group_id]))).groups
            ids = [member.member_id for member in group.members]
            if group.error_code or group.group_state != REBALANCES or before.member_id not in ids:
                return None
            for number in range(before.generation_id + 1, before.generation_id + 1 + TRIES):
                request = HeartbeatRequest(
                    group_id=self._group_id,
                    generation_id=number,
                    member_id=before.member_id,
                    group_instance_id=coordinator.group_instance_id,
                )
                error = kafka_errors.for_code((await self._send(request)).error_code)
                if error is not kafka_errors.IllegalGenerationError:
                    return number if error is kafka_errors.RebalanceInProgressError else None
        except kafka_errors.KafkaError:
            pass  # the answer stands
        return None

    async def _send(self, request: Any) -> Any:
        return await self._manager.send(request, node_id=self._coordinator.coordinator_id)


def _illegal(*codes: int) -> bool:
    return kafka_errors.IllegalGenerationError.errno in codes


def _codes(response: Any) -> Iterator[int]:
    return (partition.error_code for topic in response.topics for partition in topic.partitions)
