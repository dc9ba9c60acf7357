"""Encoders and SASRec on two devices: prints whether values and gradients are those of one device.

A program of its own, because the number of devices must be set before JAX starts: `test_on_mesh` does.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import sparrow as sp
from sparrow.models import MLP, Inputs, SASRec, Tower
from sparrow.models.sequences import PoolingEncoder, SelfAttention, TargetAttention, WindowAttention

INPUTS = Inputs(acts={"item": 4}, sequences={"seen": 4}, groups={"history": ["seen"], "item": ["item"]})
BOTH = Inputs(acts={"item": 4}, sequences={"seen": 4}, groups={"both": ["seen", "item"]}).sequence_group("both")


def outputs(acts, seen):
    item, rngs = acts["item"], nnx.Rngs(0)
    sasrec = SASRec(INPUTS, item_tower=Tower("item"), max_length=3, dropout_ratio=0.0, rngs=rngs)
    return [
        PoolingEncoder(BOTH)(seen),
        SelfAttention(BOTH, multihead_attn_dim=4, num_heads=2, rngs=rngs)(seen),
        TargetAttention(BOTH, attn_mlp=MLP((8,)), rngs=rngs)(seen, item),
        WindowAttention(BOTH, attn_mlp=MLP((8,)), windows_len=(1, 2), rngs=rngs)(seen, item),
        sasrec({"item": item, "seen": seen}, {})["query"],
    ]


def run(mesh):
    items = sp.TableSpec(name="items", vocabulary_size=20, embedding_dim=4, optimizer=sp.rules.Adagrad(0.1))
    features = [
        sp.FeatureSpec(name="seen", table_spec=items, combiner=None),
        sp.FeatureSpec(name="item", table_spec=items),
    ]
    emb = sp.Embedder(features, mesh=mesh)
    batch = emb.pack({"seen": [[1, 2, 3], [], [4], [5, 6]], "item": [1, 2, 3, 4]})
    state = emb.init(jax.random.key(0))

    def step(state, batch):
        acts = emb.lookup(state, batch)

        def total(acts):
            made = outputs(acts, batch.jagged(acts)["seen"].pad(3)._replace(shards=emb.shards))
            return sum(jnp.sum(jnp.sin(array)) for array in made), made

        grads, made = jax.grad(total, has_aux=True)(acts)
        return made, emb.update(state, batch, grads)

    made, state = jax.jit(step)(state, batch)
    return [np.asarray(array) for array in (*made, emb.table(state, "items"))]


def main():
    alone = run(None)
    for kind in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit):
        for one, two in zip(alone, run(jax.make_mesh((2,), ("data",), axis_types=(kind,))), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
        print("equal", kind.name)


if __name__ == "__main__":
    main()
