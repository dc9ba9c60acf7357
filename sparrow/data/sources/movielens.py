"""MovieLens as GroupLens publishes it: 100K, 1M, and later ones (10M has 1M's format, 20M, 25M and 32M have CSV)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.errors import DataError
from sparrow.data.sources.base import BadRows, Reader, ReaderOver, Rows, Source, check_columns, register_source
from sparrow.data.sources.text import Csv
from sparrow.files import at
from sparrow.kernels.feed import Encoded, EncodedText

# fmt: off
GENRES_100K: Final = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)
# fmt: on

RATINGS: Final = ("user_id", "movie_id", "rating", "timestamp")
MOVIES: Final = ("title", "genres")
USERS: Final = ("gender", "age", "occupation", "zip_code")


@dataclasses.dataclass(frozen=True)
class Version:
    """The files and separators of one version."""

    ratings: str
    movies: str
    users: str | None
    separators: tuple[str, str, str]  # of ratings, movies, users
    encoding: str
    header: bool
    movie_columns: tuple[str, ...]
    user_columns: tuple[str, ...] = ()


VERSIONS: Final = (
    Version(
        *("u.data", "u.item", "u.user", ("\t", "|", "|"), "latin1", False),
        movie_columns=("movie_id", "title", "released", "video_released", "url", *GENRES_100K),
        user_columns=("user_id", "age", "gender", "occupation", "zip_code"),
    ),
    Version(
        *("ratings.dat", "movies.dat", "users.dat", ("::", "::", "::"), "latin1", False),
        movie_columns=("movie_id", *MOVIES),
        user_columns=("user_id", *USERS),
    ),
    Version("ratings.csv", "movies.csv", None, (",", ",", ","), "utf8", True, ("movie_id", *MOVIES)),
)


@register_source("movielens")
@dataclasses.dataclass(frozen=True)
class MovieLens(Source):
    """Ratings, each with its movie and, where the version has them, its user.

    Columns: user_id, movie_id, rating, timestamp, title, genres (separated by "|"), and in 100K and 1M also gender,
    age, occupation, zip_code.

    Attributes:
      path: the unpacked folder, such as "ml-1m".
      chunk_bytes: the bytes to convert at a time, and the unit of shuffling.
    """

    path: str
    chunk_bytes: int = 2**20

    @property
    def layout(self) -> Version:
        """The version, recognized by its files."""
        if not at(self.path).is_dir():
            raise DataError("there is no such folder; name the folder that MovieLens was unpacked to", self.path)
        for layout in VERSIONS:
            if (at(self.path) / layout.ratings).is_file():
                return layout
        names = ", ".join(layout.ratings for layout in VERSIONS)
        raise DataError(f"the folder holds none of {names}; name the folder that MovieLens was unpacked to", self.path)

    def column_names(self) -> list[str]:
        layout = self.layout
        has_users = layout.users is not None and (at(self.path) / layout.users).is_file()
        return [*RATINGS, *MOVIES, *(USERS if has_users else ())]

    def open(self, columns: Sequence[str]) -> Reader:
        """Read movies and users; ratings are streamed."""
        check_columns(self.path, columns, self.column_names())
        layout, sides = self.layout, []
        if any(column in MOVIES for column in columns):
            movies = self._side(layout.movies, layout.movie_columns, layout.separators[1])
            sides.append(Side("movie_id", layout.movies, _with_genres(movies)))
        if layout.users is not None and any(column in USERS for column in columns):
            users = self._side(layout.users, layout.user_columns, layout.separators[2])
            sides.append(Side("user_id", layout.users, users))
        needed = list(dict.fromkeys([*(c for c in columns if c in RATINGS), *(side.key for side in sides)]))
        ratings = self._text(layout.ratings, RATINGS, layout.separators[0]).open(needed)
        return JoinedReader(ratings, sides, list(columns))

    def _text(self, file: str, columns: tuple[str, ...], separator: str) -> Csv:
        layout, path = self.layout, str(at(self.path) / file)
        quote = '"' if layout.header else None
        return Csv(path, columns, separator, layout.header, quote, layout.encoding, chunk_bytes=self.chunk_bytes)

    def _side(self, file: str, columns: tuple[str, ...], separator: str) -> Any:
        reader = self._text(file, columns, separator).open(columns)
        return pa.concat_tables(reader.tables())


@dataclasses.dataclass(frozen=True)
class Side:
    """A small table that ratings look up by a key."""

    key: str
    file: str
    table: Any


class JoinedReader(ReaderOver):
    """Ratings with the columns of their movies and users."""

    def __init__(self, ratings: Reader, sides: Sequence[Side], columns: list[str]) -> None:
        super().__init__(ratings)
        self._sides, self._columns = sides, columns
        self.schemas = [(file, dict.fromkeys(columns, pa.string())) for file, _ in ratings.schemas]

    def fetch(self, chunk: int) -> Encoded | EncodedText | None:
        return None if self._sides else self.inner.fetch(chunk)

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """Return ratings, joined; one of an unknown movie or user is a malformed row."""
        rows = self.inner.read(chunk, bad_rows)
        places = [pc.index_in(rows.table[s.key], value_set=s.table[s.key].combine_chunks()) for s in self._sides]
        lost = [own.is_null().to_numpy() for own in places]

        def side_of(row: int) -> Side:
            return next(side for side, own in zip(self._sides, lost, strict=True) if own[row])

        def why(row: int) -> str:
            side = side_of(row)
            return f"{rows.table[side.key][row].as_py()!r} is not in {side.file}"

        bad = np.logical_or.reduce([np.zeros(rows.table.num_rows, np.bool_), *lost])
        kept = rows.without(bad, why, lambda row: side_of(row).key, bad_rows)
        table = kept.table
        for side, own in zip(self._sides, places, strict=True):
            for column in set(self._columns) & set(side.table.column_names) - {side.key}:
                table = table.append_column(column, side.table[column].take(own.filter(pa.array(~bad))))
        return dataclasses.replace(kept, table=table.select(self._columns))


def _with_genres(movies: Any) -> Any:
    """Return the movies with the names of genres joined; 100K has a column of 0 or 1 per genre."""
    if "genres" in movies.column_names:
        return movies
    marks = [pc.if_else(pc.equal(movies[g].fill_null("0"), pa.scalar("1")), pa.scalar(g), None) for g in GENRES_100K]
    return movies.append_column("genres", pc.binary_join_element_wise(*marks, "|", null_handling="skip"))
