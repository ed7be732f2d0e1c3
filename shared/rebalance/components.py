"""Strongly connected components of a graph of needs (Tarjan), those first that need nothing of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def components(needs: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Each a list of nodes that need each other, around; what a component needs comes before it."""
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    held: set[int] = set()
    found: list[list[int]] = []
    for root in needs:
        if root in order:
            continue
        work = [(root, iter(needs[root]))]
        order[root] = lowest[root] = len(order)
        stack.append(root)
        held.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in order:
                    order[other] = lowest[other] = len(order)
                    stack.append(other)
                    held.add(other)
                    work.append((other, iter(needs[other])))
                    break
                if other in held:
                    lowest[node] = min(lowest[node], order[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    at = stack.index(node)
                    found.append(sorted(stack[at:]))
                    held.difference_update(stack[at:])
                    del stack[at:]
    return found
