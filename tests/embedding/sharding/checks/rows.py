"""Ordered features and dynamic tables on a mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparrow as sp
from tests.embedding.sharding.checks.cases import BY_NAME, EACH, gap, mesh, same_bits, split
from tests.embedding.sharding.checks.training import dense_params


def ordered(backend):
    """Histories, bags and single ids of one table, and a history with ids to ignore; lengths that grow."""
    items = sp.TableSpec(name="items", vocabulary_size=301, embedding_dim=6, optimizer=BY_NAME["adam"], combiner="mean")
    wide = sp.TableSpec(name="wide", vocabulary_size=301, embedding_dim=3, optimizer=BY_NAME["sgd"])
    specs = [
        sp.FeatureSpec(name="seen", table_spec=items, combiner=None),
        sp.FeatureSpec(name="bag", table_spec=items),
        sp.FeatureSpec(name="item", table_spec=items),
        sp.FeatureSpec(name="old", table_spec=wide, combiner=None, invalid_ids="ignore"),
    ]
    batch = EACH * len(jax.devices())

    def loss_fn(params, acts, packed, labels):
        seen, old = (packed.jagged(acts)[name].pad(length) for name, length in (("seen", 4), ("old", 3)))
        pooled = seen.clean.sum(1) + 2 * seen.values[:, 0]
        x = jnp.concatenate([pooled, acts["bag"], acts["item"], old.clean.reshape(batch, -1)], 1)
        x = x + 0.01 * seen.lengths[:, None]
        return jnp.mean((jax.nn.relu(x @ params["w"]) @ params["v"] - labels) ** 2)

    def given(rng, step):
        def ragged(most, lowest=0):
            offsets = np.concatenate([[0], np.cumsum(rng.integers(0, most, batch))])
            return sp.Ragged(rng.integers(lowest, 301, offsets[-1]), offsets)

        old = rng.integers(0, 301, (batch, 3)) if step == 3 else ragged(5, -20)
        return {"seen": ragged(3 + 4 * step), "bag": ragged(4), "item": rng.integers(0, 301, batch), "old": old}

    def result(**where):
        emb, sizes, losses = sp.Embedder(specs, backend, **where), sp.Sizes(), []
        trainer = sp.Optimizer(emb, optax.adam(0.01), clip_global_norm=0.7)
        state = trainer.init(emb.init(jax.random.key(0)), dense_params(27))
        step = jax.jit(lambda s, b, y: trainer.step(s, loss_fn, b, b, y), donate_argnums=0)
        for i in (0, 3):  # the second batch is much larger than the first
            rng = np.random.default_rng(i)
            packed, labels = emb.pack(given(rng, i), sizes=sizes), rng.standard_normal(batch).astype(np.float32)
            state, info = step(state, packed, labels if emb.shards is None else split(emb, labels))
            losses.append(float(info.loss))
        tables = [np.asarray(emb.table(state.embedding, name)) for name in emb.tables]
        segments = np.asarray(packed.jagged(jax.jit(emb.lookup)(state.embedding, packed))["seen"].segments)
        return [*jax.tree.leaves([losses, tables, jax.device_get(state.params)]), np.sort(segments)[:40]]

    one = result()
    many = {exchange: result(mesh=mesh(), exchange=exchange) for exchange in ("pooled", "rows")}
    return {exchange: max(gap(a, b) for a, b in zip(one, found, strict=True)) for exchange, found in many.items()}


def dynamic():
    """Ids get rows at the devices that own them, by their hash: the values of one device while nothing is evicted."""
    found, held, batch = [], [], EACH * len(jax.devices())
    for where in (None, mesh()):
        items = sp.TableSpec(
            name="items", vocabulary_size=800, embedding_dim=4, optimizer=BY_NAME["adam"], dynamic=sp.Dynamic(admit=2)
        )
        users = sp.TableSpec(name="users", vocabulary_size=30, embedding_dim=4, optimizer=BY_NAME["adam"])
        specs = [sp.FeatureSpec(name=name, table_spec=table) for name, table in (("item", items), ("user", users))]
        emb = sp.Embedder(specs, "native", mesh=where, exchange="pooled")
        state, sizes = emb.init(jax.random.key(0)), sp.Sizes()

        def step(state, packed, grads, emb=emb):
            state, ready = emb.assign(state, packed)
            return emb.update(state, ready, grads)

        compiled = jax.jit(step)
        for i in range(5):
            rng = np.random.default_rng(i)
            given = {"item": rng.integers(0, 40, batch) * 10**12, "user": rng.integers(0, 30, batch)}
            grads = {name: rng.standard_normal((batch, 4)).astype(np.float32) for name in given}
            state = compiled(state, emb.pack(given, sizes=sizes), split(emb, grads))
        ids, rows = emb.ids(state, "items")
        order = np.argsort(ids)
        arrays = [emb.table(state, "items"), *emb.slots(state, "items").values()]
        found.append([ids[order], *(np.asarray(array)[rows[order]] for array in arrays)])
        held.append(emb.held(state, "items")._asdict())
    same = all(same_bits(np.asarray(a), np.asarray(b)) for a, b in zip(*found, strict=True))
    return {"same": same, "ids": len(found[0][0]), "counts": [one["waiting"] for one in held]}


def undone():
    """A step with evictions that is undone, and one that needs more rows than there are: the state stays as it was."""
    count = len(jax.devices())
    table = sp.TableSpec(
        name="items", vocabulary_size=16 * count, embedding_dim=4, optimizer=BY_NAME["adam"], dynamic=sp.Dynamic()
    )
    emb = sp.Embedder([sp.FeatureSpec(name="item", table_spec=table)], "native", mesh=mesh(), exchange="pooled")
    state = emb.init(jax.random.key(0))

    def content(state):
        # Neither the index, nor entries of the list of free rows beyond its end, mean anything.
        maps = [own._replace(buckets=own.short, free=own.short) for own in state.ids.values()]
        parts = (state.tables, state.slots, maps)
        return jax.tree.map(np.array, parts)

    def equal(a, b):
        return all(same_bits(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))

    @jax.jit
    def trained(state, batch):
        state, batch = emb.assign(state, batch)
        return emb.update(state, batch, jax.tree.map(jnp.ones_like, emb.zeros(batch)))

    @jax.jit
    def skipped(state, batch, skip):
        new, batch = emb.assign(state, batch)
        return emb.undo(new, [batch], skip)

    size = 8 * count
    for i in range(4):
        state = trained(state, emb.pack({"item": np.arange(size) + size * i}, capacity=size))
    before, other = content(state), emb.pack({"item": np.arange(size) * 10**12 + 7}, capacity=size)
    evicted = emb.held(state, "items").evicted
    kept, gone = skipped(state, other, jnp.array(True)), skipped(state, other, jnp.array(False))
    many = emb.pack({"item": np.arange(32 * count) * 10**9 + 3}, capacity=32 * count)
    short = jax.jit(lambda state, batch: emb.assign(state, batch)[0])(state, many)
    problem = emb.shortage(short)
    after = emb.without_shortage(short)
    return {
        "evicts": evicted > 0 and not equal(content(gone), before),
        "undone": equal(content(kept), before),
        "unchanged": equal(content(after), before),
        "problem": problem,
        "goes on": all(equal(content(trained(one, other)), content(trained(state, other))) for one in (after, kept)),
    }


def evicted(policy):
    """Training with evictions on 1, 2 and 8 devices, and on 8 after 1 as on 1 all along: the differing arrays."""
    table = sp.TableSpec(
        name="items",
        vocabulary_size=1030,
        embedding_dim=2,
        optimizer=BY_NAME["adam"],
        dynamic=sp.Dynamic(evict=policy, admit=2, waiting=800, unknown="zeros", expire_steps=25),
    )
    ends, evictions, embedders, states = {}, [], {}, {}

    def trained(emb, state, steps):
        def step(state, packed, grads):
            state, ready = emb.assign(state, packed)
            return emb.update(state, ready, grads)

        compiled = jax.jit(step)
        for i in steps:
            rng = np.random.default_rng(i)
            given, grads = rng.integers(0, 4000, 256) * 10**15, rng.standard_normal((256, 2)).astype(np.float32)
            state = compiled(state, emb.pack({"item": given}, capacity=256), split(emb, {"item": grads}))
            jax.block_until_ready(state)  # programs at once would wait for each other's threads
        return state

    def content(emb, state):
        """The map, table and slots by id: rows may have other numbers."""
        saved = emb.saved_ids(state)["items"]
        numbers, waiting = (
            ids[:, 0].astype(np.uint64) | ids[:, 1].astype(np.uint64) << 32 for ids in (saved.ids, saved.waiting)
        )
        used = np.flatnonzero(saved.last >= 0)
        used, waits = used[np.argsort(numbers[used])], np.argsort(waiting)
        arrays = {"table": emb.table(state, "items"), **emb.slots(state, "items")}
        made = {name: np.asarray(array)[used] for name, array in arrays.items()}
        made |= {"ids": numbers[used], "last": saved.last[used], "counts": saved.counts[used]}
        made |= {"waiting": waiting[waits], "since": saved.since[waits], "seen": saved.seen[waits]}
        return {**made, "totals": saved.totals}

    for count in (1, 2, 8):
        where = None if count == 1 else jax.make_mesh((count,), ("data",), devices=jax.devices()[:count])
        specs = [sp.FeatureSpec(name="item", table_spec=table)]
        emb = embedders[count] = sp.Embedder(specs, "native", mesh=where, exchange="pooled")
        states[count] = trained(emb, emb.init(jax.random.key(0)), range(60))
        ends[str(count)] = content(emb, states[count])
        evictions.append(emb.held(states[count], "items").evicted)
    for one, other in ((1, 8), (8, 2), (2, 1)):
        emb, old, before = embedders[other], embedders[one], states[one]
        fresh = emb.init(jax.random.key(0))
        state, sources = emb.with_ids(fresh, old.saved_ids(before))
        source = sources["items"]
        ends[f"{one} to {other}"] = {
            name: values
            for name, values in content(emb, state).items()
            if name not in ("table", *emb.slots(state, "items"))
        }
        kept = np.where(source >= 0, source, 0)
        assert (np.sort(source[source >= 0]) == np.flatnonzero(old.saved_ids(before)["items"].last >= 0)).all(), kept
    first = ends["1"]
    differ = [
        f"{name} on {where}"
        for where, end in ends.items()
        for name in end
        if not same_bits(np.asarray(first[name]), np.asarray(end[name]))
    ]
    return {"differ": differ, "evicted": evictions, "ids": len(first["ids"]), "waiting": len(first["waiting"])}
