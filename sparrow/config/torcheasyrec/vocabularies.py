"""``zch`` and ``dynamicemb``: vocabularies that admit and evict ids, as `sparrow.data.DynamicRows`.

Ids get a row in the step that admits them, where ZCH collects them for ``eviction_interval`` steps; rows are given to
others one by one, when they are needed. So ``eviction_interval``, ``init_capacity_per_rank`` and
``counter_bucket_capacity``, which set how much work is done at a time, have nothing to set here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.data import DynamicRows
from sparrow.embedding import Constant, Initializer, Normal, Uniform

FIELDS: Final = ("zch", "dynamicemb")
_SCORES: Final = {"STEP": "lru", "TIMESTAMP": "lru", "LFU": "lfu", "NO_EVICTION": "none"}


def dynamic_rows(feature: Block) -> DynamicRows:
    """Return the vocabulary of a feature that has one of `FIELDS`."""
    block: Block = feature["zch"] or feature["dynamicemb"]
    with block.locating():
        return _zch(block) if "zch" in feature else _dynamicemb(block)


def _zch(block: Block) -> DynamicRows:
    """Return ZCH's: ids without a row share one."""
    name, policy = block.choose("policy")
    if name == "distance_lfu" and policy["decay_exponent"] != 1.0:
        policy.fail("not supported: a count is divided by the steps since its last use; remove it", "decay_exponent")
    if name == "lru":
        policy.note("the order of last uses is the same whatever the exponent", "decay_exponent")
    else:
        block.differ("there a new id that was seen less than all others gets no row; here the lowest leaves", name)
    evict: Any = name
    return DynamicRows(rows=block["zch_size"], admit=_admission(block), evict=evict, unknown="row")


def _admission(block: Block) -> int | float:
    """Return how often an id must be seen, or its chance in a step; some of the functions of torch are known:

    ``lambda x: (x > 10, 10)`` and ``lambda x: probabilistic_threshold_filter(x, 0.01)``.
    """
    written: str | None = block["threshold_filtering_func"]
    if written is None:
        return 1
    plain = re.sub(r"\s", "", written)
    counted = re.fullmatch(r"lambda(\w+):\(\1(>=?)(\d+),\d+\)", plain)
    if counted is not None:
        block.differ(
            "there ids are counted for eviction_interval steps; here until they have a row", "threshold_filtering_func"
        )
        return max(int(counted[3]) + (counted[2] == ">"), 1)
    drawn = re.fullmatch(
        r"lambda(\w+):probabilistic_threshold_filter\(\1(?:,(?:per_id_probability=)?([\d.e-]+))?\)", plain
    )
    if drawn is not None:
        block.differ("there each occurrence has the chance; here each step with the id", "threshold_filtering_func")
        return float(drawn[2] or 0.01)
    block.fail(
        f"not supported: {written!r}; ids are admitted by a count, lambda x: (x > 10, 10), or by chance, "
        "lambda x: probabilistic_threshold_filter(x, 0.01)",
        "threshold_filtering_func",
    )


def _dynamicemb(block: Block) -> DynamicRows:
    """Return dynamicemb's: ids without a row read zeros."""
    score, admission = block["score_strategy"], block["frequency_admission_strategy"]
    if score not in _SCORES:
        block.fail(f"not supported: {score!r}; {', '.join(_SCORES)} are", "score_strategy")
    _refuse_unless_zeros(block, "eval_initializer_args")
    if admission is not None:
        _refuse_unless_zeros(admission, "initializer_args")
    return DynamicRows(
        rows=block["max_capacity"],
        admit=1 if admission is None else max(admission["threshold"], 1),
        evict=_SCORES[score],  # type: ignore[arg-type]
        unknown="zeros",
        waiting=None if admission is None else admission["counter_capacity"],
    )


def _refuse_unless_zeros(block: Block, field: str) -> None:
    given = block[field]
    if given is not None and (given["mode"] != "CONSTANT" or given["value"] != 0):
        block.fail("not supported: ids without a row read zeros; remove it", field)


def cached_share(feature: Block) -> float | None:
    """Return the share of the rows that ``cache_load_factor`` keeps on the device; None: all rows."""
    block: Block | None = feature.get("dynamicemb")
    if block is None or "cache_load_factor" not in block:
        return None
    share: float = block["cache_load_factor"]
    if share <= 0:
        block.fail(
            f"must be above 0: a step needs the rows of its batch on the device, got {share:g}", "cache_load_factor"
        )
    return share if share < 1 else None


def initial_values(feature: Block) -> Initializer | None:
    """Return the values that rows of ``dynamicemb`` start from; None: as every table."""
    if "dynamicemb" not in feature or "initializer_args" not in feature["dynamicemb"]:
        return None
    block: Block = feature["dynamicemb"]
    args: Block = block["initializer_args"]
    if "init_fn" in feature:
        args.fail("cannot be given together with init_fn; keep one", "mode")
    limit, std = 1 / math.sqrt(block["max_capacity"]), 1 / math.sqrt(feature["embedding_dim"])
    low = -limit if args["lower"] is None else args["lower"]
    high = limit if args["upper"] is None else args["upper"]
    spread = std if args["std_dev"] is None else args["std_dev"]
    made: dict[str, Callable[[], Initializer]] = {
        "UNIFORM": lambda: Uniform(low, high),
        "NORMAL": lambda: Normal(args["mean"], spread),
        "TRUNCATED_NORMAL": lambda: Normal(args["mean"], spread, low, high),
        "CONSTANT": lambda: Constant(args["value"]),
    }
    if args["mode"] not in made:
        args.fail(f"not supported: {args['mode']!r}; {', '.join(made)} are", "mode")
    with args.locating():
        return made[args["mode"]]()
