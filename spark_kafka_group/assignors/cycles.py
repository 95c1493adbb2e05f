"""A cycle of negative cost in a small graph (Bellman-Ford)."""

from __future__ import annotations

from collections.abc import Sequence

Arc = tuple[int, int, int]
"""An edge: from a node, to a node, and its cost."""


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
