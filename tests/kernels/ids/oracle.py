"""The map of `sparrow.kernels.ids` in dicts: one entry after the other, nothing clever."""

from __future__ import annotations

import dataclasses

import numpy as np

from sparrow.kernels.ids.types import DISTANCE_LFU, LFU, MOST_COUNTED, NONE, TOTALS, Settings

NEVER = 2**31 - 1


def mix64_of(x: int) -> int:
    """One step of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


@dataclasses.dataclass
class Held:
    """An id at its place."""

    place: int
    last: int
    count: int


class Short(Exception):
    """A step needs more rows than there are: by segment, how many."""


class Oracle:
    """The state of a map, and its changes."""

    def __init__(self, s: Settings) -> None:
        self.s = s
        self.rows: list[dict[int, Held]] = [{} for _ in s.segments]
        self.waiting: list[dict[int, Held]] = [{} for _ in s.segments]
        self.free = [list(range(end - 1, begin - 1, -1)) for begin, end in s.pools]
        self.quiet = [0] * len(s.segments)
        self.totals = [dict.fromkeys(TOTALS, 0) for _ in s.segments]
        self.short = [0] * len(s.segments)

    def expired(self, segment: int, held: Held, step: int) -> bool:
        expire = self.s.segments[segment].expire
        return expire > 0 and step - held.last > expire

    def find(self, ids: list[int], segments: list[int], step: int) -> list[int]:
        result = []
        for key, segment in zip(ids, segments, strict=True):
            if segment < 0:
                result.append(self.s.rows)
                continue
            held = self.rows[segment].get(key)
            known = held is not None and not self.expired(segment, held, step)
            result.append(held.place if known else self.s.segments[segment].unknown)
        return result

    def assign(self, ids: list[int], segments: list[int], step: int):
        """Rows, fresh and gone rows with their ids by segment."""
        nothing = [[] for _ in self.s.segments]
        found = self.find(ids, segments, step)
        if any(self.short):
            return found, nothing, nothing
        times: dict[tuple[int, int], int] = {}  # in the order of first occurrence
        for key, segment in zip(ids, segments, strict=True):
            if segment >= 0:
                times[segment, key] = times.get((segment, key), 0) + 1
        plans = [
            self.plan(segment, {k: n for (t, k), n in times.items() if t == segment}, step)
            for segment in range(len(nothing))
        ]
        short = [plan["short"] for plan in plans]
        if any(short):
            self.short = short
            return found, nothing, nothing
        fresh, gone = [], []
        for segment, plan in enumerate(plans):
            news, lost = self.carry_out(segment, plan, step)
            fresh.append(news)
            gone.append(lost)
        rows = []
        for key, segment in zip(ids, segments, strict=True):
            if segment < 0:
                rows.append(self.s.rows)
            else:
                held = self.rows[segment].get(key)
                rows.append(held.place if held else self.s.segments[segment].unknown)
        return rows, fresh, gone

    def plan(self, segment: int, times: dict[int, int], step: int) -> dict:
        """What will happen to a segment; changes nothing."""
        one, rows, waiting = self.s.segments[segment], self.rows[segment], self.waiting[segment]
        used, returned, asking, asking_waiting, counted = [], [], [], [], {}
        for key, count in times.items():
            if key in rows:
                (returned if self.expired(segment, rows[key], step) else used).append(key)
                continue
            seen = min(count + (waiting[key].count if key in waiting else 0), MOST_COUNTED)
            counted[key] = seen
            draw = mix64_of(key ^ mix64_of(step ^ one.seed))
            if seen >= one.admit and (one.chance == 0 or draw < one.chance):
                asking.append(key)
            elif one.admit > 1 and key not in waiting:
                asking_waiting.append(key)
        spared = set(times)
        can_expire = one.expire > 0 and step >= self.quiet[segment]
        leaving, quiet = [], self.quiet[segment]
        missing = len(asking) - len(self.free[segment])
        if missing > 0 and (one.policy != NONE or can_expire):
            able = {
                key: held
                for key, held in rows.items()
                if key not in spared and held.last != step and (one.policy != NONE or self.expired(segment, held, step))
            }
            lot = max(missing, -(-one.rows // 100))
            leaving = sorted(able, key=lambda key: self.order(segment, key, able[key], step))[:lot]
            if one.policy == NONE and len(able) <= lot:
                lasts = [step if key in spared else held.last for key, held in rows.items() if key not in leaving]
                quiet = min(min([step, *lasts]) + one.expire + 1, NEVER)
        can = len(self.free[segment]) + len(leaving)
        waiting_leaving = []
        pool = len(self.s.segments) + segment
        missing = len(asking_waiting) - len(self.free[pool])
        if missing > 0:
            able = {key: held for key, held in waiting.items() if key not in spared and held.last != step}
            lot = max(missing, -(-one.waiting // 100))
            waiting_leaving = sorted(able, key=lambda key: (able[key].last, mix64_of(key)))[:lot]
        return {
            "short": max(0, len(asking) - can) if one.policy != NONE else 0,
            "times": times,
            "used": used,
            "returned": returned,
            "asking": asking,
            "asking_waiting": asking_waiting,
            "counted": counted,
            "leaving": leaving,
            "waiting_leaving": waiting_leaving,
            "quiet": quiet,
        }

    def order(self, segment: int, key: int, held: Held, step: int) -> tuple[float, int, int]:
        policy = self.s.segments[segment].policy
        if policy < LFU or self.expired(segment, held, step):
            return 0, held.last, mix64_of(key)
        by_age = policy == DISTANCE_LFU
        seldom = np.float32(held.count) / np.float32(step - held.last + 1) if by_age else held.count
        return seldom, held.last, mix64_of(key)

    def carry_out(self, segment: int, plan: dict, step: int):
        one, rows, waiting = self.s.segments[segment], self.rows[segment], self.waiting[segment]
        pool, totals, times = len(self.s.segments) + segment, self.totals[segment], plan["times"]
        lfu = one.policy >= LFU
        for key in plan["used"] + plan["returned"]:
            before = rows[key].count if key in plan["used"] else 0
            rows[key].last, rows[key].count = step, min(before + times[key], MOST_COUNTED) if lfu else 0
        self.quiet[segment] = plan["quiet"]
        gone = sorted((rows.pop(key).place, key) for key in plan["leaving"])
        self.free[segment] += [place for place, _ in reversed(gone)]
        self.free[pool] += sorted((waiting.pop(key).place for key in plan["waiting_leaving"]), reverse=True)
        fresh, left = [], []
        refused = 0
        for key in plan["asking"]:
            if not self.free[segment]:
                refused += 1
                continue
            row = self.free[segment].pop()
            rows[key] = Held(row, step, plan["counted"][key] if lfu else 0)
            fresh.append((row, key))
            if key in waiting:
                left.append(waiting.pop(key).place)
        for key in times:
            if key in waiting:
                waiting[key].last, waiting[key].count = step, plan["counted"][key]
        forgotten = len(plan["waiting_leaving"])
        for key in plan["asking_waiting"]:
            if not self.free[pool]:
                forgotten += 1
                continue
            waiting[key] = Held(self.free[pool].pop(), step, plan["counted"][key])
        self.free[pool] += left
        amounts = (len(fresh), len(gone), len(plan["returned"]), refused, forgotten)
        for name, amount in zip(TOTALS, amounts, strict=True):
            totals[name] += amount
        fresh += [(rows[key].place, key) for key in plan["returned"]]
        return fresh, gone
