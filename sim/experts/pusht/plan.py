"""Plans sequences of straight pushes for the T by simulating many of them (``pusht_model``).

A push is five numbers: which edge of the T, where along it, the direction relative to the edge's
inward normal, and how far. A beam search over random pushes finds a sequence that is short in time
and ends near the goal; the cross-entropy method then sharpens its numbers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.geometry import XY, PlanarPose, PlanarPoseRows, XYRows
from robolearn.pusht import TABLE_SIZE_M, TOOL_RADIUS_M
from robolearn.shapes import AnyFloats, Flags, Floats
from sim.experts.pusht import model
from sim.shapes import AnyAngles, AnyPoints, AnyPoses, Indices

# What is sharpened of a push: place, angle, length; of a sequence, many at once.
PushValues = Float64[NDArray[np.float64], "3"]
PushesValues = Float64[NDArray[np.float64], "n pushes 3"]

# The T's outline, counter-clockwise, from gym-pusht's bar and stem, relative to the centre [m].
OUTLINE = (
    np.array(
        [[60, 0], [-60, 0], [-60, -30], [-15, -30], [-15, -120], [15, -120], [15, -30], [60, -30]]
    )
    * 1e-3
    - model.CENTRE
)
_NEXT = np.roll(OUTLINE, -1, axis=0)
LENGTHS = np.linalg.norm(_NEXT - OUTLINE, axis=1)
ALONG = (_NEXT - OUTLINE) / LENGTHS[:, None]
OUTWARD = np.stack([ALONG[:, 1], -ALONG[:, 0]], axis=1)

# Space between tool and block where a push begins, and on the way there [m].
START_GAP_M = 0.006
WAY_GAP_M = 0.012
MIN_GAP_M = 0.004
# States nearer than this count as one in the beam; so many of the best are looked at.
ALIKE_M, ALIKE_RAD = 0.008, 0.12
CONSIDERED = 3000


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """How hard to think, and what a plan costs (all in seconds of the episode)."""

    candidates: int = 160
    branches: int = 48
    beam: int = 28
    depth: int = 3
    coarse_m: float = 0.004
    longest_m: float = 0.2
    refine: int = 128
    rounds: int = 5
    # Speeds on the way and while pushing [m/s], and what a push costs beside its length [s].
    way_speed: float = 0.35
    push_speed: float = 0.16
    per_push_s: float = 0.7
    # Time that is likely still needed at a pose error e: scale * log(1 + e / error).
    error_m: float = 0.0015
    scale_s: float = 1.6


@dataclass(frozen=True, slots=True)
class Pushes:
    """``n`` pushes: edge ``[n]``, place along it [m], direction from the inward normal [rad]."""

    edge: Indices
    place: Floats
    angle: Floats

    def take(self, rows: Indices) -> Pushes:
        """Some of them, possibly repeated."""
        return Pushes(self.edge[rows], self.place[rows], self.angle[rows])

    def starts(self) -> XYRows:
        """Where the tool begins ``[n, 2]``, body frame."""
        at = OUTLINE[self.edge] + ALONG[self.edge] * self.place[:, None]
        return at + OUTWARD[self.edge] * (TOOL_RADIUS_M + START_GAP_M)

    def directions(self) -> XYRows:
        """Unit vectors ``[n, 2]``, body frame."""
        return model.rotate(-OUTWARD[self.edge], self.angle)


@dataclass(frozen=True, slots=True)
class Push:
    """One push in the world: from ``start`` along ``direction`` for ``length`` [m]; the block is
    then expected at ``result`` (its centre's pose).
    """

    start: XY
    direction: XY
    length: float
    result: PlanarPose


@dataclass(frozen=True, slots=True)
class _Node:
    """States after some pushes: ``pose [n, 3]``, ``tool [n, 2]``, time used ``[n]``, and how each
    came about (row of the parent, push, length).
    """

    pose: PlanarPoseRows
    tool: XYRows
    time: Floats
    parent: Indices
    pushes: Pushes
    length: Floats
    cost: AnyFloats = field(default_factory=lambda: np.zeros(0))


def draw(rng: np.random.Generator, n: int) -> Pushes:
    """Random pushes, evenly along the outline."""
    s = (np.arange(n) + rng.uniform(0.0, 1.0, n)) / n * LENGTHS.sum()
    edges = np.concatenate([[0.0], np.cumsum(LENGTHS)])
    edge = np.clip(np.searchsorted(edges, s, side="right") - 1, 0, len(LENGTHS) - 1)
    angle = rng.choice([0.0, 1.0], n) * rng.uniform(-0.75, 0.75, n)
    return Pushes(edge, s - edges[edge], angle)


class Planner:
    """Plans pushes towards ``goal`` (the pose of the block's centre)."""

    def __init__(self, config: PlanConfig, goal: PlanarPose = model.GOAL_CENTRE) -> None:
        self.config, self.goal = config, goal

    def plan(
        self, pose: PlanarPose, tool: XY, rng: np.random.Generator, spread: float = 0.0
    ) -> list[Push]:
        """The pushes that lead to the goal from here, best first push first; empty if none can.

        ``spread`` [s]: plans that are slower by about so much are chosen as well, at random.
        """
        cfg = self.config
        levels: list[_Node] = []
        node = _Node(
            pose[None],
            tool[None],
            np.zeros(1),
            np.zeros(1, np.intp),
            Pushes(np.zeros(1, np.intp), np.zeros(1), np.zeros(1)),
            np.zeros(1),
        )
        best: list[tuple[float, int, int]] = []
        for depth in range(cfg.depth):
            per = cfg.candidates if depth == 0 else cfg.branches
            node = self._expand(node, draw(rng, per * len(node.pose)), per)
            if not len(node.pose):
                break
            levels.append(node)
            best += [(float(c), depth, i) for i, c in enumerate(node.cost)]
        if not best:
            return []
        if spread > 0.0:
            best = [(c + float(rng.gumbel(0.0, spread)), d, i) for c, d, i in best]
        best.sort()
        found: list[tuple[float, list[Push]]] = []
        for _, depth, row in best[: 3 if spread == 0.0 else 1]:
            found.append(self._refine(levels, depth, row, pose, tool, rng))
        return min(found, key=lambda f: f[0])[1]

    def any_push(self, pose: PlanarPose, rng: np.random.Generator, longest: float) -> Push | None:
        """A push of any length on any face that the tool can reach, for no good reason."""
        pushes = draw(rng, 32)
        start = model.to_world(pushes.starts(), pose)
        rows = np.flatnonzero(allowed(pushes, start))
        if not len(rows):
            return None
        i = int(rng.choice(rows))
        direction = model.rotate(pushes.directions()[i], pose[2])
        length = float(rng.uniform(0.02, longest))
        count = max(1, round(length / 0.003))
        track = model.push(pose[None], start[i][None], direction[None] * (length / count), count)
        return Push(start[i], direction, length, track[-1, 0])

    def cost_to_go(self, pose: AnyPoses) -> Any:
        """Time that is likely still needed [s]."""
        error = model.pose_error(pose, self.goal)
        return self.config.scale_s * np.log1p(error / self.config.error_m)

    def _expand(self, node: _Node, pushes: Pushes, per: int) -> _Node:
        cfg = self.config
        parent = np.repeat(np.arange(len(node.pose)), per)
        pose, tool = node.pose[parent], node.tool[parent]
        start = model.to_world(pushes.starts(), pose)
        direction = model.rotate(pushes.directions(), pose[:, 2])
        good = allowed(pushes, start)
        rows = np.flatnonzero(good)
        if not len(rows):
            return _Node(pose[:0], tool[:0], node.time[:0], rows, pushes.take(rows), tool[:0, 0])
        parent, pose, start = parent[rows], pose[rows], start[rows]
        direction, pushes = direction[rows], pushes.take(rows)
        time = node.time[parent] + self._way_s(tool[rows], start, pose)
        count = round(cfg.longest_m / cfg.coarse_m)
        track = model.push(pose, start, direction * cfg.coarse_m, count)
        lengths = cfg.coarse_m * (1.0 + np.arange(count))
        end = start + lengths[:, None, None] * direction
        off = (end < 0.004).any(axis=-1) | (end > TABLE_SIZE_M - 0.004).any(axis=-1)
        wall = np.maximum(model.outside(track) - model.outside(pose), 0.0)
        off |= np.maximum.accumulate(wall, axis=0) > 0.002
        used = time + cfg.per_push_s + lengths[:, None] / cfg.push_speed
        cost = np.where(off, np.inf, used + self.cost_to_go(track))
        chosen = self._choose(cost, track)
        k, i = np.unravel_index(chosen, cost.shape)
        return _Node(
            track[k, i],
            end[k, i],
            used[k, i],
            parent[i],
            pushes.take(i),
            lengths[k],
            cost[k, i],
        )

    def _choose(self, cost: AnyFloats, track: AnyFloats) -> Indices:
        """Flat indices of good and different states: the best lengths of the best pushes."""
        flat = cost.ravel()
        some = np.argpartition(flat, min(CONSIDERED, flat.size - 1))[:CONSIDERED]
        order = some[np.argsort(flat[some])]
        order = order[np.isfinite(flat[order])]
        poses = track.reshape(-1, 3)[order]
        chosen: list[int] = []
        while len(order) and len(chosen) < self.config.beam:
            chosen.append(int(order[0]))
            off = np.abs(poses - poses[0])
            other = (off[:, 0] + off[:, 1] >= ALIKE_M) | (off[:, 2] >= ALIKE_RAD)
            order, poses = order[other], poses[other]
        return np.array(chosen, dtype=np.intp)

    def _way_s(self, tool: AnyPoints, start: AnyPoints, pose: AnyPoses) -> AnyAngles:
        """Time to get round the block to the start of a push, estimated."""
        t = np.linspace(0.0, 1.0, 8)[1:-1, None, None]
        between = model.to_body(tool + t * (start - tool), pose)
        depth = TOOL_RADIUS_M + MIN_GAP_M - model.distance_to_block(between)
        blocked = np.maximum(depth, 0.0).max(axis=0)
        distance = np.linalg.norm(start - tool, axis=-1)
        return (distance + 4.0 * blocked) / self.config.way_speed

    def _refine(
        self,
        levels: list[_Node],
        depth: int,
        row: int,
        pose: PlanarPose,
        tool: XY,
        rng: np.random.Generator,
    ) -> tuple[float, list[Push]]:
        """Sharpen all numbers of a sequence together (cross-entropy method)."""
        cfg = self.config
        chain: list[tuple[int, PushValues]] = []
        for level in reversed(levels[: depth + 1]):
            p = level.pushes
            chain.append(
                (int(p.edge[row]), np.array([p.place[row], p.angle[row], level.length[row]]))
            )
            row = int(level.parent[row])
        chain.reverse()
        edges = [e for e, _ in chain]
        mean = np.array([v for _, v in chain])
        spread = np.tile([0.008, 0.15, 0.006], (len(chain), 1))
        best = (np.inf, mean)
        for _ in range(cfg.rounds):
            values = mean + spread * rng.normal(size=(cfg.refine, *mean.shape))
            values[0] = mean if not np.isfinite(best[0]) else best[1]
            values[:, :, 0] = np.clip(values[:, :, 0], 0.0, LENGTHS[edges])
            values[:, :, 1] = np.clip(values[:, :, 1], -1.0, 1.0)
            values[:, :, 2] = np.clip(values[:, :, 2], 0.004, cfg.longest_m + 0.03)
            cost = self._sequence(edges, values, pose, tool)[0]
            elite = np.argsort(cost)[:12]
            if cost[elite[0]] < best[0]:
                best = (float(cost[elite[0]]), values[elite[0]])
            mean = values[elite].mean(axis=0)
            spread = values[elite].std(axis=0) + 1e-5
        _, pushes = self._sequence(edges, best[1][None], pose, tool)
        return best[0], pushes

    def _sequence(
        self, edges: list[int], values: PushesValues, pose: PlanarPose, tool: XY
    ) -> tuple[Floats, list[Push]]:
        """Cost ``[n]`` of sequences ``values [n, pushes, 3]``; the pushes of the first."""
        cfg, n = self.config, len(values)
        poses, tools = np.tile(pose, (n, 1)), np.tile(tool, (n, 1))
        time, bad = np.zeros(n), np.zeros(n, dtype=bool)
        pushes: list[Push] = []
        for i, edge in enumerate(edges):
            p = Pushes(np.full(n, edge), values[:, i, 0], values[:, i, 1])
            start = model.to_world(p.starts(), poses)
            direction = model.rotate(p.directions(), poses[:, 2])
            length = values[:, i, 2]
            time += self._way_s(tools, start, poses) + cfg.per_push_s + length / cfg.push_speed
            count = max(1, int(np.ceil(float(length.max()) / 0.003)))
            before = model.outside(poses)
            bad |= ~allowed(p, start)
            poses = model.push(poses, start, direction * (length / count)[:, None], count)[-1]
            tools = start + direction * length[:, None]
            bad |= model.outside(poses) > before + 0.002
            bad |= (tools < 0.004).any(axis=-1) | (tools > TABLE_SIZE_M - 0.004).any(axis=-1)
            pushes.append(Push(start[0], direction[0], float(length[0]), poses[0]))
        return time + self.cost_to_go(poses) + np.where(bad, 1e3, 0.0), pushes


def allowed(pushes: Pushes, start: XYRows) -> Flags:
    """Whether the tool fits between block and table's edge where each push starts."""
    clear = model.distance_to_block(pushes.starts()) > TOOL_RADIUS_M + MIN_GAP_M
    return clear & ((start > 0.004) & (start < TABLE_SIZE_M - 0.004)).all(axis=-1)


def way_round(tool: XY, start: XY, pose: PlanarPose) -> list[XY]:
    """The shortest way of the tool's centre to ``start`` that keeps clear of the block.

    Points in the world, ``start`` last; empty when there is none. A visibility graph over the
    widened corners of the T.
    """
    ends = [model.to_body(tool, pose), model.to_body(start, pose)]
    points = np.array([*ends, *_WAYPOINTS])
    world = model.to_world(points, pose)
    fits = ((world > 0.002) & (world < TABLE_SIZE_M - 0.002)).all(axis=-1)
    fits[:2] = True
    t = np.linspace(0.0, 1.0, 13)[:, None]
    lines = points[:, None, None] + t * (points[None, :, None] - points[:, None, None])
    # Near its two ends a way may be as close to the block as the end itself.
    near = min(float(model.distance_to_block(p)) for p in ends)
    gap = min(TOOL_RADIUS_M + WAY_GAP_M, near) - 2e-3
    free = (model.distance_to_block(lines).min(axis=-1) > gap) & fits[:, None] & fits[None]
    length = np.linalg.norm(points[:, None] - points[None], axis=-1)
    queue: list[tuple[float, int, int]] = [(0.0, 0, -1)]
    came: dict[int, int] = {}
    while queue and 1 not in came:
        cost, i, parent = heapq.heappop(queue)
        if i in came:
            continue
        came[i] = parent
        for j in np.flatnonzero(free[i]).tolist():
            if j not in came:
                heapq.heappush(queue, (cost + float(length[i, j]), j, i))
    if 1 not in came:
        return []
    route = [1]
    while came[route[-1]] > 0:
        route.append(came[route[-1]])
    return [start if i == 1 else world[i] for i in reversed(route)]


def _waypoints() -> list[XY]:
    """Three points around every convex corner of the T, body frame."""
    found: list[XY] = []
    gap = 1.05 * (TOOL_RADIUS_M + WAY_GAP_M)
    for i, corner in enumerate(OUTLINE):
        before, after = OUTWARD[i - 1], OUTWARD[i]
        if before[0] * after[1] - before[1] * after[0] > 0:
            found += [corner + gap * u for u in (before, (before + after) / np.sqrt(2.0), after)]
    return found


_WAYPOINTS = _waypoints()
