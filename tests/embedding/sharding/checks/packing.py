"""Sizes, exchanges and traffic of batches on a mesh."""

import jax
import jax.numpy as jnp
import numpy as np

import sparrow as sp
from sparrow.embedding import of_one_size
from tests.embedding.sharding.checks.cases import features, inputs, mesh, same_bits

MIXED = {"movies": "columns", "users": "replicated", "pair": "replicated", "half": "device"}


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
            dim = next(stack.dim for stack in emb.stacks if stack.name == name)
            held = (lookups.block.nbytes // count**2 + 2 * lookups.vectors * dim * 4) * (count - 1)
            fits = 0 <= one.padding < 1 <= one.fullest and one.vectors.max() <= one.room
            found[f"{exchange} {name}"] = bool(one.sent == held and fits and one.exchange == exchange)
    return found


def exchanged_ahead():
    """Ids that traveled before the step change no bit; a capacity gives every batch the same shapes."""
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


def patched(exchange, *placement):
    """Activations of the next batch, fetched before an update and patched after it, beside a lookup after it."""
    specs, placement = features(sp.rules.Adagrad(0.1)), placement[0] if placement else "rows"
    placement = MIXED if placement == "mixed" else placement
    emb = sp.Embedder(specs, mesh=mesh(), exchange=exchange, placement=placement)
    state, batch = emb.init(jax.random.key(0)), 6 * len(jax.devices())
    now, after = (emb.pack(inputs(np.random.default_rng(i), batch), sizes=sp.Sizes()) for i in range(2))

    @jax.jit
    def step(state):
        grads = emb.row_grads(now, jax.tree.map(jnp.ones_like, emb.lookup(state, now)))
        fetched, new = emb.fetch(state, after), emb.apply(state, grads)
        blank = fetched._replace(vectors=jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), fetched.vectors))
        found = [emb.patch(new, given, own) for given, own in ((fetched, grads), (fetched, None), (blank, grads))]
        return *found, emb.lookup(new, after)

    made, unpatched, sent, wanted = step(state)
    touched, ids = (inputs(np.random.default_rng(i), batch)["distinct"] for i in range(2))
    again = np.isfinite(np.asarray(sent["distinct"])).all(axis=1)
    others = [inputs(np.random.default_rng(0), batch)[name] for name in ("strided", "same")]
    return {
        "same": all(same_bits(made[name], wanted[name]) for name in wanted),
        "matters": any(not same_bits(unpatched[name], wanted[name]) for name in wanted),
        "only touched": bool((again == np.isin(ids, np.concatenate([touched, *others]))).all()),
        "some stay": bool((~again).any()),
    }
