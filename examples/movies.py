"""Generate data of MovieLens' shape, train two towers on it, export them with an index, and write a page to look at it.

python examples/movies.py [FOLDER] [FIELD=VALUE ...]

Each user likes two genres, and watches a movie of them nine times out of ten. FOLDER gets the views in
``train.parquet`` and ``evaluate.parquet``, the catalog ``movies.parquet``, the run ``model``, ``exported``,
and the files of the page in ``page``.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config, runs

USERS, MOVIES, WATCHED, BEFORE = 600, 400, 30, 10
GENRES = ("action", "animation", "comedy", "crime", "documentary", "drama", "horror", "romance")


def generate(folder: Path) -> None:
    """Write the data; the last movie of each user is there to evaluate."""
    rng = np.random.default_rng(0)
    genre = rng.integers(0, len(GENRES), MOVIES)
    titles = [f"{GENRES[own].capitalize()} no. {movie}" for movie, own in enumerate(genre)]
    rows, users = {"train": [], "evaluate": []}, {}
    for user in range(USERS):
        liked = np.flatnonzero(np.isin(genre, rng.choice(len(GENRES), 2, replace=False)))
        others = np.setdiff1d(np.arange(MOVIES), liked)
        seen = [int(rng.choice(liked if rng.random() < 0.9 else others)) for _ in range(WATCHED)]
        for time in range(3, WATCHED):
            row = {"user": user, "history": seen[max(0, time - BEFORE) : time], "movie": seen[time]}
            row |= {"genre": GENRES[genre[seen[time]]], "watched": 1}
            rows["evaluate" if time == WATCHED - 1 else "train"].append(row)
        users[user] = seen[-BEFORE:]
    (folder / "page").mkdir(parents=True, exist_ok=True)
    for part, held in rows.items():
        pq.write_table(pa.Table.from_pylist(held), folder / f"{part}.parquet")
    names = [GENRES[own] for own in genre]
    pq.write_table(pa.table({"movie": range(MOVIES), "title": titles, "genre": names}), folder / "movies.parquet")
    (folder / "page" / "data.json").write_text(json.dumps({"titles": titles, "genres": names, "histories": users}))
    shutil.copy(Path(__file__).with_name("movies.html"), folder / "page" / "index.html")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="build/movies", help="build/movies unless given")
    options, overrides = parser.parse_known_args()
    folder = Path(options.folder)
    generate(folder)
    paths = [f"data.{part}.path={folder / part}.parquet" for part in ("train", "evaluate")]
    loaded = config.load(Path(__file__).with_name("movies.yaml"), [*paths, *overrides])
    run = runs.train(loaded, folder / "model", overwrite=True)
    index = run.item_index(folder / "movies.parquet", attributes=["title", "genre"])
    run.export(folder / "exported", index=index, overwrite=True)
    print(f"sparrow serve {folder / 'exported'} --page {folder / 'page'}  # then open http://127.0.0.1:8080/page/")


if __name__ == "__main__":
    main()
