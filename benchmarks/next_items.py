"""Next items from histories: quality of SASRec and HSTU on data with known transitions, and speed.

    python benchmarks/next_items.py quality >> TABLE                # three seeds, SASRec and HSTU side by side
    python benchmarks/next_items.py quality --rate 0.001 --times --log log.parquet:user,item,time    # MovieLens
    python benchmarks/next_items.py epoch                           # of ml-1m's shape, dim 50, 2 layers, length 200
    python benchmarks/next_items.py turns --torch PATH/bin/python   # steps in turns with a padded SASRec in PyTorch

Of each user, the last event is judged, and the one before it decides when training stops. In generated data the next
item depends on the last two, by tables of a few likely items for each state, and at times on popularity alone; so a
count of transitions from the last item cannot know all of it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

USERS, ITEMS, EVENTS = 6040, 3416, 999_611
"""Of ml-1m, users and items with five events or more."""


def generated(seed: int, users: int, items: int, states: int = 8) -> dict[str, np.ndarray]:
    """Return a log: the next item is one of four after the last one, chosen by the kind of the one before."""
    rng = np.random.default_rng(seed)
    popularity = rng.zipf(1.3, items).clip(max=10_000).astype(float)
    popularity /= popularity.sum()
    following = rng.choice(items, (items, states, 2), p=popularity)
    kinds = rng.integers(0, states, items)
    length = rng.integers(6, 40, users)
    columns: dict[str, list[np.ndarray]] = {"user": [], "item": [], "time": []}
    for user in range(users):
        seen = list(rng.choice(items, 2, p=popularity))
        by_chance = rng.random(length[user])
        for chance in by_chance[2:]:
            likely = following[seen[-1], kinds[seen[-2]]]
            seen.append(
                int(likely[0] if chance < 0.5 else likely[1] if chance < 0.75 else rng.choice(items, p=popularity))
            )
        columns["user"].append(np.full(len(seen), user))
        columns["item"].append(np.array(seen))
        columns["time"].append(np.arange(len(seen)))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def logged(described: str) -> dict[str, np.ndarray]:
    """Return the log of a Parquet file, ``path:user,item,time``, in the order of users and times, items numbered.

    Users of fewer than five events are left out.
    """
    path, names = described.rsplit(":", 1)
    user, item, when = (pq.read_table(path, columns=[name])[name].to_numpy() for name in names.split(","))
    _, person, events = np.unique(user, return_inverse=True, return_counts=True)
    user, item, when = (column[events[person] >= 5] for column in (user, item, when))
    order = np.lexsort((when, user))
    (_, users), (_, items) = (np.unique(column[order], return_inverse=True) for column in (user, item))
    return {"user": users, "item": items, "time": (when[order] - when.min()).astype(np.float64)}


def counted(log: dict[str, np.ndarray], items: int, held: int, top: int = 10) -> dict[str, float]:
    """Return NDCG of the last event of each user by counts of all but the ``held`` last: of items, of transitions.

    Among items of one score the place is the middle one; items that never followed are in the order of popularity.
    """
    starts = np.flatnonzero(np.diff(log["user"], prepend=-1))
    ends = np.append(starts[1:], len(log["user"]))
    is_trained = np.ones(len(log["user"]), bool)
    for back in range(1, held + 1):
        is_trained[ends - back] = False
    popularity = np.bincount(log["item"][is_trained], minlength=items)
    inner = np.flatnonzero(is_trained[1:] & (log["user"][1:] == log["user"][:-1])) + 1
    pairs, times = np.unique(log["item"][inner - 1] * items + log["item"][inner], return_counts=True)
    first = np.searchsorted(pairs, np.arange(items + 1) * items)
    last, target = log["item"][ends - 2], log["item"][ends - 1]
    scores, in_order = 1e-6 * popularity, np.sort(popularity)
    tied = [np.searchsorted(in_order, popularity[target], side=side) for side in ("right", "left")]
    ranks = {"popularity": items - (tied[0] + tied[1] + 2) // 2, "transitions": np.zeros(len(target), int)}
    for user, (item, wanted) in enumerate(zip(last, target, strict=True)):
        after = slice(first[item], first[item + 1])
        own = scores.copy()
        own[pairs[after] - item * items] += times[after]
        ranks["transitions"][user] = (own > own[wanted]).sum() + ((own == own[wanted]).sum() - 1) // 2
    return {name: float(np.where(found < top, 1 / np.log2(found + 2), 0).mean()) for name, found in ranks.items()}


def mapping(
    path: str,
    items: int,
    model: str,
    dim: int,
    length: int,
    batch: int,
    *,
    dropout: float = 0.2,
    temperature: float | None = None,
    times: bool = False,
    **train: Any,
) -> dict[str, Any]:
    """Return a config; with ``temperature`` scores are cosines by it, with ``times`` HSTU has a bias by time, too."""
    of_item = {"num_buckets": items, "embedding_dim": dim, "table": "items"}
    tower: dict[str, Any] = {"item_tower": {"input": "item"}, "negatives": "sampled", "every_position": True}
    hstu: dict[str, Any] = {"embedding_dim": dim, "num_heads": 1, "hidden_dim": dim, "attention_dim": dim}
    hstu |= {"scaling_seqlen": length, "attn_num_layers": 2}
    hstu |= {"input_dropout_ratio": dropout, "output_dropout_ratio": dropout}
    loss: dict[str, Any] = {"name": "sampled_softmax"}
    if temperature is not None:
        tower["similarity"], loss["temperature"] = "cosine", temperature
    groups, more = {"uih": ["seen"], "item": ["item"]}, []
    if times and model == "hstu":
        hstu.update(num_time_buckets=16, time_bucket_fn="log", time_bucket_increments=60.0)
        groups["uih_timestamp"] = ["when"]
        more = [{"kind": "raw_sequence", "name": "when", "column": "time_history", "max_length": length}]
    architectures = {
        "sasrec": {"name": "sasrec", **tower, "max_length": length, "history_input": "uih", "dropout_ratio": dropout},
        "hstu": {"name": "hstu_match", **tower, "hstu": hstu},
    }
    return {
        "data": {
            "train": {"name": "parquet", "path": path},
            "user_column": "user",
            "item_column": "item",
            "histories": {"time_column": "time", "max_length": length},
            "negatives": {"group": "item", "id_column": "item", "count": train.pop("negatives", 256)},
            "features": [
                {"kind": "id", "name": "item", **of_item},
                {"kind": "sequence", "name": "seen", "column": "item_history", "max_length": length, **of_item},
                *more,
            ],
            "shuffle_rows": 10**6,
        },
        "model": {"architecture": architectures[model], "groups": groups},
        "tasks": {"next": {"losses": [loss]}},
        "train": {
            "sparse_optimizer": {"name": "adam", "learning_rate": 0.002},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.002},
            "batch_size": batch,
            **train,
        },
        "evaluate": {"catalog": {"top_k": [10], "exclude_seen": False}},
    }


def judged(folder: str, items: int, model: str, seed: int, options: argparse.Namespace) -> float:
    """Train until the event before each user's last gets no better, and return NDCG@10 of the last ones."""
    name = f"{folder}/{model}{seed}"
    path, shape = f"{folder}/log{seed}.parquet", (64, options.length, options.batch)
    layers = {"dropout": options.dropout, "temperature": options.temperature, "times": options.times}
    given = mapping(path, items, model, *shape, **layers, epochs=options.epochs, seed=seed, negatives="all")
    for part in ("sparse_optimizer", "dense_optimizer"):
        given["train"][part]["learning_rate"] = options.rate
    given["data"]["histories"]["last"] = 2
    stop = {"metric": "catalog_ndcg_at_10", "mode": "max", "patience": 4}
    given["evaluate"].update(every_epochs=options.every, early_stopping=stop)
    pathlib.Path(f"{name}.json").write_text(json.dumps(given))
    sparrow = [sys.executable, "-m", "sparrow.cli"]
    own = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}  # a core each
    for command in (["train", f"{name}.json", "--model-dir", name], ["eval", name, "data.histories.last=1", "--json"]):
        done = subprocess.run([*sparrow, *command], env=own, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1])["catalog_ndcg_at_10"])


def quality(options: argparse.Namespace) -> None:
    """Print NDCG@10 of both models, of transitions and of popularity, for each seed, as a table in Markdown."""
    print(
        "| seed | popularity | transitions | with the validation event | SASRec | HSTU |\n|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        counts, jobs = [], []
        for seed in range(options.seeds):
            log = generated(seed, options.users, options.items) if options.log is None else logged(options.log)
            items = options.items if options.log is None else int(log["item"].max()) + 1
            pq.write_table(pa.table(log), f"{folder}/log{seed}.parquet")
            counts.append([*counted(log, items, 2).values(), counted(log, items, 1)["transitions"]])
            jobs += [pool.submit(judged, folder, items, model, seed, options) for model in ("sasrec", "hstu")]
        rows = []
        for seed, counted_ones in enumerate(counts):
            rows.append([*counted_ones, *(job.result() for job in jobs[2 * seed : 2 * seed + 2])])
            print(f"| {seed} | {' | '.join(f'{value:.4f}' for value in rows[-1])} |", flush=True)
        print(f"| mean | {' | '.join(f'{value:.4f}' for value in np.mean(rows, axis=0))} |", flush=True)


def shaped(rng: np.random.Generator) -> list[np.ndarray]:
    """Return histories of ml-1m's shape: lengths from 20 up, 165 on average, cut to the newest 200 and a target."""
    lengths = np.minimum(20 + rng.lognormal(4.2, 1.15, USERS).astype(int), 2300)
    lengths = (lengths * (EVENTS / lengths.sum())).astype(int).clip(min=18)
    popularity = rng.zipf(1.2, ITEMS).clip(max=3000).astype(float)
    return [rng.choice(ITEMS, n, p=popularity / popularity.sum())[-201:] for n in lengths]


def epoch(options: argparse.Namespace) -> None:
    """Time a run of one epoch, compilation and reading included."""
    from sparrow import config, runs

    histories = shaped(np.random.default_rng(0))
    sizes = [len(x) for x in histories]
    log = {
        "user": np.repeat(np.arange(USERS), sizes),
        "item": np.concatenate(histories),
        "time": np.concatenate([np.arange(n) for n in sizes]),
    }
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table(log), f"{folder}/log.parquet")
        for negatives in (256, "all"):
            given = mapping(f"{folder}/log.parquet", ITEMS, "sasrec", 50, 200, 128, epochs=1, negatives=negatives)
            given["evaluate"] = {"catalog": False}
            begin, worked = time.perf_counter(), time.process_time()
            runs.train(config.from_mapping(given), f"{folder}/run{negatives}")
            spent = time.perf_counter() - begin, time.process_time() - worked
            print(
                f"negatives {negatives}: an epoch in {spent[0]:.0f} s, {spent[1]:.0f} s of processor time", flush=True
            )


def batches(count: int, size: int, drawn: int) -> list[tuple[list[np.ndarray], np.ndarray, np.ndarray]]:
    """Return histories, the items after them, and the negatives, of some batches."""
    rng = np.random.default_rng(0)
    every = shaped(rng)
    chosen = [rng.choice(len(every), size, replace=False) for _ in range(count)]
    return [
        ([every[i][:-1] for i in rows], np.array([every[i][-1] for i in rows]), rng.integers(0, ITEMS, drawn))
        for rows in chosen
    ]


def ours(given: list[Any], dim: int, length: int) -> Any:
    """Return a function that runs a step of SASRec by Sparrow on a batch."""
    import jax
    import optax
    from flax import nnx

    import sparrow as sp
    from sparrow.losses import SampledSoftmax
    from sparrow.models import Inputs, SASRec, Tower, functional

    table = sp.TableSpec(name="items", vocabulary_size=ITEMS, embedding_dim=dim, optimizer=sp.rules.Adam(0.001))
    seen = sp.FeatureSpec(name="seen", table_spec=table, combiner=None)
    emb = sp.Embedder([seen, sp.FeatureSpec(name="item", table_spec=table)])
    inputs = Inputs(acts={"item": dim}, sequences={"seen": dim}, groups={"history": ["seen"], "item": ["item"]})
    tower = {"item_tower": Tower("item"), "max_length": length, "negatives": "sampled"}
    apply, params, rest = functional(SASRec(inputs, **tower, rngs=nnx.Rngs(0)))
    optimizer = sp.Optimizer(emb, optax.adam(0.001))
    sizes = sp.Sizes()

    def loss(params: Any, acts: Any, rest: Any, batch: Any) -> Any:
        jagged = batch.jagged(acts)["seen"]
        acts = {"item": acts["item"], "seen": jagged.pad(length)._replace(jagged=jagged)}
        outputs, rest = apply.train(params, rest, acts, {})
        found = outputs["positions"]
        return (SampledSoftmax().values(found, None, ()) * found.weights).sum() / found.weights.sum(), rest

    @jax.jit
    def step(state: Any, rest: Any, batch: Any) -> Any:
        state, info = optimizer.step(state, loss, batch, rest, batch, has_aux=True)
        return state, info.aux, info.loss

    held = [optimizer.init(emb.init(jax.random.key(0)), params), rest]
    packed: list[Any] = []
    ids = [{"seen": list(histories), "item": np.concatenate([item, drawn])} for histories, item, drawn in given]
    for _ in range(2):  # the second time with the largest sizes
        packed = [emb.pack(one, sizes=sizes) for one in ids]

    def run(count: int) -> float:
        for i in range(count):
            held[0], held[1], value = step(held[0], held[1], packed[i % len(packed)])
        return float(value)

    return run


TORCH = """
import sys, time, json
import numpy as np, torch
from torch import nn
import torch.nn.functional as F
torch.set_num_threads(2)
torch.manual_seed(0)
items, dim, length = (int(x) for x in sys.argv[2:5])
given = np.load(sys.argv[1], allow_pickle=True)["given"]
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.hidden_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.project, self.hidden, self.output = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.drop = nn.Dropout(0.2)
    def forward(self, x):
        q, k, v = self.project(self.norm(x)).chunk(3, dim=-1)
        x = x + self.drop(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.drop(self.output(self.drop(torch.relu(self.hidden(self.hidden_norm(x))))))
class SASRec(nn.Module):
    def __init__(self):
        super().__init__()
        self.items, self.position = nn.Embedding(items + 1, dim, padding_idx=items), nn.Embedding(length, dim)
        self.blocks, self.norm, self.drop = nn.ModuleList([Block(), Block()]), nn.LayerNorm(dim), nn.Dropout(0.2)
    def forward(self, seen):
        x = self.drop(self.items(seen) * dim ** 0.5 + self.position.weight)
        for block in self.blocks: x = block(x)
        return self.norm(x)
model = SASRec()
optimizer = torch.optim.Adam(model.parameters(), 0.001)
batches = []
for histories, item, drawn in given:
    seen = np.full((len(histories), length), items); after = seen.copy()
    for row, (h, i) in enumerate(zip(histories, item)):
        seen[row, :len(h)] = h; after[row, :len(h)] = np.append(h[1:], i)
    batches.append([torch.from_numpy(np.asarray(x, np.int64)) for x in (seen, after, drawn)])
print("ready", flush=True)
for line in sys.stdin:
    begin, worked = time.perf_counter(), time.process_time()
    for i in range(int(line)):
        seen, after, drawn = batches[i % len(batches)]
        x = model(seen)
        there = after < items
        x, target = x[there], after[there]
        own = (x * model.items(target)).sum(-1, keepdim=True)
        others = (x @ model.items(drawn).T).masked_fill(target[:, None] == drawn, -1e9)
        value = F.cross_entropy(torch.cat([own, others], 1), torch.zeros(len(x), dtype=torch.long))
        optimizer.zero_grad(); value.backward(); optimizer.step()
    print(json.dumps([time.perf_counter() - begin, time.process_time() - worked, value.item()]), flush=True)
"""


def turns(options: argparse.Namespace) -> None:
    """Time steps of both in turns, and print the medians of wall and processor time of a step."""
    given, dim, length = batches(4, 128, 256), 50, 200
    with tempfile.TemporaryDirectory() as folder:
        held = np.empty((len(given), 3), object)
        for row, parts in enumerate(given):
            for column, part in enumerate(parts):
                held[row, column] = part
        np.savez(f"{folder}/given.npz", given=held)
        pathlib.Path(f"{folder}/steps.py").write_text(TORCH)
        command = [options.torch, f"{folder}/steps.py", f"{folder}/given.npz", str(ITEMS), str(dim), str(length)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            run = ours(given, dim, length)
            other.stdout.readline()
            found: dict[str, list[Any]] = {"sparrow": [], "torch": []}
            for _ in range(options.rounds + 1):  # the first compiles
                begin, worked = time.perf_counter(), time.process_time()
                value = run(4)
                found["sparrow"].append((time.perf_counter() - begin, time.process_time() - worked, value))
                other.stdin.write("4\n")
                other.stdin.flush()
                found["torch"].append(json.loads(other.stdout.readline()))
            other.stdin.close()
        for name, rounds in found.items():
            wall, worked = (statistics.median(one[i] for one in rounds[1:]) / 4 for i in (0, 1))
            print(
                f"{name}: {wall * 1e3:.0f} ms a step, {worked * 1e3:.0f} ms of processor time, loss {rounds[-1][2]:.3f}"
            )
            print(f"  an epoch of {USERS} users: {wall * USERS / 128:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["quality", "epoch", "turns"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--log", help="a log instead of generated data: FILE.parquet:user,item,time")
    parser.add_argument("--users", type=int, default=2000, help="of generated data, as --items")
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--length", type=int, default=200, help="the most events of a history")
    parser.add_argument("--rate", type=float, default=0.005, help="the learning rate; less for fewer events")
    parser.add_argument("--batch", type=int, default=32, help="users of a step; large ones are few steps")
    parser.add_argument("--every", type=int, default=2, help="epochs between evaluations")
    parser.add_argument("--times", action="store_true", help="HSTU has a bias by time, too, in seconds")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--temperature", type=float, help="scores are cosines divided by it, instead of products")
    parser.add_argument("--epochs", type=int, default=60, help="at most; training stops by the validation event")
    parser.add_argument("--torch", default=sys.executable, help="a Python with PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    {"quality": quality, "epoch": epoch, "turns": turns}[given.task](given)
