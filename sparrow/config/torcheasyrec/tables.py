"""Tables of features: from ids to rows (``num_buckets``, vocabularies, ``zch``, ``dynamicemb``), and their options.

With ``zch`` and ``dynamicemb`` ids get a row in the step that admits them, where ZCH collects them for
``eviction_interval`` steps; rows are given to others one by one, when they are needed. So ``eviction_interval``,
``init_capacity_per_rank`` and ``counter_bucket_capacity``, which set how much work is done at a time, have nothing to
set here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from sparrow.config.building.assemble import WIDE
from sparrow.config.sections.model import TableOptions
from sparrow.config.sections.train import TableOptimizer
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.data import DynamicRows, Feature
from sparrow.embedding import Constant, HostMemory, Initializer, Normal, Uniform
from sparrow.rules import SGD

_DTYPES: Final[Mapping[str, Any]] = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
_OF_TABLE: Final = ("trainable", "init_fn", "data_type")

# By torch's name: the arguments in order with torch's defaults, and the initializer that they make.
_INITIALIZERS: Final[Mapping[str, tuple[dict[str, float | None], Any]]] = {
    "uniform_": ({"a": 0.0, "b": 1.0}, Uniform),
    "normal_": ({"mean": 0.0, "std": 1.0}, Normal),
    "trunc_normal_": ({"mean": 0.0, "std": 1.0, "a": -2.0, "b": 2.0}, Normal),
    "constant_": ({"val": None}, Constant),
    "zeros_": ({}, lambda: Constant(0.0)),
    "ones_": ({}, lambda: Constant(1.0)),
}


def by_table(found: list[tuple[Feature, Block]]) -> dict[str, Block]:
    """Return the message with the options of each table; features that share a table must agree on them."""
    blocks: dict[str, Block] = {}
    for feature, block in found:
        if (use := feature.table_use) is None:
            block.note("the feature has no table", *_OF_TABLE)
            continue
        first = blocks.setdefault(use.table, block)
        for field in _OF_TABLE:
            if first[field] != block[field]:
                block.fail(f"differs between features that share the table '{use.table}'", field)
    return blocks


def frozen(tables: Mapping[str, Block], wide: Collection[str]) -> tuple[TableOptimizer, ...]:
    """Return the learning rate 0 for each table that is not trainable, and for its twin of a ``wide`` group."""
    fixed = [table for table, block in tables.items() if not block["trainable"]]
    names = tuple(re.escape(name) for table in fixed for name in (table, *[table + WIDE] * (table in wide)))
    return (TableOptimizer(tables=names, optimizer=SGD(0.0)),) if names else ()


def options(tables: Mapping[str, Block], wide: Collection[str], model: Block) -> tuple[TableOptions, ...]:
    """Return initial values, precision and memory of the tables, and of their twins for a ``wide`` group."""
    given = "wide_init_fn" in model.given
    of_twins = initializer(model, "wide_init_fn") if given else None
    made: dict[tuple[Initializer | None, Any, float | None], list[str]] = {}
    for table, block in tables.items():
        values, written = initial_values(block) or initializer(block, "init_fn"), block["data_type"]
        if written not in _DTYPES:
            block.fail(f"not supported: {written!r}; {', '.join(_DTYPES)} are", "data_type")
        dtype, cache = _DTYPES[written], cached_share(block)
        made.setdefault((values, dtype, cache), []).append(table)
        if table in wide:
            made.setdefault((of_twins if given else values, dtype, cache), []).append(table + WIDE)
    made.pop((None, "float32", None), None)
    return tuple(
        TableOptions(
            tables=tuple(map(re.escape, names)),
            initializer=values,
            dtype=dtype,
            memory=None if cache is None else HostMemory(cache=cache),
        )
        for (values, dtype, cache), names in made.items()
    )


def initializer(block: Block, field: str) -> Initializer | None:
    """Return the initializer of a function of torch with arguments, such as ``nn.init.uniform_,a=-0.01,b=0.01``."""
    written: str | None = block[field]
    if written is None:
        return None
    name, *arguments = (part.strip() for part in written.split(","))
    function = name.removeprefix("torch.").removeprefix("nn.init.")
    if function not in _INITIALIZERS or function == name:
        names = ", ".join(f"nn.init.{name}" for name in _INITIALIZERS)
        block.fail(f"not supported: {written!r}; the functions are {names}", field)
    known, make = _INITIALIZERS[function]
    values = dict(known)
    for place, argument in enumerate(arguments):
        key, is_named, value = argument.rpartition("=")
        key = key.strip() if is_named else list(known)[place] if place < len(known) else ""
        if key not in known:
            block.fail(f"{name} takes {', '.join(known) or 'no arguments'}, got {argument!r}", field)
        try:
            values[key] = float(value)
        except ValueError:
            block.fail(f"{key} must be a number, got {value!r}", field)
    if None in values.values():
        block.fail(f"{name} needs {', '.join(known)}", field)
    try:
        made: Initializer = make(*values.values())
    except ValueError as error:
        block.fail(str(error), field)
    return made


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
    field = "threshold_filtering_func"
    written: str | None = block[field]
    if written is None:
        return 1
    plain = re.sub(r"\s", "", written)
    counted = re.fullmatch(r"lambda(\w+):\(\1(>=?)(\d+),\d+\)", plain)
    if counted is not None:
        block.differ("there ids are counted for eviction_interval steps; here until they have a row", field)
        return max(int(counted[3]) + (counted[2] == ">"), 1)
    chance = r"lambda(\w+):probabilistic_threshold_filter\(\1(?:,(?:per_id_probability=)?([\d.e-]+))?\)"
    drawn = re.fullmatch(chance, plain)
    if drawn is not None:
        block.differ("there each occurrence has the chance; here each step with the id", field)
        return float(drawn[2] or 0.01)
    averages = "average_threshold" in plain or "dynamic_threshold" in plain
    why = "its threshold follows the counts of one eviction_interval, and none are kept here; " if averages else ""
    block.fail(
        f"not supported: {written!r}; {why}ids are admitted by a count, lambda x: (x > 10, 10), or by chance, "
        "lambda x: probabilistic_threshold_filter(x, 0.01)",
        field,
    )


def _dynamicemb(block: Block) -> DynamicRows:
    """Return dynamicemb's: ids without a row read zeros."""
    score, admission = block["score_strategy"], block["frequency_admission_strategy"]
    if score not in _SCORES:
        why = "; its scores come from code of yours" if score == "CUSTOMIZED" else ""
        block.fail(f"not supported: {score!r}{why}; {', '.join(_SCORES)} are", "score_strategy")
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
        problem = f"must be above 0: a step needs the rows of its batch on the device, got {share:g}"
        block.fail(problem, "cache_load_factor")
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
    makers: dict[str, tuple[Any, ...]] = {
        "UNIFORM": (Uniform, low, high),
        "NORMAL": (Normal, args["mean"], spread),
        "TRUNCATED_NORMAL": (Normal, args["mean"], spread, low, high),
        "CONSTANT": (Constant, args["value"]),
    }
    if args["mode"] not in makers:
        args.fail(f"not supported: {args['mode']!r}; {', '.join(makers)} are", "mode")
    made: Initializer = args.make(*makers[args["mode"]])
    return made


SIZES: Final = ("num_buckets", "hash_bucket_size", "vocab_list", "vocab_dict", "vocab_file")


def has_ids(block: Block) -> bool:
    """Return whether a feature that may give ids or numbers gives ids."""
    return any(field in block for field in (*SIZES, *FIELDS))


def size_field(block: Block) -> str:
    """Return the one field that gives the number of rows, or raise an error."""
    if block.get("value_dim") not in (None, 0, 1):
        block.differ("a row has the ids that the data has", "value_dim")
    if not block["embedding_dim"]:
        block.fail("is required: the dim of the feature's table, at least 1", "embedding_dim")
    sizes = [field for field in (*SIZES, *FIELDS) if field in block]
    dynamic = [field for field in sizes if field in FIELDS]
    if dynamic and len(sizes) > 1:  # TorchEasyRec looks at zch and dynamicemb first
        block.note(f"{dynamic[0]} gives the rows", *(field for field in sizes if field != dynamic[0]))
        sizes = dynamic
    if len(sizes) != 1:
        given = ", ".join(sizes) or "none"
        block.fail(f"give one of {', '.join((*SIZES, FIELDS[0]))} and {FIELDS[1]}, got {given}")
    return sizes[0]


def rows(block: Block, otherwise: str | None = None) -> dict[str, Any]:
    """Return the fields of our features that map ids to rows, and those of their table.

    ``otherwise``: the id of a missing value where the file gives none.
    """
    field = size_field(block)
    if field in FIELDS:
        fields: dict[str, Any] = {"dynamic": dynamic_rows(block)}
    elif field in ("num_buckets", "hash_bucket_size"):
        fields = {field: block[field]}
        block.note(f"{field} knows every id", "default_bucketize_value")
    else:
        fields = _vocabulary(block, field, block["default_value"] or otherwise)
    kind: Any = int if "num_buckets" in block else str
    return {"default": block.quoted("default_value", kind, otherwise), **fields, **table_of(block)}


def table_of(block: Block) -> dict[str, Any]:
    """Return the dim and the name of a feature's table."""
    return {"embedding_dim": block["embedding_dim"], "table": block["embedding_name"]}


def _vocabulary(block: Block, field: str, default: str | None) -> dict[str, Any]:
    """Return the rows of words. Row 0 is of missing words and row 1 of unknown ones, unless a row of these is given."""
    if field == "vocab_file":
        unknown = {"unknown": block["default_bucketize_value"]} if "default_bucketize_value" in block else {}
        return {"vocabulary": block[field], **unknown, **_has_rows(block[field])}
    if field == "vocab_list":
        first = 0 if "default_bucketize_value" in block else 2
        words = {word: first + place for place, word in enumerate(block[field])}
    else:
        words = {entry["key"]: entry["value"] for entry in block[field]}
    if "default_bucketize_value" in block:
        return {"vocabulary": words, "unknown": block["default_bucketize_value"]}
    missing = default or ""
    if not missing and all(word.removeprefix("-").isdecimal() for word in words):  # the column may hold integers
        return {"vocabulary": words, "unknown": 1}
    words.setdefault(missing, 0)
    return {"vocabulary": words, "unknown": 1, "default": missing}


def _has_rows(path: str) -> dict[str, Any]:
    """Return whether each line of a vocabulary is a word and its row, where the file can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return {"vocabulary_has_rows": len(file.readline().split()) > 1}
    except (OSError, UnicodeDecodeError):
        return {}
