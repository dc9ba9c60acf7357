"""Tables and slots of a mesh as arrays, and the messages of mistakes."""

import dataclasses
from unittest import mock

import jax
import numpy as np

import sparrow as sp
from sparrow.embedding import host_memory, initializers
from sparrow.embedding.sharding import blocks
from tests.embedding.sharding.checks.cases import BY_NAME, compare, features, inputs, mesh, same_bits, split


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

    def in_host_memory():
        """Of GPUs, whose memory is another one."""
        held = sp.FeatureSpec(name="r", table_spec=dataclasses.replace(rows, memory=sp.HostMemory(cache=0.5)))
        with mock.patch.object(host_memory, "is_apart", return_value=True):
            sp.Embedder([held], "native", mesh=mesh(), placement="device")

    return {
        "uneven": message(lambda: emb.pack(inputs(np.random.default_rng(0), 26))),
        "axis": message(lambda: sp.Embedder(specs, mesh=mesh(), axis="dat")),
        "mesh": message(lambda: sp.Embedder(specs, mesh=8)),
        "exchange": message(lambda: sp.Embedder(specs, mesh=mesh(), exchange="pool")),
        "host memory": message(in_host_memory),
        "inside": message(lambda: jax.jit(lambda s: emb.table(s, "movies"))(theirs)),
        "shape": message(lambda: emb.with_table(theirs, "movies", np.zeros((3, 6)))),
        "other batch": message(lambda: emb.lookup(theirs, packed)),
        "other mesh": message(lambda: one.lookup(state, batch)),
        "by hand, lookup": message(lambda: jax.jit(plain.lookup)(sharded, few)),
        "by hand, update": message(lambda: jax.jit(plain.update)(sharded, few, grads)),
        "by hand, eager": message(lambda: plain.lookup(sharded, few)),
    }
