"""How many partitions of each topic each member gets: as even as can be, then with as few moves as can be.

Partitions of one topic differ here only by their owner: what counts is how many a member gets, and how many of
those it keeps. That makes it a flow from topics to members. Its cost grows with the square of a member's load, and
a little with each partition that moves. A flow is the cheapest when no cycle of exchanges makes it cheaper, so such
cycles are looked for until there is none. The loads are then the most even there are, by every measure of evenness, and
nothing else with loads as even moves fewer partitions.

Bellman-Ford finds a cycle of negative cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

Arc = tuple[int, int, int]  # an edge: from a node, to a node, and its cost


def negative_cycle(nodes: int, arcs: Sequence[Arc]) -> list[int] | None:
    """The nodes of a cycle whose costs add up to less than 0, in order; None if there is none."""
    cost = [0] * nodes
    came_from: list[int | None] = [None] * nodes
    changed = True
    while changed:
        changed = False
        for tail, head, price in arcs:
            if cost[tail] + price < cost[head]:
                cost[head] = cost[tail] + price
                came_from[head] = tail
                changed = True
        # A cycle among the predecessors is one of negative cost; a check in each round mostly ends early.
        cycle = _cycle(came_from) if changed else None
        if cycle:
            return cycle
    return None


def _cycle(came_from: Sequence[int | None]) -> list[int] | None:
    """A cycle in a graph in which each node has at most one predecessor."""
    first_seen_from: list[int | None] = [None] * len(came_from)
    for start in range(len(came_from)):
        node: int | None = start
        while node is not None and first_seen_from[node] is None:
            first_seen_from[node] = start
            node = came_from[node]
        if node is not None and first_seen_from[node] == start:
            return _round(came_from, node)
    return None


def _round(came_from: Sequence[int | None], start: int) -> list[int]:
    cycle, node = [start], came_from[start]
    while node is not None and node != start:
        cycle.append(node)
        node = came_from[node]
    return cycle[::-1]


Counts = dict[str, dict[str, int]]  # topic to member id to number of partitions


def balanced(sizes: Mapping[str, int], subscribers: Mapping[str, Sequence[str]], owned: Counts) -> Counts:
    """Deal the partitions of each topic to its subscribers. `sizes`: number of partitions of each topic. `subscribers`:
    member ids of each topic, at least one. Their order, and that of the topics, decides between equals. `owned`: how
    many partitions of the topic each subscriber owned; partitions without an owner are in no count."""
    shares = _Shares(sizes, subscribers, owned)
    while shares.even_out_two():
        pass
    while shares.improve_by_cycle():
        pass
    return shares.counts


class _Shares:
    """Counts while they change, and each member's load. Each member begins with its own partitions."""

    def __init__(self, sizes: Mapping[str, int], subscribers: Mapping[str, Sequence[str]], owned: Counts) -> None:
        self._owned: Counts = {t: {m: owned.get(t, {}).get(m, 0) for m in subscribers[t]} for t in subscribers}
        self.counts: Counts = {topic: dict(counts) for topic, counts in self._owned.items()}
        self._loads: dict[str, int] = {}
        self._topics: dict[str, list[str]] = {}
        for topic, counts in self.counts.items():
            for member, count in counts.items():
                self._loads[member] = self._loads.get(member, 0) + count
                self._topics.setdefault(member, []).append(topic)
        for topic in sorted(self.counts, key=lambda topic: len(self.counts[topic])):
            self._deal(topic, sizes[topic] - sum(self.counts[topic].values()))

    def _deal(self, topic: str, count: int) -> None:
        """Give the partitions without an owner to the members with the fewest."""
        least = [(self._loads[member], index, member) for index, member in enumerate(self.counts[topic])]
        heapq.heapify(least)
        for _ in range(count):
            load, index, member = least[0]
            self._add(topic, member, 1)
            heapq.heapreplace(least, (load + 1, index, member))

    def even_out_two(self) -> bool:
        """Move a partition from the member with most to the one with least, as cycles would, but without search."""
        by_load = sorted(self._loads, key=self._loads.__getitem__)
        for giver in reversed(by_load):
            for taker in by_load:
                if self._loads[giver] - self._loads[taker] < 2:
                    break
                common = [t for t in self._topics[giver] if self.counts[t][giver] and taker in self.counts[t]]
                if common:
                    topic = min(common, key=lambda t: self._giving(t, giver) + self._taking(t, taker))
                    self._add(topic, giver, -1)
                    self._add(topic, taker, 1)
                    return True
        return False

    def improve_by_cycle(self) -> bool:
        """Make a cycle of exchanges that makes the whole better; False if there is none. Nodes are members, then
        topics, then a pool through which loads change: a cycle through it takes one from a member's load and adds one
        to another's, a cycle beside it leaves all loads as they are."""
        members, topics = list(self._loads), list(self.counts)
        node = {member: index for index, member in enumerate(members)}
        pool = len(members) + len(topics)
        load_cost = len(topics) + 1  # above the moves that one cycle can save, at most one in each topic
        arcs: list[Arc] = []
        for index, topic in enumerate(topics, len(members)):
            for member, count in self.counts[topic].items():
                arcs.append((index, node[member], self._taking(topic, member)))
                if count:
                    arcs.append((node[member], index, self._giving(topic, member)))
        for member, load in self._loads.items():
            arcs.append((pool, node[member], -load * load_cost))
            arcs.append((node[member], pool, (load + 1) * load_cost))
        cycle = negative_cycle(pool + 1, arcs)
        if cycle is None:
            return False
        for tail, head in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            if len(members) <= tail < pool:
                self._add(topics[tail - len(members)], members[head], 1)
            elif len(members) <= head < pool:
                self._add(topics[head - len(members)], members[tail], -1)
        return True

    def _giving(self, topic: str, member: str) -> int:
        """Moves made by taking one partition of the topic from the member: one, if it has none but its own."""
        return int(self.counts[topic][member] <= self._owned[topic][member])

    def _taking(self, topic: str, member: str) -> int:
        """Moves made by adding one partition of the topic to the member: one less, if it gets back its own."""
        return -int(self.counts[topic][member] < self._owned[topic][member])

    def _add(self, topic: str, member: str, count: int) -> None:
        self.counts[topic][member] += count
        self._loads[member] += count
