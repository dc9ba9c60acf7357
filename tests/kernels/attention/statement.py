"""Jagged attention in float64 NumPy, sequence by sequence and pair by pair: the judge of every backend."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """One attention; ``options`` are those of `jagged_attention`, without the arrays that follow from the others."""

    name: str
    lengths: tuple[int, ...]
    contexts: tuple[int, ...] | None = None
    candidates: tuple[int, ...] | None = None
    options: dict = dataclasses.field(default_factory=dict)
    position_buckets: int = 0
    time_buckets: int = 0
    dim: int = 8
    width: int = 8
    heads: int = 2

    def __str__(self):
        return self.name


MIXED = (5, 0, 1, 70, 12, 130)
FEW = {"contexts": (2, 0, 1, 3, 0, 2), "candidates": (2, 0, 0, 9, 12, 40)}
CASES = [
    Case("causal", MIXED),
    Case("odd", MIXED, dim=5, width=11, heads=3),
    Case("context", MIXED, contexts=FEW["contexts"]),
    Case("candidates", MIXED, **FEW),
    Case("near", MIXED, **FEW, options={"max_distance": 7}),
    Case("itself", MIXED, **FEW, options={"max_distance": 0}),
    Case("semi_local", MIXED, **FEW, options={"sla_k1": 4, "sla_k2": 3}),
    Case("newest", MIXED, **FEW, options={"sla_k1": 70}),
    Case("first", MIXED, **FEW, options={"sla_k2": 66}),
    Case("all", MIXED, contexts=MIXED),
    Case("biased", MIXED, candidates=FEW["candidates"], position_buckets=9),
    Case("timed", MIXED, **FEW, position_buckets=200, time_buckets=6, options={"time_unit": 3.0}),
    Case("log_timed", MIXED, time_buckets=4, options={"time_bucket_fn": "log", "max_distance": 60}),
    Case("wide", (5, 36), (1, 3), (0, 7), {"time_unit": 2**-10}, 90, 1100, dim=100, width=70, heads=1),
    Case("nothing", (0, 0)),
]


def arrays(case, seed=0, padding=3):
    """The arrays of a case in float64; tokens behind the last sequence are large, and without effect."""
    rng = np.random.default_rng(seed)
    tokens = sum(case.lengths) + padding
    made = {
        "q": rng.normal(size=(tokens, case.heads, case.dim)),
        "k": rng.normal(size=(tokens, case.heads, case.dim)),
        "v": rng.normal(size=(tokens, case.heads, case.width)),
    }
    for name, buckets in (("position_bias", case.position_buckets), ("time_bias", case.time_buckets)):
        if buckets:
            made[name] = rng.normal(size=buckets)
    if case.time_buckets:
        made["times"] = np.cumsum(rng.integers(0, 9, tokens)).astype(np.float64)
    for name in ("q", "k", "v"):
        made[name][tokens - padding :] = 1e3
    return made


def sees(i, j, length, context, candidates, options):
    end = length - candidates
    k1, k2 = options.get("sla_k1", 0), options.get("sla_k2", 0)
    if k1 or k2:
        if j >= end:
            return False
        return i >= end or (j <= i and (i - j < k1 or j < max(k2, context)))
    if i == j or (i < context and j < end):
        return True
    distance = place(i, context, end) - place(j, context, end)
    return 0 < distance <= options.get("max_distance", length)


def place(i, context, end):
    return min(max(i, context - 1), end)


def bucket(age, options, buckets):
    units = max(age, 0) / options.get("time_unit", 1.0)
    root = np.sqrt(units) if options.get("time_bucket_fn", "sqrt") == "sqrt" else np.log(max(units, 1))
    return min(int(root), buckets - 1)


def attention(case, score, alpha, scale, q, k, v, position_bias=None, time_bias=None, times=None):
    """(tokens, heads, width)."""
    out, start = np.zeros(v.shape), 0
    for s, length in enumerate(case.lengths):
        context = case.contexts[s] if case.contexts else 0
        candidates = case.candidates[s] if case.candidates else 0
        end = length - candidates
        for i in range(length):
            keys = [j for j in range(length) if sees(i, j, length, context, candidates, case.options)]
            if not keys:
                continue
            at = start + np.array(keys)
            scores = alpha * np.einsum("hd,jhd->jh", q[start + i], k[at])
            if position_bias is not None:
                first = 0 if case.options.get("sla_k1") or case.options.get("sla_k2") else context
                distance = [place(i, first, end) - place(j, first, end) for j in keys]
                scores += position_bias[np.clip(distance, 0, len(position_bias) - 1)][:, None]
            if time_bias is not None:
                ages = times[start + i] - times[at]
                scores += time_bias[[bucket(age, case.options, len(time_bias)) for age in ages]][:, None]
            if score == "silu":
                weights = scores / (1 + np.exp(-scores))
            else:
                weights = np.exp(scores - scores.max(axis=0))
                weights /= weights.sum(axis=0)
            out[start + i] = scale * np.einsum("jh,jhd->hd", weights, v[at])
        start += length
    return out
