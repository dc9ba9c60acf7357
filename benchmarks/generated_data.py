"""Generated rows and ids."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sparrow as sp
from benchmarks.generated_text import check, flipped
from sparrow.data import ComboFeature, Converter, Csv, IdFeature, Parquet, RawFeature, SequenceFeature, Tables
from sparrow.feed import Batching, Pipeline

ROWS = 20
SCALARS = (
    None, 0, 1, 7, -1, 19, 20, 2**31, 2**63 - 1, -(2**63), 0.5, float("nan"), float("inf"), -0.0, "", "0", "7", "-1",
    "a",
    "a|b", "|", "7:0.5", ":", "1e3", "∞", "\x00", " 7", "7 ", "99999999999999999999", True, False,
)  # fmt: skip
KINDS = (
    pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
    pa.large_string(),
    pa.bool_(), pa.binary(), pa.null(), pa.date32(), pa.timestamp("us"), pa.decimal128(9, 2), pa.list_(pa.int64()),
    pa.list_(pa.string()), pa.list_(pa.float32()), pa.large_list(pa.int32()), pa.list_(pa.list_(pa.int64())),
    pa.list_(pa.int32(), 2), pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64()),
    pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32()),
)  # fmt: skip
COLUMNS = ("a", "b", "label")


def features(rng):
    """Return one or two features with random options that fit together as often as not."""

    def ids(name, column, kind):
        options = {"embedding_dim": 4, "column": column}
        options |= rng.choice(({"num_buckets": 20}, {"hash_bucket_size": 20}, {"vocabulary": ("a", "b", "7")}))
        options |= rng.choice(({}, {"separator": "|"}, {"default": rng.choice((0, "a", 7, -5))}, {"as_integer": True}))
        if "hash_bucket_size" not in options:
            options |= rng.choice(({}, {"unknown": "row"}, {"unknown": "empty"}, {"unknown": "error"}))
        if kind is IdFeature:
            options |= rng.choice(({}, {"weight_separator": ":"}, {"weight_column": "b"}, {"pooling": "mean"}))
        else:
            options |= {"max_length": 3}
        return kind(name, **options)

    made = [ids("first", "a", rng.choice((IdFeature, IdFeature, SequenceFeature)))]
    if rng.random() < 0.5:
        made.append(
            RawFeature(
                "second",
                column="b",
                **rng.choice(
                    (
                        {},
                        {"dim": 2},
                        {"separator": "|"},
                        {"missing": None},
                        {"boundaries": (0.0, 1.0), "embedding_dim": 2},
                    )
                ),
            )
        )
    elif rng.random() < 0.3:
        made.append(ComboFeature("third", cross=("a", "b"), hash_bucket_size=20, embedding_dim=4))
    return made


def read(rng, source):
    """Return whether the source was refused; all its rows are converted."""
    try:
        made = features(rng)
        size, labels = rng.choice((1, 7, 64)), ["label"] if rng.random() < 0.5 else []
        shuffle_rows, bad_rows = rng.choice((0, 10)), rng.choice(("skip", "skip", "skip", "skip", "error"))
        batching = Batching(size, shuffle_rows=shuffle_rows, bad_rows=bad_rows, ahead=0)
        pipeline = Pipeline(source, Converter(made, labels), batching)
        for batch in pipeline:
            assert len(batch) > 0
    except ValueError as error:  # a mistake in the data or in a feature
        check(error)
        return True
    return False


def cell(rng, kind):
    """Return a value that fits the Arrow type as often as not."""
    if rng.random() < 0.1:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [cell(rng, kind.value_type) for _ in range(rng.choice((0, 1, 2, 2, 5)))]
    if pa.types.is_dictionary(kind):
        return cell(rng, kind.value_type)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return datetime.datetime(2020, 1, rng.randint(1, 28))
    if pa.types.is_decimal(kind):
        return decimal.Decimal(rng.choice(("1.5", "0", "-7.25")))
    if pa.types.is_struct(kind):
        return {"a": 1}
    if pa.types.is_map(kind):
        return [("k", 1)]
    if pa.types.is_binary(kind):
        return rng.randbytes(3)
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_null(kind):
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return rng.choice([x for x in SCALARS if isinstance(x, str)])
    numbers = [x for x in SCALARS if isinstance(x, int | float) and not isinstance(x, bool)]
    return rng.choice(numbers) if pa.types.is_floating(kind) else rng.choice([x for x in numbers if isinstance(x, int)])


def small(rng, kind):
    """Return a value that most features take."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [small(rng, kind.value_type) for _ in range(2)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str(rng.randint(0, 19))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return rng.randint(0, 19)
    return cell(rng, kind)


def column(rng):
    """Return values of one Arrow type, four in five of which are small integers, as numbers or as strings."""
    kind = rng.choice(KINDS if rng.random() < 0.5 else (pa.int64(), pa.string(), pa.float64(), pa.list_(pa.int64())))
    values = [cell(rng, kind) if rng.random() < 0.2 else small(rng, kind) for _ in range(ROWS)]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        integers = pa.array([None if x is None else rng.randint(0, 21) for x in values], pa.int64())
        try:
            return integers.cast(kind)
        except pa.ArrowException:
            return integers


class TableRows:
    """Rows of Arrow tables of all types."""

    name = "rows"

    def __init__(self, folder):
        pass

    def feed(self, rng):
        table = pa.table({name: column(rng) for name in COLUMNS[: rng.choice((2, 3, 3))]})
        return ROWS, read(rng, Tables(table, chunk_rows=rng.choice((3, 100))))


class ParquetRows:
    """Rows of Parquet files, one in four of which is damaged."""

    name = "parquet"

    def __init__(self, folder):
        self.path = folder / "rows.parquet"

    def feed(self, rng):
        table = pa.table({name: column(rng) for name in COLUMNS})
        try:
            pq.write_table(table, self.path, row_group_size=rng.choice((5, 100)))
        except (pa.ArrowException, OSError):  # types that the format does not know
            return 1, True
        if rng.random() < 0.25:
            self.path.write_bytes(flipped(rng, self.path.read_bytes()))
        return ROWS, read(rng, Parquet(str(self.path)))


class CsvRows:
    """Lines of text files."""

    name = "csv"

    def __init__(self, folder):
        self.path = folder / "rows.csv"

    def feed(self, rng):
        separator = rng.choice((",", ",", "\t", "::"))
        texts, usual = [str(x) for x in SCALARS if x is not None], [str(x) for x in range(20)]
        pick = lambda: rng.choice(texts if rng.random() < 0.1 else usual)  # noqa: E731
        lines = [separator.join(pick() for _ in range(rng.choice((3, 3, 3, 3, 2, 4)))) for _ in range(ROWS)]
        data = "\n".join([separator.join(COLUMNS), *lines]).encode("utf-8", "surrogatepass")
        if rng.random() < 0.3:
            data = flipped(rng, data)
        self.path.write_bytes(data)
        options = {"separator": separator, "chunk_bytes": rng.choice((20, 2**20))}
        options |= (
            {"quote": None} if len(separator) > 1 else rng.choice(({}, {"quote": None}, {"newlines_in_values": True}))
        )
        return ROWS, read(rng, Csv(str(self.path), **options))


class Ids:
    """Ids and weights to look up, as `sparrow.Embedder.pack` takes them."""

    name = "ids"

    def __init__(self, folder):
        specs = [
            sp.TableSpec(name=name, vocabulary_size=20, embedding_dim=4, optimizer=sp.rules.SGD(0.1), combiner="mean")
            for name in ("t", "u")
        ]
        self.embedder = sp.Embedder([sp.FeatureSpec(name=f"f{i}", table_spec=spec) for i, spec in enumerate(specs)])

    def feed(self, rng):
        inputs = {f"f{i}": self._one(rng) for i in range(2)}
        if rng.random() < 0.1:
            inputs |= {rng.choice(("f9", "", "f0 ")): [1]}
        if rng.random() < 0.05:
            inputs.pop("f1")
        try:
            self.embedder.pack(inputs)
        except (ValueError, TypeError) as error:
            check(error)
            return 1, 1
        return 1, 0

    def _one(self, rng):
        count = rng.choice((0, 1, 3, 3, 3))
        odd = (0, 1, 5, 19, 20, -1, 2**31, 2**63 - 1, -(2**40))
        numbers = [rng.choice(odd) if rng.random() < 0.2 else rng.randint(0, 19) for _ in range(count)]
        how = rng.randrange(9)
        if how == 0:
            return numbers
        if how == 1:
            return np.array(numbers).astype(rng.choice((np.int64, np.float32, np.uint64, object, bool, "U5")))
        if how == 2:
            return [numbers[:i] for i in range(3)]
        if how == 3:
            return rng.choice((None, 7, "ids", {"a": 1}, [None], [[1], None], [["a"]], b"x", object(), [[[1]]]))
        if how == 4:
            return np.zeros(rng.choice(((3, 2), (0, 2), (3, 0), (), (2, 2, 2))), rng.choice((np.int32, np.float64)))
        if how == 5:
            return pa.array([numbers, None, []]) if rng.random() < 0.5 else pa.array(numbers, pa.int64())
        offsets = sorted(rng.randint(0, max(count, 1)) for _ in range(2))
        offsets = [0, *offsets, count] if rng.random() < 0.7 else [rng.randint(-2, 9) for _ in range(rng.randint(0, 4))]
        weights = rng.choice(
            (None, None, [1.0] * count, [float("nan")] * count, [0.0] * count, [1.0], "w", [None] * count)
        )
        return sp.Ragged(
            rng.choice((numbers, np.array(numbers, np.int64))), rng.choice((offsets, np.array(offsets))), weights
        )
