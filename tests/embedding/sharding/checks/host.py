"""Tables in host memory apart from the memory of a mesh's devices, each of which has a cache: the bits of none."""

import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import sparrow as sp
from sparrow.checkpoint import StateCheckpoints
from sparrow.embedding import host_memory
from tests.embedding.sharding.checks.cases import mesh, same_bits, split

ROWS = {"plain": 160, "other": 90, "raw": 320}


def embedder(apart, exchange, cache):
    rounded = {"dtype": "bfloat16", "optimizer": sp.rules.RowwiseAdagrad(0.1)}
    options = {"plain": {"optimizer": sp.rules.Adam(0.1)}, "other": {"optimizer": sp.rules.Adam(0.05)}, "raw": rounded}
    options["raw"]["dynamic"] = sp.Dynamic()
    features = [
        sp.FeatureSpec(
            name=f"of_{name}",
            table_spec=sp.TableSpec(
                name=name, vocabulary_size=rows, embedding_dim=6, memory=sp.HostMemory(cache=cache), **options[name]
            ),
        )
        for name, rows in ROWS.items()
    ]
    with mock.patch.object(host_memory, "is_apart", return_value=apart):
        return sp.Embedder(features, "native", mesh=mesh(), exchange=exchange)


def batches_of(emb, rng, sizes):
    lists = [rng.integers(0, 160, rng.integers(0, 4)).tolist() for _ in range(16)]
    raw = rng.integers(0, 400, 16) * 977
    return emb.pack({"of_plain": lists, "of_other": rng.integers(0, 90, 16), "of_raw": raw}, sizes=sizes)


def trained(emb, state, steps, seed):
    """Steps, every third of which is skipped; lookups before each one change nothing."""

    @jax.jit
    def step(state, batch, grads, go):
        state, batch = emb.assign(state, batch)
        acts = emb.lookup(state, batch)
        rows = emb.row_grads(batch, jax.tree.map(lambda act, grad: (0.1 * act + grad).astype(act.dtype), acts, grads))
        state = emb.apply(state, rows.only_if(go))
        return emb.undo(state, [batch], ~go), acts

    rng, seen, sizes, look = np.random.default_rng(seed), [], sp.Sizes(), jax.jit(emb.lookup)
    for number in range(steps):
        batch = batches_of(emb, rng, sizes)
        grads = {
            name: split(emb, rng.standard_normal((16, 6)).astype(np.float32)) for name in map("of_{}".format, ROWS)
        }
        seen.append(look(state, batch))
        state, acts = step(state, batch, grads, jnp.array(number % 3 < 2))
        seen.append(acts)
    return state, [np.asarray(leaf) for leaf in jax.tree.leaves(seen)]


def logical(emb, state):
    return {
        name: [np.asarray(emb.table(state, name)), *map(np.asarray, emb.slots(state, name).values())] for name in ROWS
    }


def in_host_memory(exchange):
    """Training, views, replaced rows, and checkpoints from each kind of memory into the other."""
    found, made, states = {}, {}, {}
    for apart in (False, True):
        emb = made[apart] = embedder(apart, exchange, 0.5)
        state = emb.init(jax.random.key(0))
        state, seen = trained(emb, state, 6, 0)
        for name in ROWS:
            state = emb.with_table(state, name, np.asarray(emb.table(state, name)) * 0.5)
        state, more = trained(emb, state, 3, 1)
        states[apart], made[apart, "seen"], made[apart, "rows"] = state, seen + more, logical(emb, state)
    far = made[True]
    found["apart"] = [stack.apart for stack in far.stacks]
    found["moved"] = bool(far.cache_traffic(states[True])["cache_bytes_out"] > 0)
    pairs = zip(made[False, "seen"], made[True, "seen"], strict=True)
    found["activations"] = all(same_bits(a, b) for a, b in pairs)
    found["rows"] = all(
        same_bits(a, b) for n in ROWS for a, b in zip(*(made[x, "rows"][n] for x in (False, True)), strict=True)
    )
    for name, source, target in (("to the device", True, False), ("to the host", False, True)):
        with tempfile.TemporaryDirectory() as folder:
            with StateCheckpoints(folder, made[source]) as checkpoints:
                checkpoints.save(1, states[source])
            with StateCheckpoints(folder, made[target]) as checkpoints:
                state, _ = checkpoints.restore(made[target].init(jax.random.key(1)))
            rows = logical(made[target], state)
            found[name] = all(
                same_bits(a, b) for n in ROWS for a, b in zip(rows[n], made[source, "rows"][n], strict=True)
            )
            _, seen = trained(made[target], state, 3, 2)
            _, expected = trained(made[source], states[source], 3, 2)
            found[f"{name}, trained on"] = all(same_bits(a, b) for a, b in zip(seen, expected, strict=True))
    return found


def small_cache():
    """A step that needs more rows than a device's cache has says so, and changes no row."""
    emb = embedder(True, "rows", 8)
    state = emb.init(jax.random.key(0))
    before = logical(emb, state)
    batch = batches_of(emb, np.random.default_rng(0), sp.Sizes())
    state = jax.jit(lambda state, batch: emb.assign(state, batch)[0])(state, batch)
    after = logical(emb, state)
    names = ("plain", "other")
    same = all(same_bits(a, b) for name in names for a, b in zip(before[name], after[name], strict=True))
    return {"problem": emb.shortage(state), "same": same}
