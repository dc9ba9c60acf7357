"""Steps on a mesh and on one device, by rule, exchange, backend and axes."""

import dataclasses
import tempfile

import jax
import numpy as np
from jax.sharding import AxisType

import sparrow as sp
from sparrow.checkpoint import StateCheckpoints
from tests.embedding.sharding.checks.cases import (
    BY_NAME,
    EACH,
    STEPS,
    arrays,
    compare,
    compared,
    features,
    inputs,
    mesh,
    same_bits,
    split,
)


def stepped(emb, make, batch, steps=STEPS, learned=False, norm=True):
    """Arrays before and after some steps, with the activations of each step and the norm of the first gradient.

    Each method is one program where the sizes are ``learned`` from every batch beforehand; else they grow on the way.
    The norm takes longer to compile than the rest together: ``norm`` may leave it out.
    """
    state, sizes = emb.init(jax.random.key(0)), sp.Sizes()
    first, every, length = arrays(emb, state), {}, np.zeros(())
    lookup, update = jax.jit(emb.lookup), jax.jit(emb.update, donate_argnums=0)
    for i in range(steps if learned else 0):
        sizes.fit(emb.measure(make(np.random.default_rng(i), batch)).loose)
    for i in range(steps):
        rng = np.random.default_rng(i)
        packed = emb.pack(make(rng, batch), sizes=sizes)
        acts = lookup(state, packed)
        every |= {f"{i}/{name}": np.array(array) for name, array in acts.items()}
        grads = {name: rng.standard_normal(acts[name].shape).astype(np.float32) for name in sorted(acts)}
        if norm and i == 0:
            length = jax.jit(lambda b, g: emb.row_grads(b, g).global_norm())(packed, split(emb, grads))
        state = update(state, packed, split(emb, grads))
    return {"first": first, "last": arrays(emb, state), "acts": every, "norm": length}


def differences(one, many):
    """Compare two results of `stepped`: the same steps on the same activation gradients."""
    return {
        **compared(one["last"], many["last"]),
        "first": compared(one["first"], many["first"])["same"],
        "acts": compared(one["acts"], many["acts"])["gap"],
        "norm": same_bits(one["norm"], many["norm"]),
    }


def equal(exchange, backend, dtype, rule):
    """One rule on a mesh and on one device, with sizes that grow."""
    specs, batch = features(BY_NAME[rule], dtype), EACH * len(jax.devices())
    one, many = sp.Embedder(specs, backend), sp.Embedder(specs, backend, mesh=mesh(), exchange=exchange)
    return differences(stepped(one, inputs, batch), stepped(many, inputs, batch))


def every_rule(backend, dtype):
    """All rules on a mesh, by each exchange, and on one device: stacks of one Embedder, so one program for all."""
    specs = [f for name, rule in BY_NAME.items() for f in features(rule, dtype, prefix=f"{name}.")]

    def make(rng, batch):
        return {key: given for name in BY_NAME for key, given in inputs(rng, batch, f"{name}.").items()}

    def result(**where):
        emb = sp.Embedder(specs, backend, **where)
        return stepped(emb, make, EACH * len(jax.devices()), learned=True, norm=False)

    one = result()
    return {exchange: differences(one, result(mesh=mesh(), exchange=exchange)) for exchange in ("pooled", "rows")}


def axes(kind, names):
    """Tables over some axes of a mesh of two."""
    both = mesh(AxisType[kind], (2, 2), ("a", "b"))
    specs = features(BY_NAME["adam"], "bfloat16")
    many = sp.Embedder(specs, "native", mesh=both, axis=tuple(names.split(",")), exchange="pooled")
    results = [stepped(emb, inputs, batch=24, steps=2) for emb in (sp.Embedder(specs, "native"), many)]
    return {**differences(*results), "shards": many.shards.count}


def placed(kind, backend, dtype, rule, exchange="pooled", memory=None):
    """Tables in one placement, or in several at once, and on one device; those of the mesh in some ``memory``."""
    specs, batch = features(BY_NAME[rule], dtype), EACH * len(jax.devices())
    grid, half = sp.Placement("grid", columns=3 if len(jax.devices()) % 3 == 0 else 1), len(jax.devices()) // 2
    pieces = sp.Placement("columns", columns=2 if half else 1)
    given = {
        "columns": {"movies": pieces, "users": pieces, "half": pieces},
        "grid": {"wide": grid, "movies": grid, "pair": "replicated"},
        "mixed": {
            "movies": pieces,
            "users": "replicated",
            "pair": "replicated",
            "half": sp.Placement("device", device=half),
            "wide": sp.Placement("grid", columns=1, devices=max(half, 1), device=half),
        },
    }.get(kind, kind)
    held = {"memory": sp.HostMemory(cache=0.5)} if memory == "host" else {}
    kept = [dataclasses.replace(spec, table_spec=dataclasses.replace(spec.table_spec, **held)) for spec in specs]
    many = sp.Embedder(kept, backend, mesh=mesh(), exchange=exchange, placement=given)
    return differences(
        stepped(sp.Embedder(specs, backend), inputs, batch, norm=dtype == "float32"),
        stepped(many, inputs, batch, norm=dtype == "float32"),
    )


def rounded(exchange):
    """Vectors that travel in bfloat16 beside float32: the largest error beyond its bound."""
    specs = features(sp.rules.SGD(1.0))
    batch = EACH * len(jax.devices())
    embs = [
        sp.Embedder(specs, mesh=mesh(), exchange=exchange, exchange_dtype=dtype) for dtype in ("float32", "bfloat16")
    ]
    given = inputs(np.random.default_rng(0), batch)
    acts, tables, sizes, sums = [], [], {}, {}
    for emb in embs:
        state, packed = emb.init(jax.random.key(0)), emb.pack(given)
        first = {name: np.array(emb.table(state, name)) for name in emb.tables}
        acts.append(jax.tree.map(np.array, emb.lookup(state, packed)))
        shapes = emb.activation_shapes(packed)
        grads = {
            name: np.asarray(np.random.default_rng(2).standard_normal(shapes[name]), np.float32) for name in shapes
        }
        tables.append(arrays(emb, emb.update(state, packed, split(emb, grads))))
        # The sums of the absolute values, of one device: a bound for both ways.
        plain = sp.Embedder(specs)
        size = plain.init(jax.random.key(0))
        for name in plain.tables:
            size = plain.with_table(size, name, np.abs(first[name]))
        sizes = plain.lookup(size, plain.pack(given))
        moved = plain.update(size, plain.pack(given), jax.tree.map(np.abs, grads))
        sums = {name: np.abs(first[name]) - np.array(plain.table(moved, name)) for name in plain.tables}
    bound = 2.0**-8 * 1.001
    over = [np.abs(acts[1][name] - acts[0][name]) - bound * np.asarray(sizes[name]) for name in sizes]
    moved = [np.abs(tables[1][name] - tables[0][name]) - bound * sums[name] for name in sums]
    return {
        "acts": max(float(x.max()) for x in over),
        "tables": max(float(x.max()) for x in moved),
        "differ": not compared(acts[0], acts[1])["same"] and not compared(tables[0], tables[1])["same"],
        "dtype": all(x.dtype == np.float32 for x in [*acts[1].values(), *tables[1].values()]),
    }


def moved(*rules):
    """A step, and checkpoints from each placement to each other; a table for each rule; no rules: all of them.

    By placement: how far its step is from the one of a single device, and whether it has the same bits. By pair of
    placements: whether values and slots are those that were saved.
    """
    rules, batch = rules or tuple(BY_NAME), EACH * len(jax.devices())
    specs = [
        sp.FeatureSpec(
            name=rule,
            table_spec=sp.TableSpec(name=rule, vocabulary_size=23, embedding_dim=6, optimizer=BY_NAME[rule]),
        )
        for rule in rules
    ]
    kinds = {
        "rows": "rows",
        "replicated": "replicated",
        "device": "device",
        "columns": dict.fromkeys(rules, sp.Placement("columns", columns=3)),
        "grid": dict.fromkeys(rules, sp.Placement("grid", columns=3)),
    }
    rng = np.random.default_rng(0)
    packed = {rule: rng.integers(0, 23, (batch, 2)) for rule in rules}
    embs = {kind: sp.Embedder(specs, mesh=mesh(), exchange="pooled", placement=own) for kind, own in kinds.items()}
    states, alone = {}, sp.Embedder(specs)
    for kind, emb in {"": alone, **embs}.items():
        given, state = emb.pack(packed), jax.block_until_ready(emb.init(jax.random.key(0)))
        step = jax.jit(lambda state, given, emb=emb: emb.update(state, given, emb.lookup(state, given)))
        states[kind] = jax.block_until_ready(step(state, given))
    found = {kind: compare(alone, emb, states[""], states[kind]) for kind, emb in embs.items()}
    with tempfile.TemporaryDirectory() as folder:
        for kind, emb in embs.items():
            with StateCheckpoints(f"{folder}/{kind}", emb) as checkpoints:
                checkpoints.save(1, states[kind])
            for other, to in embs.items():
                with StateCheckpoints(f"{folder}/{kind}", to) as checkpoints:
                    restored, _ = checkpoints.restore(jax.block_until_ready(to.init(jax.random.key(1))))
                found[f"{kind} to {other}"] = compare(emb, to, states[kind], restored)["same"]
    return found
