"""Runs checks of tables on a mesh, and prints what they found. Run by test_mesh.py as ``on_devices.py CHECK...``.

A program of its own, because the number of devices must be set before JAX starts. The mesh takes all of them.
"""

import functools
import json
import re
import sys

import flax.linen
import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sparrow as sp
from sparrow.embedding import in_device_order, initializers, of_one_size
from sparrow.embedding.sharding import blocks
from tests.rule_cases import CASES

BY_NAME = {case.name: case.rule for case in CASES}
STEPS, EACH = 3, 6  # examples on each device
ROWS = {"movies": 211, "users": 57, "pair": 2, "half": 23}  # a table may be smaller than the mesh


def mesh(kind=AxisType.Auto, shape=None, names=("data",)):
    shape = (len(jax.devices()),) if shape is None else shape
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape))


def features(rule, dtype="float32", prefix=""):
    """Bags of every kind; all tables of one dim are one stack."""

    def table(name, **options):
        options = {"embedding_dim": 6, "dtype": dtype, **options}
        return sp.TableSpec(name=f"{prefix}{name}", vocabulary_size=ROWS[name], optimizer=rule, **options)

    movies, users = table("movies", combiner="mean"), table("users", combiner="sqrtn")
    specs = {
        "watched": (movies, "error"),
        "movie": (movies, "error"),
        "tags": (users, "error"),
        "user": (users, "ignore"),
        "pair": (table("pair"), "error"),
        "half": (table("half"), "error"),
        "strided": (table("movies", embedding_dim=3) if not prefix else movies, "error"),
    }
    if not prefix:
        wide = sp.TableSpec(name="wide", vocabulary_size=640, embedding_dim=3, optimizer=rule, dtype=dtype)
        specs["strided"] = specs["same"] = specs["distinct"] = (wide, "error")
    return [
        sp.FeatureSpec(name=f"{prefix}{name}", table_spec=spec, invalid_ids=invalid)
        for name, (spec, invalid) in specs.items()
    ]


def inputs(rng, batch, prefix=""):
    def ragged(most, rows, weighted):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(0, most, batch))])
        ids = np.minimum(rng.zipf(1.3, offsets[-1]) - 1, rows - 1)
        return sp.Ragged(ids, offsets, rng.random(offsets[-1]).astype(np.float32) if weighted else None)

    made = {
        "watched": ragged(9, ROWS["movies"], True),
        "movie": rng.integers(0, ROWS["movies"], batch),
        "tags": [[] if i % 3 else rng.integers(0, ROWS["users"], 4).tolist() for i in range(batch)],
        "user": rng.integers(-3, ROWS["users"] + 3, batch),
        "pair": rng.integers(0, 2, (batch, 3)),
        "half": rng.integers(0, ROWS["half"], batch // 2),
        "strided": rng.integers(0, ROWS["movies"] // 8, batch) * 8,
    }
    if not prefix:
        made |= {"same": np.full(batch, 7), "distinct": rng.permutation(640)[:batch]}
    return {f"{prefix}{name}": given for name, given in made.items()}


def gap(a, b):
    a, b = (np.asarray(x).astype(np.float32) for x in (a, b))
    return float(np.abs(a - b).max() / max(float(np.abs(a).max()), 1e-30))


def same_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def arrays(emb, state):
    """Every table and slot, on the host."""
    found = {}
    for name in emb.tables:
        found[name] = np.array(emb.table(state, name))
        found |= {f"{name}/{slot}": np.array(array) for slot, array in emb.slots(state, name).items()}
    return found


def compared(one, many):
    """Whether arrays of the same names have the same bits, and how far apart they are."""
    same = all(same_bits(array, many[name]) for name, array in one.items())
    return {"same": same and one.keys() == many.keys(), "gap": max(gap(one[name], many[name]) for name in one)}


def compare(one, ours, state, theirs):
    return compared(arrays(one, state), arrays(ours, theirs))


def split(emb, tree):
    if emb.shards is None:  # a mesh of one device
        return tree
    return jax.device_put(tree, NamedSharding(emb.shards.mesh, PartitionSpec(emb.shards.axes)))


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


def loss_fn(params, acts, labels):
    x = jnp.concatenate([acts["watched"], acts["movie"], acts["tags"]], 1)
    return jnp.mean((jax.nn.relu(x @ params["w"]) @ params["v"] - labels) ** 2)


def dense_params(dim=18):
    rng = np.random.default_rng(5)
    return {"w": rng.normal(size=(dim, 8)).astype(np.float32), "v": rng.normal(size=8).astype(np.float32)}


def halves(given):
    """Two micro-batches."""

    def part(x, which):
        if isinstance(x, sp.Ragged):
            x = [x.values[a:b].tolist() for a, b in zip(x.offsets, x.offsets[1:], strict=False)]
        return x[: len(x) // 2] if which == 0 else x[len(x) // 2 :]

    return [{name: part(x, which) for name, x in given.items()} for which in (0, 1)]


@functools.cache
def optimized(kind, precision):
    """Steps on a mesh whose axes are of a kind; None: on one device."""
    specs, batch = features(BY_NAME["rowwise_adagrad"]), EACH * 2 * len(jax.devices())
    where = {} if kind is None else {"mesh": mesh(AxisType[kind]), "exchange": "pooled"}
    emb, sizes, infos = sp.Embedder(specs, "native", **where), sp.Sizes(), []
    trainer = sp.Optimizer(emb, optax.adam(0.01), clip_global_norm=0.5, ema=0.9, precision=precision, loss_scale=True)
    state = trainer.init(emb.init(jax.random.key(0)), jax.tree.map(jnp.asarray, dense_params()))
    step = jax.jit(lambda s, b, y: trainer.step(s, loss_fn, b, y), donate_argnums=0)
    for i in range(5):
        rng = np.random.default_rng(i)
        given, labels = inputs(rng, batch), rng.standard_normal(batch).astype(np.float32)
        labels[0] = np.nan if i == 3 else labels[0]
        packed = [emb.pack(micro, sizes=sizes) for micro in halves(given)]
        state, info = step(state, packed, [split(emb, y) for y in labels.reshape(2, -1)])
        infos.append([float(info.loss), float(info.grad_norm), bool(info.applied)])
    tables = {table: emb.table(state.embedding, table) for table in emb.tables}
    return tables, jax.device_get((state.params, state.ema, state.loss_scale)), infos, state


def optimizer(kind, precision):
    """`sp.Optimizer` with everything: clipping, accumulation, EMA, loss scale, a step that is skipped."""
    found = {"one": optimized(None, precision), "mesh": optimized(kind, precision)}
    gaps = [
        gap(a, b) for a, b in zip(jax.tree.leaves(found["one"][:2]), jax.tree.leaves(found["mesh"][:2]), strict=True)
    ]
    steps = {name: [int(found[name][3].step), int(found[name][3].skipped)] for name in found}
    applied = {name: [info[2] for info in found[name][2]] for name in found}
    norms = max(gap(a[:2], b[:2]) for a, b in zip(found["one"][2], found["mesh"][2], strict=True) if a[2])
    everywhere = all(x.sharding.is_fully_replicated for x in jax.tree.leaves(found["mesh"][3].params))
    return {"gap": max(gaps), "steps": steps, "applied": applied, "norms": norms, "everywhere": everywhere}


def split_params():
    """Dense parameters that the user has split stay as they are, and so do their moments."""
    emb = sp.Embedder(features(BY_NAME["adam"]), mesh=mesh())
    columns = NamedSharding(emb.shards.mesh, PartitionSpec(None, "data"))
    params = dense_params()
    wide = {"w": np.concatenate([params["w"]] * 4, 1), "v": np.concatenate([params["v"]] * 4)}
    trainer = sp.Optimizer(emb, optax.adam(0.01), params_sharding={"w": columns, "v": None}, ema=0.9)
    state = trainer.init(emb.init(jax.random.key(0)), wide)
    held = [state.params["w"], state.dense[0].mu["w"], state.ema.params["w"]]
    everywhere = state.params["v"].sharding.is_fully_replicated
    given = inputs(np.random.default_rng(0), 24)
    state, info = jax.jit(lambda s, b, y: trainer.step(s, loss_fn, b, y))(
        state, emb.pack(given), split(emb, np.zeros(24, np.float32))
    )
    held += [state.params["w"], state.dense[0].mu["w"]]
    return {
        "split": [x.sharding.is_equivalent_to(columns, 2) for x in held],
        "everywhere": everywhere,
        "finite": bool(jnp.isfinite(info.loss)),
    }


def step_program(exchange, backend):
    """The compiled step: collectives, copies of tables, memory, where the arrays are."""
    rows, dim, batch = 100_000, 16, 32 * len(jax.devices())
    tables = [
        sp.TableSpec(
            name=f"t{i}",
            vocabulary_size=rows,
            embedding_dim=dim,
            optimizer=sp.rules.Adam(0.01),
            initializer=initializers.Constant(0.0),
        )
        for i in range(2)
    ]
    emb = sp.Embedder(
        [sp.FeatureSpec(name=t.name, table_spec=t) for t in tables], backend, mesh=mesh(), exchange=exchange
    )
    trainer = sp.Optimizer(emb, optax.adam(1e-3))

    def loss_fn(params, acts, labels):
        return jnp.mean((jnp.concatenate([acts["t0"], acts["t1"]], 1) @ params["w"] - labels) ** 2)

    state = trainer.init(emb.init(jax.random.key(0)), {"w": np.ones(2 * dim, np.float32)})
    rng, sizes = np.random.default_rng(0), sp.Sizes()

    def batches():
        offsets = np.arange(batch + 1) * 5
        bags = {"t0": sp.Ragged(rng.integers(0, rows, 5 * batch), offsets), "t1": rng.integers(0, rows, batch)}
        return emb.pack(bags, sizes=sizes), split(emb, rng.standard_normal(batch).astype(np.float32))

    step = jax.jit(lambda s, b, y: trainer.step(s, loss_fn, b, y), donate_argnums=0)
    given = batches()
    compiled = step.lower(state, *given).compile()
    text = compiled.as_text()
    (stack,) = emb.stacks
    local = emb.sharded.layouts[stack.name].local_rows
    lookups = given[0].lookups[stack.name]
    sent = lookups.block if exchange == "pooled" else lookups.send
    pairs = len(jax.devices()) * (lookups.sums if exchange == "pooled" else sent.shape[1])
    exchanged = 2 * pairs * dim * 4 + sent.nbytes // len(jax.devices())

    def pointers(state):
        return [x.data.unsafe_buffer_pointer() for x in state.embedding.tables[stack.name].addressable_shards]

    before = pointers(state)
    for _ in range(3):
        state, _ = step(state, *given)
        given = batches()
    kinds = ("all-to-all", "all-reduce", "all-gather", "collective-permute", "reduce-scatter")
    count = {kind: len(re.findall(rf"= [^=]* {kind}(?:-start)?\(", text)) for kind in kinds}
    return {
        "collectives": count,
        "copies": len(re.findall(rf"= f32\[{local},{dim}\][^ ]* copy\(", text)),
        "temp": compiled.memory_analysis().temp_size_in_bytes,
        "exchanged": exchanged,
        "stay": pointers(state) == before,
        "programs": step._cache_size(),
    }


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
    """Ids that come and go: their rows start, are updated, and are given back, as on one device."""
    found, back, batch = [], [], EACH * len(jax.devices())
    for where in (None, mesh()):
        items = sp.TableSpec(
            name="items",
            vocabulary_size=41,
            embedding_dim=4,
            optimizer=BY_NAME["adam"],
            dynamic=sp.Dynamic(evict="lru"),
        )
        users = sp.TableSpec(name="users", vocabulary_size=30, embedding_dim=4, optimizer=BY_NAME["adam"])
        specs = [sp.FeatureSpec(name=name, table_spec=table) for name, table in (("item", items), ("user", users))]
        emb = sp.Embedder(specs, "native", mesh=where, exchange="pooled")
        state, words, sizes = emb.init(jax.random.key(0)), emb.vocabularies(), sp.Sizes()
        update = jax.jit(emb.update)
        for i in range(5):
            rng = np.random.default_rng(i)
            given = {"item": rng.integers(0, 10**12 if i % 2 else 60, batch), "user": rng.integers(0, 30, batch)}
            packed = emb.pack(given, sizes=sizes, vocabularies=words)
            before, held = np.array(emb.table(state, "items")), emb.overwritten(state, packed)
            state, ready = emb.admit(state, packed)
            if i == 3:
                state = emb.give_back(state, packed, held)
                back.append(same_bits(np.asarray(emb.table(state, "items")), before))
                state, ready = emb.admit(state, packed)
            grads = {name: rng.standard_normal((batch, 4)).astype(np.float32) for name in given}
            state = update(state, ready, split(emb, grads))
        found.append([*(emb.table(state, name) for name in emb.tables), *emb.slots(state, "items").values()])
    same = all(same_bits(np.asarray(a), np.asarray(b)) for a, b in zip(*found, strict=True))
    return {"same": same, "back": back}


def mixed_loss(params, x, labels):
    """Layers, a norm over the batch, a loss between all examples, and one of picked classes."""
    hidden = jax.nn.relu(x @ params["w"] + params["b"])
    hidden = (hidden - hidden.mean(0)) / jnp.sqrt(hidden.var(0) + 1e-3)
    towers = hidden.reshape(len(x), 2, -1)  # (batch, 2, units)
    in_batch = jax.nn.log_softmax(towers[:, 0] @ towers[:, 1].T)
    classes = jax.nn.log_softmax(hidden @ params["v"])
    picked = jnp.take_along_axis(classes, labels[:, None], 1)[:, 0]
    weights = 1.0 + labels.astype(jnp.float32)
    return -jnp.trace(in_batch) / len(x) - (weights * picked).sum() / weights.sum()


def device_order():
    """Sums over examples in the order of devices: no all-reduce of floats is left, and the numbers are XLA's."""
    shards = sp.Embedder(features(BY_NAME["sgd"]), mesh=mesh()).shards
    rng, batch = np.random.default_rng(0), 8 * shards.count
    params = {"w": rng.normal(size=(24, 1024)), "b": rng.normal(size=1024), "v": rng.normal(size=(1024, 5)) / 32}
    params = jax.tree.map(lambda leaf: leaf.astype(np.float32), params)
    x, labels = rng.normal(size=(batch, 24)).astype(np.float32), rng.integers(0, 5, batch)
    given = (shards.put_everywhere(params), *shards.put_parts((x, labels)))
    gradient = jax.value_and_grad(mixed_loss, argnums=(0, 1))
    ordered = in_device_order(shards, gradient, split=(False, True, True), examples={batch})
    programs = {name: jax.jit(f).lower(*given).compile() for name, f in (("xla", gradient), ("ordered", ordered))}
    made = {name: jax.tree.leaves(jax.device_get(program(*given))) for name, program in programs.items()}
    reduced = {
        name: len(re.findall(r"= [^=]*f32[^=]* (?:all-reduce|reduce-scatter)(?:-start)?\(", program.as_text()))
        for name, program in programs.items()
    }
    exchanged = len(re.findall(r"= [^=]* all-to-all(?:-start)?\(", programs["ordered"].as_text()))
    return {
        "gap": max(gap(a, b) for a, b in zip(made["xla"], made["ordered"], strict=True)),
        "reduced": reduced,
        "exchanged": exchanged,
    }


def ragged_sizes():
    """Programs over 1,000 ragged batches: each combination of sizes is one."""
    found = {}
    for exchange in ("pooled", "rows"):
        emb = sp.Embedder(features(sp.rules.SGD(0.1)), mesh=mesh(), exchange=exchange)
        sizes, seen = sp.Sizes(), set()
        for i in range(1000):
            measured = emb.measure(inputs(np.random.default_rng(i), 24))
            room = sizes.fit(measured.loose)
            assert all(room[name] >= need for name, need in measured.loose.items())
            seen.add(tuple(sorted(room.items())))
        again = sp.Sizes(sizes.learned)
        room = again.fit(emb.measure(inputs(np.random.default_rng(3), 24)).loose)
        found[exchange] = {"programs": len(seen), "new": tuple(sorted(room.items())) not in seen}
    return found


def automatic():
    """Long bags are pooled; ids that repeat over and over travel as rows. Learned sizes bring the choice back."""
    table = sp.TableSpec(name="t", vocabulary_size=1000, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    found = {}
    for name, ids in {"bags": np.arange(960).reshape(24, 40), "hot": np.arange(24) % 2}.items():
        emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)], mesh=mesh())
        sizes = sp.Sizes()
        emb.pack({"f": ids}, sizes=sizes)
        again = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)], mesh=mesh())
        again.pack({"f": np.arange(24)}, sizes=sp.Sizes(sizes.learned))
        found[name] = [emb.sharded.exchanges["t"], again.sharded.exchanges["t"]]
    return found


def counted_traffic():
    """The bytes of a batch are those of the arrays that it is packed into."""
    found = {}
    count = len(jax.devices())
    for exchange in ("pooled", "rows"):
        emb = sp.Embedder(features(sp.rules.SGD(0.1)), mesh=mesh(), exchange=exchange)
        measured = emb.measure(inputs(np.random.default_rng(0), 24))
        room = sp.Sizes().fit(measured.loose)
        packed = measured.pack(room)
        for name, one in emb.sharded.traffic(measured, room).items():
            lookups = packed.lookups[name]
            ids = lookups.block if exchange == "pooled" else lookups.send
            pair = lookups.sums if exchange == "pooled" else lookups.send.shape[1]
            dim = next(stack.dim for stack in emb.stacks if stack.name == name)
            held = (ids.nbytes // count**2 + 2 * pair * dim * 4) * (count - 1)
            fits = 0 <= one.padding < 1 <= one.fullest and one.vectors.max() <= one.room
            found[f"{exchange} {name}"] = bool(one.sent == held and fits and one.exchange == exchange)
    return found


def views():
    """First values block by block, tables and slots replaced, small blocks; and `init` inside a program."""
    blocks.BLOCK_BYTES = blocks.placed.__kwdefaults__["block_bytes"] = 512
    initializers.BLOCK_VALUES = 64
    jax.clear_caches()  # programs that were compiled before do not know the new limits
    specs = features(BY_NAME["partial_rowwise_adam"])
    one, many = sp.Embedder(specs, "xla"), sp.Embedder(specs, "xla", mesh=mesh())
    state, theirs = one.init(jax.random.key(3)), many.init(jax.random.key(3))
    found = {"init": compare(one, many, state, theirs)["same"]}
    for name, table in one.tables.items():
        rng = np.random.default_rng(len(name))
        new = rng.normal(size=(table.vocabulary_size, table.embedding_dim)).astype(np.float32)
        slots = {k: rng.normal(size=v.shape).astype(np.float32) for k, v in one.slots(state, name).items()}
        state, theirs = (e.with_table(s, name, new) for e, s in ((one, state), (many, theirs)))
        state, theirs = (e.with_slots(s, name, slots) for e, s in ((one, state), (many, theirs)))
    found["replaced"] = compare(one, many, state, theirs)["same"]
    inside = jax.jit(many.init)(jax.random.key(3))
    found["inside"] = compare(one, many, one.init(jax.random.key(3)), inside)["same"]
    shapes = jax.eval_shape(many.init, jax.random.key(3))
    found["shapes"] = jax.tree.map(lambda a, b: a.shape == b.shape, shapes, theirs) == jax.tree.map(
        lambda _: True, theirs
    )
    layout = many.sharded.layouts[many.stacks[0].name]
    array = theirs.tables[many.stacks[0].name]
    pieces = list(blocks.pieces(many.shards, layout, array, (3, 200), block_bytes=256))
    rows = np.concatenate([rows for _, rows in sorted(pieces, key=lambda piece: piece[0])])
    whole = np.concatenate([many.table(theirs, table.name) for table in many.stacks[0].tables])
    found["pieces"] = same_bits(rows, whole[3:200]) and len(pieces) > 4
    return found


def exchanged_ahead():
    """Ids that travelled before the step change no bit; a capacity gives every batch the same shapes."""
    specs = features(sp.rules.Adagrad(0.1))
    emb = sp.Embedder(specs, mesh=mesh(), exchange="rows")
    state, batch = emb.init(jax.random.key(0)), emb.pack(inputs(np.random.default_rng(0), 24))
    ahead = jax.jit(emb.exchange)(batch)
    look = jax.jit(emb.lookup)
    a, b = look(state, batch), look(state, ahead)
    sizes = [jax.tree.map(jnp.shape, emb.pack(inputs(np.random.default_rng(i), 24), capacity=400)) for i in range(3)]
    return {
        "same": all(same_bits(a[k], b[k]) for k in a),
        "shapes": sizes[0] == sizes[1] == sizes[2],
        "as they are": of_one_size(emb.stacks, [batch, ahead]) == [batch, ahead],
    }


def layers():
    """NNX and Linen models with tables on the mesh: the losses of one device."""
    specs, batch = tuple(features(BY_NAME["adagrad"])), 24
    found = {}
    for name, where in (("one", None), ("mesh", mesh())):
        emb = sp.Embedder(specs, "native", mesh=where, exchange="pooled")

        class Nnx(flax.nnx.Module):
            def __init__(self, emb):
                self.embed = sp.nnx.Embed(emb, rngs=flax.nnx.Rngs(0))
                self.w = flax.nnx.Param(emb.on_its_devices(jnp.asarray(dense_params()["w"])))

            def __call__(self, batch):
                acts = self.embed(batch)
                return (jnp.concatenate([acts["watched"], acts["movie"], acts["tags"]], 1) @ self.w).sum(1)

        model = Nnx(emb)
        trainer = sp.nnx.Optimizer(model, optax.sgd(0.01), clip_global_norm=1.0)

        @functools.partial(flax.nnx.jit, donate_argnums=(0, 1))
        def step(model, trainer, batch, labels):
            def loss_fn(model):
                return jnp.mean((model(batch) - labels) ** 2)

            loss, grads = sp.nnx.value_and_grad(loss_fn)(model)
            trainer.update(model, grads)
            return loss

        class Linen(flax.linen.Module):
            @flax.linen.compact
            def __call__(self, batch, where=where):
                embed = sp.linen.Embed(specs, "native", where, exchange="pooled", name="embed")
                acts = embed(batch)
                return flax.linen.Dense(1)(jnp.concatenate([acts["watched"], acts["movie"]], 1))[:, 0]

        linen = Linen()

        @functools.partial(jax.jit, donate_argnums=0)
        def linen_step(state, batch, labels, linen=linen):
            def loss_fn(trainable):
                logits, seen = linen.apply({**state.variables, **trainable}, batch, mutable=["lookups"])
                return jnp.mean((logits - labels) ** 2), seen["lookups"]

            (loss, seen), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.trainable(batch))
            return state.apply_gradients(grads=grads, lookups=seen), loss

        sizes, losses, linen_losses, linen_state = sp.Sizes(), [], [], None
        for i in range(3):
            rng = np.random.default_rng(i)
            packed = emb.pack(inputs(rng, batch), sizes=sizes)
            labels = rng.standard_normal(batch).astype(np.float32)
            labels = labels if where is None else split(emb, labels)
            losses.append(float(step(model, trainer, packed, labels)))
            if linen_state is None:
                variables = linen.init(jax.random.key(0), packed)
                linen_state = sp.linen.TrainState.create(model=linen, variables=variables, tx=optax.sgd(0.01))
                linen_state = emb.on_its_devices(linen_state)
            linen_state, loss = linen_step(linen_state, packed, labels)
            linen_losses.append(float(loss))
        found[name] = [losses, linen_losses, np.asarray(model.embed.table("movies"))]
    return {f"layer {i}": gap(found["one"][i], found["mesh"][i]) for i in range(3)}


def message(f):
    try:
        f()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def refusals():
    """Mistakes, each with its message."""
    specs = features(sp.rules.SGD(0.1))
    emb, one = sp.Embedder(specs, "native", mesh=mesh()), sp.Embedder(specs, "native")
    state, theirs = one.init(jax.random.key(0)), emb.init(jax.random.key(0))
    batch, packed = emb.pack(inputs(np.random.default_rng(0), 24)), one.pack(inputs(np.random.default_rng(0), 24))
    rows = sp.TableSpec(name="r", vocabulary_size=64, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    plain = sp.Embedder([sp.FeatureSpec(name="r", table_spec=rows)], "native")
    sharded = jax.tree.map(lambda x: split(emb, x) if x.ndim else x, plain.init(jax.random.key(0)))
    few = plain.pack({"r": np.arange(8)})
    grads = {"r": np.ones((8, 4), np.float32)}
    return {
        "uneven": message(lambda: emb.pack(inputs(np.random.default_rng(0), 26))),
        "axis": message(lambda: sp.Embedder(specs, mesh=mesh(), axis="dat")),
        "mesh": message(lambda: sp.Embedder(specs, mesh=8)),
        "exchange": message(lambda: sp.Embedder(specs, mesh=mesh(), exchange="pool")),
        "inside": message(lambda: jax.jit(lambda s: emb.table(s, "movies"))(theirs)),
        "shape": message(lambda: emb.with_table(theirs, "movies", np.zeros((3, 6)))),
        "other batch": message(lambda: emb.lookup(theirs, packed)),
        "other mesh": message(lambda: one.lookup(state, batch)),
        "by hand, lookup": message(lambda: jax.jit(plain.lookup)(sharded, few)),
        "by hand, update": message(lambda: jax.jit(plain.update)(sharded, few, grads)),
        "by hand, eager": message(lambda: plain.lookup(sharded, few)),
    }


CHECKS = [
    equal,
    every_rule,
    axes,
    optimizer,
    split_params,
    step_program,
    ordered,
    dynamic,
    device_order,
    ragged_sizes,
    automatic,
    counted_traffic,
    views,
    exchanged_ahead,
    layers,
    refusals,
]
BY_CHECK = {check.__name__: check for check in CHECKS}

if __name__ == "__main__":
    found = {}
    for given in sys.argv[1:]:
        name, *arguments = given.split(":")
        found[given] = BY_CHECK[name](*arguments)
    print(json.dumps(found))
