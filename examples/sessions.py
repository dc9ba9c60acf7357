"""Generate sessions of users and items, and train a config of this folder on them.

python examples/sessions.py dssm.yaml [FOLDER] [--rows 100000] [FIELD=VALUE ...]
python examples/sessions.py sasrec.yaml [FOLDER] [--rows 100000] [FIELD=VALUE ...]
python examples/sessions.py mmoe.yaml [FOLDER] [--rows 100000] [FIELD=VALUE ...]

A user has a taste, an item a character: the better they go together, the likelier a click, and a purchase after it.
``impressions.parquet`` holds the shown items, ``chosen.parquet`` only the clicked ones, for models that match; ``time``
counts the sessions.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrow import config, runs

USERS, ITEMS, CATEGORIES, TASTE = 500, 200, 10, 3
SHOWN = 10  # items in a session


def generate(folder: Path, rows: int, seed: int) -> None:
    """Write the impressions and the chosen items of one part of the data."""
    truth, rng = np.random.default_rng(0), np.random.default_rng([1, seed])
    tastes = truth.normal(size=(USERS, TASTE))
    centers = truth.normal(size=(CATEGORIES, TASTE))
    category_of = truth.integers(0, CATEGORIES, ITEMS)
    characters = centers[category_of] + 0.3 * truth.normal(size=(ITEMS, TASTE))
    price = truth.normal(size=ITEMS)

    session = np.repeat(np.arange(rows // SHOWN), SHOWN)
    user = rng.integers(0, USERS, rows // SHOWN)[session]
    item = rng.integers(0, ITEMS, len(session))
    match = (tastes[user] * characters[item]).sum(axis=1)
    click = rng.random(len(session)) < 1 / (1 + np.exp(1.5 - 1.5 * match))
    buy = click & (rng.random(len(session)) < 1 / (1 + np.exp(1.0 - match + price[item])))
    shown = pa.table(
        {
            "session": session,
            "time": session,
            "user": user,
            "item": item,
            "category": category_of[item],
            "price": price[item],
            "click": click.astype(np.int8),
            "buy": buy.astype(np.int8),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(shown, folder / "impressions.parquet", row_group_size=20_000)
    pq.write_table(shown.filter(pc.equal(shown["click"], 1)), folder / "chosen.parquet", row_group_size=20_000)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", choices=("dssm.yaml", "mmoe.yaml", "sasrec.yaml"))
    parser.add_argument("folder", nargs="?", default="build/sessions", help="build/sessions unless given")
    parser.add_argument("--rows", type=int, default=100_000)
    options, overrides = parser.parse_known_args()
    folder = Path(options.folder)
    generate(folder / "train", options.rows, seed=0)
    generate(folder / "evaluate", options.rows // 8, seed=1)
    file = "impressions.parquet" if options.config == "mmoe.yaml" else "chosen.parquet"
    parts = ("train",) if options.config == "sasrec.yaml" else ("train", "evaluate")
    paths = [f"data.{part}.path={folder / part / file}" for part in parts]
    loaded = config.load(Path(__file__).with_name(options.config), [*paths, *overrides])
    results = runs.train(loaded, folder / Path(options.config).stem, overwrite=True).results
    print(", ".join(f"{name} {value:.4f}" for name, value in results.items()))


if __name__ == "__main__":
    main()
