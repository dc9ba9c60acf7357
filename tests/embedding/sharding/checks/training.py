"""`sp.Optimizer` and Flax layers with tables on a mesh."""

import functools

import flax.linen
import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sparrow as sp
from tests.embedding.sharding.checks.cases import BY_NAME, EACH, features, gap, inputs, mesh, split


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
