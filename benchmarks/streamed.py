"""A generative ranker on time-ordered events, streamed once: the shape of MLPerf's DLRMv4, and of Yambda.

    python benchmarks/streamed.py                        # small: two cores
    python benchmarks/streamed.py --length 2048 --dim 512 --layers 8 --batch 64 --windows 20 --bfloat16

Events are generated in the order of time: users come back by a power law, items drift (a new one enters every few
events, old ones fade), and a listen is complete (the label) by the affinity of user and item, and by fatigue: an item
among the last few is skipped. Each window of time is first judged by the model as it is, then trained on once, as a
service would learn: no event is read twice. Prints for each window AUC and log loss before training on it, then
examples/s, useful TFLOP/s (products of the layers forward and backward, causal half of the attention, no recomputed
work) and their share of the chip: the peak of a known GPU, else the rate of a float32 product of 1024 x 1024 matrices
that is measured here.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import sparrow as sp
from sparrow import models
from sparrow.losses import binary_cross_entropy

PEAKS: Final = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Of bfloat16 products, without sparsity."""


@dataclasses.dataclass
class Stream:
    """Generated events in the order of time."""

    users: int
    items: int
    length: int
    seed: int

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._tastes, self._kinds = (self._rng.normal(size=(count, 4)) for count in (self.users, self.items))
        self._often = self._rng.permutation((1 + np.arange(self.users)) ** -0.8)
        self._often /= self._often.sum()
        self._histories: list[list[int]] = [[] for _ in range(self.users)]
        self._now = self.items // 4

    def window(self, count: int) -> dict[str, Any]:
        """Return the next events: for each the history before it, the item, and whether it was heard to its end."""
        made: dict[str, list[Any]] = {"seen": [], "item": [], "label": []}
        for user in self._rng.choice(self.users, count, p=self._often):
            age = int(self._rng.exponential(self.items / 16))
            item = max(0, self._now - 1 - age)
            history = self._histories[user]
            score = self._tastes[user] @ self._kinds[item] - 2.0 * (item in history[-8:])
            heard = float(self._rng.random() < 1 / (1 + np.exp(-score)))
            made["seen"].append(history[-self.length :])
            made["item"].append(item)
            made["label"].append(heard)
            self._histories[user] = [*history, item][-2 * self.length :]
            if self._rng.random() < 0.02 and self._now < self.items:
                self._now += 1
        return made


def flops(lengths: np.ndarray, stu: models.STU) -> float:
    """Return the useful operations of a step: products forward, twice them backward; 2 and 5 of the attention."""
    width, heads = stu.num_heads * stu.hidden_dim, stu.num_heads
    dim, reach = stu.embedding_dim, stu.num_heads * stu.attention_dim
    tokens = lengths + 1.0  # the candidate
    dense = 2 * tokens * (dim * (2 * width + 2 * reach) + 3 * width * dim)
    pairs = tokens * (tokens + 1) / 2
    attention = 2 * pairs * heads * (stu.attention_dim + stu.hidden_dim)
    return float(stu.attn_num_layers * (3 * dense.sum() + 2.5 * attention.sum() + attention.sum()))


def peak(bfloat16: bool) -> tuple[str, float]:
    """Return the rate of the chip, by name where it is known, else measured."""
    kind = jax.devices()[0].device_kind
    for name, rate in PEAKS.items():
        if name in kind and bfloat16:
            return name, rate
    x = jnp.ones((1024, 1024))
    product = jax.jit(lambda x: x @ x)
    product(x).block_until_ready()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        product(x).block_until_ready()
        times.append(time.perf_counter() - begin)
    return f"a measured product on {kind}", 2 * 1024**3 / min(times)


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Return the area under the curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def main(options: argparse.Namespace) -> None:
    """Stream all windows once."""
    stu = models.STU(
        options.dim,
        options.heads,
        options.dim // options.heads,
        options.dim // options.heads,
        scaling_seqlen=options.length,
        num_position_buckets=options.length + 1,
        attn_num_layers=options.layers,
    )
    dim = options.embedding_dim
    inputs = models.Inputs(acts={"item": dim}, sequences={"seen": dim}, groups={"uih": ["seen"], "candidate": ["item"]})
    towers, rngs = (models.TaskTower("heard"),), nnx.Rngs(0)
    channel = models.HSTUChannel(stu)
    model = models.HSTURanker(inputs, channels=(channel,), task_towers=towers, item_hidden_dim=2 * dim, rngs=rngs)
    apply, params, rest = models.functional(model)
    rule = sp.rules.Adagrad(0.05)
    table = sp.TableSpec(name="items", vocabulary_size=options.items, embedding_dim=dim, optimizer=rule)
    seen = sp.FeatureSpec(name="seen", table_spec=table, combiner=None)
    emb = sp.Embedder([seen, sp.FeatureSpec(name="item", table_spec=table)])
    precision = "bfloat16" if options.bfloat16 else "float32"
    optimizer = sp.Optimizer(emb, optax.adam(options.rate), precision=precision)
    sizes = sp.Sizes()

    def logits(params: Any, acts: Any, batch: Any) -> jax.Array:
        jagged = batch.jagged(acts)["seen"]
        acts = {"item": acts["item"], "seen": jagged.pad(options.length)._replace(jagged=jagged)}
        return apply.predict(params, rest, acts, {})["heard"]

    def loss(params: Any, acts: Any, batch: Any, labels: jax.Array) -> jax.Array:
        return sp.losses.reduce(binary_cross_entropy(logits(params, acts, batch), labels))

    @jax.jit
    def step(state: Any, batch: Any, labels: jax.Array) -> Any:
        return optimizer.step(state, loss, batch, batch, labels)[0]

    @jax.jit
    def judged(state: Any, batch: Any) -> jax.Array:
        return logits(state.params, emb.lookup(state.embedding, batch), batch)

    state = optimizer.init(emb.init(jax.random.key(0)), params)
    name, rate = peak(options.bfloat16)
    print(f"{name}: {rate / 1e12:.3f} TFLOP/s; {options}", flush=True)
    stream = Stream(options.users, options.items, options.length, options.seed)
    stream.window(options.users * options.length // 2)  # a service that runs for a while: histories are not empty
    totals = np.zeros(4)  # examples, operations, wall and processor time of training
    for number in range(options.windows):
        held = stream.window(options.batch * options.steps)
        labels, scores, spent = np.array(held["label"], np.float32), [], np.zeros(4)
        parts = [slice(at, at + options.batch) for at in range(0, len(labels), options.batch)]
        packed = [emb.pack({"seen": held["seen"][at], "item": np.array(held["item"][at])}, sizes=sizes) for at in parts]
        scores = [np.asarray(judged(state, batch), np.float64) for batch in packed]  # before training on any of it
        for at, batch in zip(parts, packed, strict=True):
            begin, worked = time.perf_counter(), time.process_time()
            state = jax.block_until_ready(step(state, batch, labels[at]))
            clocks = time.perf_counter() - begin, time.process_time() - worked
            lengths = np.array([len(one) for one in held["seen"][at]])
            spent += [options.batch, flops(lengths, stu), *clocks]
        found = np.concatenate(scores)
        losses = np.logaddexp(0, found) - labels * found
        if number:  # the first window compiles
            totals += spent
        print(
            f"window {number}: before training on it AUC {auc(labels, found):.4f}, log loss {losses.mean():.4f}; "
            f"{spent[0] / spent[2]:.0f} examples/s",
            flush=True,
        )
    examples, operations, wall, worked = totals
    print(
        f"{examples / wall:.0f} examples/s, {operations / wall / 1e12:.4f} TFLOP/s of useful work, "
        f"{operations / wall / rate:.1%} of {name}; {1e6 * worked / examples:.0f} us of processor time an example"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--length", type=int, default=64, help="of the longest history")
    parser.add_argument("--embedding-dim", type=int, default=32)
    parser.add_argument("--dim", type=int, default=64, help="of the layers")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12, help="batches of a window")
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--rate", type=float, default=0.002, help="the learning rate of the layers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bfloat16", action="store_true")
    main(parser.parse_args())
