"""A layered layout of a directed graph without cycles, after Sugiyama: left to right, no two nodes overlap.

1. Layers: a node lies right of all that lead to it. An edge over several layers gets a place in each between.
2. Order: sweeps to and fro put each place at the mean of its neighbours; the order with the fewest crossings stays.
3. Coordinates: each layer is moved as near to its neighbours as order and distances allow. That is least squares under
   constraints, solved exactly by pooling neighbours that want to overlap (isotonic regression).

Edges run level through the layers between, so they cross no node, and curve only in the gaps. Deterministic. Units are
those of the nodes' sizes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Key = tuple[int, ...]
"""A node, (index,), or where an edge passes a layer, (edge, layer)."""

Height = Callable[[Key], float]

_SWEEPS = 8
_THIN = 6.0


@dataclass(frozen=True, slots=True)
class Size:
    """Of a node."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Place:
    """A node's upper left corner, and the width of its whole layer, which is the node's to use."""

    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is; nothing lies left of or above 0."""

    places: tuple[Place, ...]
    """Of each node, in the order given."""
    bends: tuple[tuple[tuple[float, float, float], ...], ...]
    """Of each edge: (y, first x, last x) of its level stretches through the layers between its ends."""
    width: float
    height: float


def compute_layout(
    sizes: Sequence[Size], edges: Sequence[tuple[int, int]], *, column_gap: float, row_gap: float
) -> Layout:
    """Places nodes of these sizes, joined by edges of node indexes. Raises ValueError on a cycle."""
    layer_of = _layers(len(sizes), edges)
    columns, links = _columns(layer_of, edges)
    columns = _order_layer(columns, links)
    widths = [max(_width(key, sizes) for key in column) for column in columns]
    lefts = [sum(widths[:i]) + column_gap * i for i in range(len(columns))]
    centres = _centres(columns, links, lambda key: _height(key, sizes), row_gap)
    top = min((centres[key] - _height(key, sizes) / 2 for key in centres), default=0.0)
    places = tuple(
        Place(lefts[layer], centres[(node,)] - size.height / 2 - top, widths[layer])
        for node, (layer, size) in enumerate(zip(layer_of, sizes, strict=True))
    )
    bends = tuple(
        tuple(
            (centres[(edge, layer)] - top, lefts[layer], lefts[layer] + widths[layer])
            for layer in range(layer_of[source] + 1, layer_of[target])
        )
        for edge, (source, target) in enumerate(edges)
    )
    bottom = max((centres[key] + _height(key, sizes) / 2 for key in centres), default=0.0)
    return Layout(places, bends, lefts[-1] + widths[-1] if columns else 0.0, bottom - top)


def _width(key: Key, sizes: Sequence[Size]) -> float:
    return sizes[key[0]].width if len(key) == 1 else 0.0


def _height(key: Key, sizes: Sequence[Size]) -> float:
    return sizes[key[0]].height if len(key) == 1 else _THIN


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The length of the longest way to each node."""
    targets: list[list[int]] = [[] for _ in range(count)]
    waits_for = [0] * count
    for source, target in edges:
        targets[source].append(target)
        waits_for[target] += 1
    ready = deque(node for node in range(count) if not waits_for[node])
    layer_of, seen = [0] * count, 0
    while ready:
        node = ready.popleft()
        seen += 1
        for target in targets[node]:
            layer_of[target] = max(layer_of[target], layer_of[node] + 1)
            waits_for[target] -= 1
            if not waits_for[target]:
                ready.append(target)
    if seen < count:
        raise ValueError("a graph with a cycle has no layers")
    return layer_of


Links = Mapping[Key, tuple[list[Key], list[Key]]]
"""Neighbours to the left and to the right."""


def _columns(layer_of: Sequence[int], edges: Sequence[tuple[int, int]]) -> tuple[list[list[Key]], Links]:
    columns: list[list[Key]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    links: dict[Key, tuple[list[Key], list[Key]]] = {}
    for node, layer in enumerate(layer_of):
        columns[layer].append((node,))
        links[(node,)] = ([], [])
    for edge, (source, target) in enumerate(edges):
        before: Key = (source,)
        for layer in range(layer_of[source] + 1, layer_of[target]):
            key: Key = (edge, layer)
            columns[layer].append(key)
            links[key] = ([before], [])
            links[before][1].append(key)
            before = key
        links[before][1].append((target,))
        links[(target,)][0].append(before)
    return columns, links


def _order_layer(columns: list[list[Key]], links: Links) -> list[list[Key]]:
    best, fewest = columns, _crossings(columns, links)
    current = columns
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        forward = sweep % 2 == 0
        current = _sweep(current, links, forward)
        crossings = _crossings(current, links)
        if crossings < fewest:
            best, fewest = current, crossings
    return best


def _sweep(columns: list[list[Key]], links: Links, forward: bool) -> list[list[Key]]:
    """Each column ordered by the mean place of its neighbours in the column before it."""
    result = [list(column) for column in columns]
    steps = range(1, len(result)) if forward else range(len(result) - 2, -1, -1)
    for step in steps:
        before = result[step - 1 if forward else step + 1]
        place = {key: i for i, key in enumerate(before)}
        own = {key: float(i) for i, key in enumerate(result[step])}

        def wanted(key: Key, place: Mapping[Key, int] = place, own: Mapping[Key, float] = own) -> float:
            neighbours = [place[each] for each in links[key][0 if forward else 1]]
            return sum(neighbours) / len(neighbours) if neighbours else own[key]

        result[step].sort(key=wanted)
    return result


def _crossings(columns: list[list[Key]], links: Links) -> int:
    """How many pairs of edges cross between neighbouring columns."""
    total = 0
    for left, right in pairwise(columns):
        place = {key: i for i, key in enumerate(right)}
        ends: list[int] = []
        for key in left:
            own = sorted(place[each] for each in links[key][1])
            total += sum(len(ends) - bisect_left(ends, end + 1) for end in own)
            for end in own:
                insort(ends, end)
    return total


def _centres(columns: list[list[Key]], links: Links, height: Height, gap: float) -> dict[Key, float]:
    """The middle of each place, across the direction of flow."""
    centres: dict[Key, float] = {}
    for column in columns:
        y = 0.0
        for key in column:
            centres[key] = y + height(key) / 2
            y += height(key) + gap
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            wanted = []
            for key in column:
                neighbours = links[key][0 if forward else 1]
                found = [centres[each] for each in neighbours]
                wanted.append(sum(found) / len(found) if found else centres[key])
            distances = [(height(a) + height(b)) / 2 + gap for a, b in pairwise(column)]
            centres.update(zip(column, _apart(wanted, distances), strict=True))
    return centres


def _apart(wanted: Sequence[float], distances: Sequence[float]) -> Iterable[float]:
    """The values nearest to the wanted ones, by least squares, of which each is its distance after the one before."""
    offsets = [0.0]
    for distance in distances:
        offsets.append(offsets[-1] + distance)
    pools: list[tuple[float, int]] = []
    for value, offset in zip(wanted, offsets, strict=False):
        total, count = value - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, more = pools.pop()
            total, count = total + before, count + more
        pools.append((total, count))
    flat = [total / count for total, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]
