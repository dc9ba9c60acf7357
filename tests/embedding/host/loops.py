"""Training loops with tables on the device and in host memory, whose results are compared byte by byte."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import sparrow as sp

ROWS = (600, 400, 300)


def zipf(generator, rows, count, exponent=1.05):
    height = (rows ** (1 - exponent) - 1) * generator.random(count) + 1
    ranks = np.minimum((height ** (1 / (1 - exponent))).astype(np.int64), rows) - 1
    return (ranks * 2654435761 + 7) % rows


def features(rule, memory=None, dim=4, rows=ROWS, **options):
    """Three tables, one of them read by two features, one of them with bags."""
    tables = [
        sp.TableSpec(
            name=f"t{i}",
            vocabulary_size=size,
            embedding_dim=dim,
            optimizer=rule,
            combiner="mean",
            memory=memory,
            **options,
        )
        for i, size in enumerate(rows)
    ]
    return [
        sp.FeatureSpec(name="a", table_spec=tables[0]),
        sp.FeatureSpec(name="b", table_spec=tables[1]),
        sp.FeatureSpec(name="bag", table_spec=tables[1]),
        sp.FeatureSpec(name="c", table_spec=tables[2]),
    ]


def batches(rows, steps, size, seed=1):
    """Pairs of inputs and labels."""
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        lengths = generator.integers(0, 3, size)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        inputs = {
            "a": zipf(generator, rows[0], size),
            "b": zipf(generator, rows[1], size),
            "bag": sp.Ragged(zipf(generator, rows[1], int(offsets[-1])), offsets),
            "c": zipf(generator, rows[2], size),
        }
        yield inputs, generator.integers(0, 2, size).astype(np.float32)


def loss_of(acts, labels):
    logits = sum(jnp.sum(jnp.sin(x * (i + 1)), axis=1) for i, x in enumerate(acts.values()))
    return jnp.mean(jnp.logaddexp(0.0, logits) - labels * logits)


def step_of(emb, clip=None):
    def step(state, packed, labels):
        total, loss = None, 0.0
        for batch, own in zip(packed, labels, strict=True):
            value, grads = jax.value_and_grad(loss_of)(emb.lookup(state, batch), own)
            grads = emb.row_grads(batch, grads)
            total, loss = grads if total is None else total + grads, loss + value
        if clip is not None:
            total = total.scale(1.0 / jnp.maximum(1.0, total.global_norm() / clip))
        return emb.apply(state, total), loss

    return jax.jit(step, donate_argnums=0)


def on_device(specs, given, accumulate=1, clip=None, backend="auto"):
    """Return tables and slots, and the losses."""
    specs = [dataclasses.replace(s, table_spec=dataclasses.replace(s.table_spec, memory=None)) for s in specs]
    emb = sp.Embedder(specs, backend=backend)
    state, step, losses = emb.init(jax.random.key(0)), step_of(emb, clip), []
    sizes, given = sp.Sizes(), list(given)
    for at in range(0, len(given), accumulate):
        group = given[at : at + accumulate]
        packed = [emb.pack(inputs, sizes=sizes) for inputs, _ in group]
        state, loss = step(state, packed, [labels for _, labels in group])
        losses.append(loss)
    return {name: (np.asarray(emb.table(state, name)), emb.slots(state, name)) for name in emb.tables}, np.array(losses)


def cached(specs, given, accumulate=1, clip=None, backend="auto", change=lambda session: None, **options):
    """Return the same, of tables in host memory; and the session."""
    emb = sp.Embedder(specs, backend=backend)
    session = emb.session(accumulate=accumulate, **options)
    state, step, losses = session.init(jax.random.key(0)), step_of(emb, clip), []
    change(session)
    for staged in session.stream(given, sizes=sp.Sizes()):
        state = session.advance(state, staged)
        state, loss = step(state, list(staged.batches), list(staged.others))
        losses.append(loss)
    held = {name: (session.table(state, name), session.slots(state, name)) for name in emb.tables}
    session.close()
    return held, np.array(losses), session


def differing(a, b):
    """The number of bytes that differ."""
    count = 0
    for name in a:
        pairs = [(a[name][0], b[name][0]), *((a[name][1][slot], b[name][1][slot]) for slot in a[name][1])]
        for x, y in pairs:
            x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
            assert x.shape == y.shape
            assert x.dtype == y.dtype
            count += int((x.view(np.uint8) != y.view(np.uint8)).sum())
    return count
