"""The compiled step on a mesh, and sums in the order of devices."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparrow as sp
from sparrow.embedding import in_device_order, initializers
from tests.embedding.sharding.checks.cases import BY_NAME, features, gap, mesh, split


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
    exchanged = 2 * len(jax.devices()) * lookups.vectors * dim * 4 + lookups.block.nbytes // len(jax.devices())

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
