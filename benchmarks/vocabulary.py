"""Cost follows the batch, not the vocabulary: the same batch on a table with 100 times the rows.

    python benchmarks/vocabulary.py [--backend native]

Two forms, interleaved in one run: "same ids", the very same batch, and "spread", its ids multiplied by 100, so that
they lie all over the larger table (as many distinct rows, but in memory that no cache has seen).
"""

import argparse
import statistics
import time

import jax
import numpy as np

import sparrow as sp

DIM, BATCH, IDS = 16, 4096, 8


class Side:
    """A jitted, donated step over one table, with its state, batches and times."""

    def __init__(self, rows: int, ids: list[np.ndarray], backend: str) -> None:
        table = sp.TableSpec(
            name="t",
            vocabulary_size=rows,
            embedding_dim=DIM,
            optimizer=sp.rules.RowwiseAdagrad(0.05),
            initializer=jax.nn.initializers.zeros,
        )
        emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)], backend=backend)

        def step(state, batch):
            acts = emb.lookup(state, batch)
            return emb.update(state, batch, {"f": acts["f"] + 1.0})

        self.step = jax.jit(step, donate_argnums=0)
        self.batches = [emb.pack({"f": batch}) for batch in ids]
        self.state = jax.block_until_ready(emb.init(jax.random.key(0)))
        self.times: list[float] = []

    def run(self, repeat: int) -> None:
        began = time.perf_counter()
        self.state = jax.block_until_ready(self.step(self.state, self.batches[repeat % len(self.batches)]))
        self.times.append(time.perf_counter() - began)

    def median(self) -> float:
        return statistics.median(self.times[8:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=60)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, options.rows, (BATCH, IDS)) for _ in range(8)]
    spread = [100 * batch for batch in ids]
    small = Side(options.rows, ids, options.backend)
    large = Side(100 * options.rows, ids, options.backend)
    wide = Side(100 * options.rows, spread, options.backend)
    for repeat in range(options.repeats + 8):
        for side in (small, large, wide):
            side.run(repeat)
    base = small.median()
    print(f"{options.rows:,} rows: {1e3 * base:.2f} ms a step")
    for name, side in (("same ids", large), ("spread", wide)):
        ratio = side.median() / base
        print(f"{100 * options.rows:,} rows, {name}: {1e3 * side.median():.2f} ms, {ratio:.2f} times")


if __name__ == "__main__":
    main()
