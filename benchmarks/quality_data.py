"""The data sets of `quality.py`, with the splits of the papers whose figures are compared."""

from __future__ import annotations

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrow.data import Criteo, MovieLens, Source

CANDIDATES = 99
"""Items that a user never rated, beside the one held out."""


def table_of(source: Source, columns: list[str]) -> pa.Table:
    """Return all rows of a source."""
    reader = source.open(columns)
    return pa.concat_tables(reader.read(chunk, "error").table for chunk in range(reader.num_chunks))


def movielens(folder: pathlib.Path) -> pa.Table:
    """Return all ratings, with movies and users, ids and times as integers."""
    source = MovieLens(str(folder))
    table = table_of(source, source.column_names())
    for name in ("user_id", "movie_id", "timestamp"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.int64()))
    return table.set_column(table.column_names.index("rating"), "rating", table["rating"].cast(pa.float64()))


def split(table: pa.Table, out: pathlib.Path, seed: int) -> None:
    """Write 80 % of the rows, drawn at random, to train on, and 10 % to test on; the rest is for choosing options."""
    order = np.random.default_rng(seed).permutation(table.num_rows)
    train, valid = int(0.8 * table.num_rows), int(0.9 * table.num_rows)
    pq.write_table(table.take(order[:train]), out / "train.parquet")
    pq.write_table(table.take(order[valid:]), out / "test.parquet")


def ranking(folder: pathlib.Path, out: pathlib.Path, seed: int) -> None:
    """Write ratings as clicks: above 3 is a yes, below 3 a no, 3 is left out."""
    table = movielens(folder)
    table = table.filter(pc.not_equal(table["rating"], 3.0))
    label = pc.greater(table["rating"], 3.0).cast(pa.float32())
    split(table.append_column("label", label), out, seed)


def criteo(folder: pathlib.Path, out: pathlib.Path, seed: int) -> None:
    """Write the lines of train.txt, or of the public sample, as they are."""
    names = ("train.txt", "dac_sample.txt", "train.txt.gz", "dac_sample.txt.gz")
    file = next(folder / name for name in names if (folder / name).is_file())
    source = Criteo(str(file))
    table = table_of(source, source.column_names())
    split(table.set_column(0, "label", table["label"].cast(pa.float32())), out, seed)


def matching(folder: pathlib.Path, out: pathlib.Path, seed: int) -> None:
    """Write every rating as a choice: the newest of each user is held out, beside `CANDIDATES` items of no rating."""
    table = movielens(folder).sort_by([("user_id", "ascending"), ("timestamp", "ascending")])
    users, movies = table["user_id"].to_numpy(), table["movie_id"].to_numpy()
    is_last = np.append(users[1:] != users[:-1], True)
    plain = table.select(["user_id", "movie_id"]).append_column("label", pa.array(np.ones(len(users), np.float32)))
    pq.write_table(plain.filter(pa.array(~is_last)), out / "train.parquet")
    pq.write_table(plain.filter(pa.array(is_last)), out / "test.parquet")
    items, rng = np.unique(movies), np.random.default_rng(seed)
    ends = np.flatnonzero(is_last) + 1
    drawn = []
    for begin, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        free = np.setdiff1d(items, movies[begin:end])
        drawn.append(rng.choice(free, CANDIDATES, replace=len(free) < CANDIDATES))
    np.save(out / "candidates.npy", np.stack(drawn))
    every = pa.table({"user_id": np.full(len(items), users[0]), "movie_id": items})
    pq.write_table(every.append_column("label", pa.array(np.ones(len(items), np.float32))), out / "items.parquet")
