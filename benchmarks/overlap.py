"""The share of the exchange that a step hides: exact and patched steps, with and without a delay of the exchange.

    python benchmarks/overlap.py [--seconds 60] [--devices 2] [--share 0.3] [--exponent 1.05]

Everything that a lookup sends, ids, rows and patches, arrives after a time that follows its bytes: a link whose rate is
chosen so that all that an exact step's lookup sends takes ``share`` of the step. No core is busy while it travels.
Gradients travel at no cost, because no pipeline hides them. The four programs take turns.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import pathlib
import tempfile
import time

FEATURES, ROWS, DIM, EACH, BATCHES = 8, 200_000, 32, 1024, 16
HIDDEN = 512


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--exponent", type=float, default=1.05, help="of the power law of the ids")
    given = parser.parse_args()
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={given.devices}"
    os.environ |= {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    measure(given)


def measure(given):
    import jax
    import numpy as np

    library()
    batches, again = packed(given)
    bare = Runs(batches, 0.0)
    alone = bare.seconds(given.seconds / 5)["exact"]
    rate = given.share * alone * 1e9 / bare.bytes["exact"]
    late = Runs(batches, rate)
    times = {name: [] for name in ("exact", "patch", "exact, delayed", "patch, delayed")}
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        for suffix, runs in (("", bare), (", delayed", late)):
            for kind in ("exact", "patch"):
                times[kind + suffix] += runs.times(kind, 4)
    found = {name: 1e3 * float(np.median(own)) for name, own in times.items()}
    delay = found["exact, delayed"] - found["exact"]
    left = found["patch, delayed"] - found["patch"]
    print(f"{given.devices} devices on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, jax {jax.__version__}")
    print(f"rows of a batch that the one before it touches: {again:.0%}")
    for name, value in found.items():
        print(f"{name:15s} {value:8.2f} ms a step, median of {len(times[name])}")
    print(f"cost of the delay: {delay:.2f} ms ({delay / found['exact']:.0%}) exact, {left:.2f} ms patched")
    print(f"hidden: {1 - left / delay:.0%}")


def library():
    import jax
    from jax.ffi import include_dir

    from sparrow.kernels.native.compiler import compiled, levels

    source = pathlib.Path(__file__).with_name("delay.cc").read_text()
    path = pathlib.Path(tempfile.mkdtemp()) / "delay.so"
    path.write_bytes(compiled(levels()[0], source, (include_dir(),)))
    handler = jax.ffi.pycapsule(ctypes.CDLL(str(path)).delayed)
    jax.ffi.register_ffi_target("sparrow_benchmark_delayed", handler, platform="cpu")


def embedder(devices):
    import jax

    import sparrow as sp

    rule = sp.rules.RowwiseAdagrad(0.05)
    tables = [
        sp.TableSpec(name=f"t{i}", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule) for i in range(FEATURES)
    ]
    mesh = jax.make_mesh((devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    return sp.Embedder([sp.FeatureSpec(name=t.name, table_spec=t) for t in tables], mesh=mesh, exchange="rows")


def packed(given):
    """Batches by a power law, and the share of a batch's distinct rows that are in the one before it."""
    import numpy as np

    import sparrow as sp

    emb, size, sizes = embedder(given.devices), EACH * given.devices, sp.Sizes()
    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(1, ROWS + 1) ** given.exponent
    ids = rng.choice(ROWS, (BATCHES, FEATURES, size), p=weights / weights.sum()).astype(np.int32)
    for one in ids:
        sizes.fit(emb.measure({f"t{i}": own for i, own in enumerate(one)}).loose)
    made = [emb.pack({f"t{i}": own for i, own in enumerate(one)}, sizes=sizes) for one in ids]
    shares = [np.isin(np.unique(b[i]), a[i]).mean() for a, b in itertools.pairwise(ids) for i in range(FEATURES)]
    return (emb, made), float(np.mean(shares))


class Runs:
    """Exact and patched steps, each with a state of its own; everything that a lookup sends is late."""

    def __init__(self, batches, nanoseconds_per_byte):
        import jax
        import jax.numpy as jnp
        import optax

        import sparrow as sp

        self.emb, self.batches = batches
        self.bytes, self.at = {}, {}
        rng = jax.random.split(jax.random.key(1), 3)
        width = FEATURES * DIM
        params = {
            "a": jax.random.normal(rng[0], (width, HIDDEN)) / width**0.5,
            "b": jax.random.normal(rng[1], (HIDDEN, HIDDEN)) / HIDDEN**0.5,
            "c": jax.random.normal(rng[2], (HIDDEN,)) / HIDDEN**0.5,
        }
        optimizer = sp.Optimizer(self.emb, optax.sgd(0.01))

        def loss(params, acts):
            x = jnp.concatenate([acts[name] for name in sorted(acts)], axis=1)
            return jnp.mean((jax.nn.relu(jax.nn.relu(x @ params["a"]) @ params["b"]) @ params["c"] - 1.0) ** 2)

        def exact(state, carried, batch, following):
            grads, _ = optimizer.gradients(state, loss, batch)
            return optimizer.apply(state, grads)[0], carried

        def patch(state, carried, batch, following):
            acts, batch = carried
            grads, _ = optimizer.gradients(state, loss, batch, acts=acts)
            fetched, touched = self.emb.fetch(state.embedding, following), grads.rows
            grads = dataclasses.replace(grads, rows=touched.after(fetched.vectors))
            state, _ = optimizer.apply(state, grads)
            return state, (self.emb.patch(state.embedding, fetched, touched), fetched.batch)

        def first(state, batch):
            fetched = self.emb.fetch(state.embedding, batch)
            return self.emb.patch(state.embedding, fetched, None), fetched.batch

        self.steps, self.held = {}, {}
        for kind, step in (("exact", exact), ("patch", patch)):
            state = optimizer.init(self.emb.init(jax.random.key(0)), jax.tree.map(jnp.copy, params))
            carried = None if kind == "exact" else jax.jit(first)(state, self.batches[0])
            with delayed(nanoseconds_per_byte) as sent:
                self.steps[kind] = jax.jit(step, donate_argnums=0).lower(state, carried, *self.batches[:2]).compile()
            self.bytes[kind], self.held[kind], self.at[kind] = sum(sent), (state, carried), 0

    def times(self, kind, count):
        import jax

        made = []
        for _ in range(count):
            at = self.at[kind]
            batch, following = self.batches[at % BATCHES], self.batches[(at + 1) % BATCHES]
            begin = time.monotonic()
            self.held[kind] = jax.block_until_ready(self.steps[kind](*self.held[kind], batch, following))
            made.append(time.monotonic() - begin)
            self.at[kind] += 1
        return made[1:]

    def seconds(self, limit):
        import numpy as np

        found, end = {"exact": [], "patch": []}, time.monotonic() + limit
        while time.monotonic() < end:
            for kind, own in found.items():
                own += self.times(kind, 4)
        return {kind: float(np.median(own)) for kind, own in found.items()}


@contextlib.contextmanager
def delayed(nanoseconds_per_byte):
    """Let all that lookups send while programs are traced arrive late; the bytes of each, on a device."""
    import jax

    from sparrow.embedding.sharding.exchange import Sent
    from sparrow.embedding.sharding.shards import Shards

    swap, row_grads, sent, free = Shards.swap, Sent.row_grads, [], []

    def late(self, array):
        there = swap(self, array)
        if free:
            return there
        sent.append(array.nbytes)
        call = jax.ffi.ffi_call("sparrow_benchmark_delayed", jax.ShapeDtypeStruct(there.shape, there.dtype))
        return call(there, nanoseconds_per_byte=float(nanoseconds_per_byte)) if nanoseconds_per_byte else there

    @functools.wraps(row_grads)
    def unhindered(self, *arguments):
        free.append(True)
        try:
            return row_grads(self, *arguments)
        finally:
            free.pop()

    Shards.swap, Sent.row_grads = late, unhindered
    try:
        yield sent
    finally:
        Shards.swap, Sent.row_grads = swap, row_grads


if __name__ == "__main__":
    main()
