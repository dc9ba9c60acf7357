"""Semantic ids: both models against plain statements in NumPy, float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow.losses import Reconstruction
from sparrow.models import Inputs, SidRqkmeans, SidRqvae, functional
from sparrow.models.retrievers.kmeans import kmeans, residual_kmeans
from sparrow.models.retrievers.sid_rqvae import rotated, sinkhorn

RNG = np.random.default_rng(7)
CENTERS = RNG.normal(size=(12, 6))
X = (CENTERS[RNG.integers(0, 12, 300)] + 0.1 * RNG.normal(size=(300, 6))).astype(np.float32)
INPUTS = Inputs(acts={}, numbers={"vector": 6}, groups={"item": ["vector"]})
PAIRS = Inputs(
    acts={},
    numbers={"vector": 6, "other": 6, "is_pair": 1},
    groups={"item": ["vector"], "pair": ["other"], "flag": ["is_pair"]},
)


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def squares(x, c):
    return ((x[:, None] - c[None]) ** 2).sum(axis=-1)


def plain_kmeans(x, c, iterations, spherical=False):
    """Lloyd's iterations from centroids c on; one without rows takes a row that is farthest from its own."""
    for _ in range(iterations):
        far = squares(x, c)
        codes, farthest = far.argmin(axis=1), iter(np.argsort(-far.min(axis=1), kind="stable"))
        c = np.stack([x[codes == k].mean(axis=0) if (codes == k).any() else x[next(farthest)] for k in range(len(c))])
        c = unit(c) if spherical else c
    return c


def first_rows(x, count, seed):
    drawn = np.asarray(jax.random.uniform(jax.random.key(seed), (len(x),)))
    return x[np.argsort(-drawn, kind="stable")[:count]]


def plain_codes(x, tables, normalize=False):
    """Codes, and the sum of the entries."""
    codes, total, rest = [], np.zeros_like(x), x
    for table in tables:
        rest = unit(rest) if normalize else rest
        codes.append(squares(rest, table).argmin(axis=1))
        total, rest = total + table[codes[-1]], rest - table[codes[-1]]
    return np.stack(codes, axis=1), total


@pytest.mark.parametrize("spherical", [False, True])
def test_kmeans_is_lloyds(spherical):
    x = X.astype(np.float64)
    start = first_rows(x, 20, 3)
    start = unit(start) if spherical else start
    made = kmeans(jnp.asarray(X), jnp.ones(300), 20, iterations=6, spherical=spherical, seed=3)
    np.testing.assert_allclose(made, plain_kmeans(x, start, 6, spherical), rtol=0, atol=2e-6)


def test_a_centroid_without_rows_moves_to_the_farthest():
    x = np.array([[0.0], [0.0], [0.0], [5.0], [9.0]], np.float32)
    made = kmeans(jnp.asarray(x), jnp.ones(5), 3, iterations=4, spherical=False, seed=0)
    assert sorted(np.asarray(made)[:, 0].tolist()) == [0.0, 5.0, 9.0]  # whatever rows it began with


def test_rows_of_weight_0_are_in_no_centroid():
    padded = jnp.concatenate([jnp.asarray(X), jnp.full((5000, 6), 100.0)])  # several blocks
    there = jnp.concatenate([jnp.ones(300), jnp.zeros(5000)])
    made = residual_kmeans(padded, there, (8, 8), iterations=5)
    assert max(float(jnp.abs(centroids).max()) for centroids in made) < 10


@pytest.mark.parametrize("normalize", [False, True])
def test_rqkmeans_fits_its_sample_layer_by_layer(normalize):
    model = SidRqkmeans(INPUTS, codebook=(8, 6), iterations=5, normalize_residuals=normalize, rngs=nnx.Rngs(0))
    first = model({}, {"vector": jnp.asarray(X)})
    np.testing.assert_array_equal(first["reconstruction"], 0)  # the loss of a batch is of centroids before it
    rest, tables = np.concatenate([X, np.zeros((8 * 256 - 300, 6), np.float32)]).astype(np.float64), []
    for layer, count in enumerate((8, 6)):
        rest = unit(rest) if normalize else rest
        drawn = np.asarray(jax.random.uniform(jax.random.key(1234 + layer), (len(rest),)))
        start = rest[:300][np.argsort(-drawn[:300], kind="stable")[:count]]
        tables.append(plain_kmeans(rest[:300], start, 5))
        rest = rest - tables[-1][squares(rest, tables[-1]).argmin(axis=1)]
    for made, table in zip(model.centroids, tables, strict=True):
        np.testing.assert_allclose(made[...], table, rtol=0, atol=2e-6)
    model.eval()
    outputs = model({}, {"vector": jnp.asarray(X)})
    codes, total = plain_codes(X.astype(np.float64), tables, normalize)
    np.testing.assert_array_equal(outputs["codes"], codes)
    np.testing.assert_allclose(outputs["reconstruction"], total, rtol=0, atol=2e-6)


def test_rqkmeans_keeps_a_uniform_sample_and_fits_again_when_rows_have_doubled():
    model = SidRqkmeans(INPUTS, codebook=(4,), sample_size=40, iterations=2, rngs=nnx.Rngs(0))
    apply, params, rest = functional(model)
    assert not jax.tree.leaves(params)
    step = jax.jit(lambda rest, x: apply.train({}, rest, {}, {"vector": x})[1])
    fits, held = [], rest["centroids"]
    for number in range(100):
        rest = step(rest, jnp.full((10, 6), float(number)) + jnp.arange(10)[:, None] / 10)
        if not np.array_equal(held[0], rest["centroids"][0]):
            fits.append(number + 1)
        held = rest["centroids"]
    assert fits == [1, 2, 4, 8, 16, 32, 64]
    sample = np.asarray(rest["sample"])[:, 0]
    assert len(np.unique(sample)) == 40  # no row twice
    assert 35 < sample.mean() < 65  # of all steps, not of the last ones
    assert int(rest["seen"]) == 1000


def numbers(model):
    return [np.asarray(entries[...], np.float64) for entries in model.entries]


def layers(x, mlp, last):
    for layer in mlp.layers:
        x = np.maximum(x @ np.asarray(layer.linear.kernel[...]) + np.asarray(layer.linear.bias[...]), 0)
    return x @ np.asarray(last.kernel[...]) + np.asarray(last.bias[...])


def plain_sinkhorn(cost, iters=5, epsilon=10.0):
    cost = (cost - cost.mean()) / (cost.std() + 1e-12)
    q = np.exp(-(cost - cost.min()) * epsilon).T
    q /= q.sum() + 1e-8
    for _ in range(iters):
        q /= (q.sum(axis=1, keepdims=True) + 1e-8) * len(q)
        q /= (q.sum(axis=0, keepdims=True) + 1e-8) * q.shape[1]
    return q.T.argmax(axis=1)


def test_sinkhorn_uses_all_codes():
    cost = np.random.default_rng(0).normal(size=(64, 8)) ** 2 + np.arange(8)  # the first is nearest to most rows
    codes = np.asarray(sinkhorn(jnp.asarray(cost, jnp.float32), 5, 10.0))
    np.testing.assert_array_equal(codes, plain_sinkhorn(cost))
    assert np.bincount(codes, minlength=8).max() < np.bincount(cost.argmin(axis=1), minlength=8).max()


@pytest.mark.parametrize("kind", ["l2", "l1", "cos"])
@pytest.mark.parametrize("balanced", [False, True])
def test_rqvae_codes_and_losses(kind, balanced):
    options = {"sinkhorn_iters": 5 if balanced else 0, "commitment_type": kind, "latent_weight": (0.7, 0.2)}
    model = SidRqvae(INPUTS, codebook=(8, 5), embed_dim=4, hidden_dims=(7,), **options, rngs=nnx.Rngs(1))
    made = model({}, {"vector": jnp.asarray(X)})
    x = X.astype(np.float64)
    z = layers(x, model.encoder, model.encoded)
    rest, total, apart = z, np.zeros_like(z), []
    for layer, table in enumerate(numbers(model)):
        far = squares(rest, table)
        codes = plain_sinkhorn(far) if balanced else far.argmin(axis=1)
        np.testing.assert_array_equal(made["codes"][:, layer], codes)
        total, rest = total + table[codes], rest - table[codes]
        difference = z - total
        apart.append(
            {"l2": (difference**2).mean(), "l1": np.abs(difference).mean()}.get(kind, 1)
            if kind != "cos"
            else 1 - (unit(z) * unit(total)).sum(axis=1).mean()
        )
    np.testing.assert_allclose(made["loss/commitment"], 0.9 * np.mean(apart), rtol=2e-6)
    again = layers(total, model.decoder, model.decoded)
    np.testing.assert_allclose(made["reconstruction"], again, rtol=0, atol=5e-6)
    value = {
        "l2": ((x - again) ** 2).mean(axis=1),
        "l1": np.abs(x - again).mean(axis=1),
        "cos": 1 - (unit(x) * unit(again)).sum(axis=1),
    }[kind]
    np.testing.assert_allclose(Reconstruction(kind)(made), value, rtol=1e-5, atol=2e-6)


def test_gradients_go_straight_through_and_each_way_of_the_commitment():
    model = SidRqvae(INPUTS, codebook=(8,), embed_dim=4, hidden_dims=(7,), latent_weight=(1.0, 0.5), rngs=nnx.Rngs(1))
    apply, params, rest = functional(model)

    def loss(params, weight, near, far):
        fresh = nnx.merge(apply.training, params, rest)
        fresh.latent_weight = (near, far)
        made = fresh({}, {"vector": jnp.asarray(X)})
        return weight * Reconstruction()(made).mean() + made["loss/commitment"]

    gradient = jax.jit(jax.grad(loss))
    by = {
        name: gradient(params, *given)
        for name, given in {"made": (1.0, 0.0, 0.0), "near": (0.0, 1.0, 0.0), "far": (0.0, 0.0, 1.0)}.items()
    }
    moves = {
        name: {
            part: bool(jnp.abs(jax.flatten_util.ravel_pytree(grad[part])[0]).max() > 0)
            for part in ("encoder", "entries", "decoder")
        }
        for name, grad in by.items()
    }
    assert moves == {
        "made": {"encoder": True, "entries": False, "decoder": True},
        "near": {"encoder": True, "entries": False, "decoder": False},
        "far": {"encoder": False, "entries": True, "decoder": False},
    }


def test_rotation_trick_turns_the_gradient():
    x, q = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([[0.0, 3.0, 0.0]])
    np.testing.assert_allclose(rotated(x, q), q, atol=1e-6)
    jacobian = np.asarray(jax.jacobian(rotated)(x, q))[0, :, 0]
    np.testing.assert_allclose(jacobian @ [1, 0, 0], [0, 1.5, 0], atol=1e-6)  # along x: along q, scaled by 3 / 2
    np.testing.assert_allclose(jacobian @ jacobian.T, 2.25 * np.eye(3), atol=1e-5)  # a rotation, scaled


def test_contrastive_loss_is_of_pairs_alone():
    model = SidRqvae(
        PAIRS, codebook=(8,), embed_dim=4, hidden_dims=(7,), pair="pair", pair_flag="flag", rngs=nnx.Rngs(2)
    )
    b = X[::-1] * 0.9
    is_pair = np.arange(300) % 3 == 0
    given = {"vector": jnp.asarray(X), "other": jnp.asarray(b), "is_pair": jnp.asarray(is_pair[:, None], jnp.float32)}
    made = model({}, given)
    second = model({}, {**given, "vector": jnp.asarray(b)})["reconstruction"]
    a_hat, b_hat = (unit(np.asarray(each, np.float64))[is_pair] for each in (made["reconstruction"], second))
    a_own, b_own = X[is_pair].astype(np.float64), b[is_pair].astype(np.float64)

    def entropy(own, others):
        logits = own @ others.T / 0.07
        return (np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1) - np.diag(logits)).mean()

    pairs = [(b_hat, a_hat), (b_own, a_own), (a_own, b_own)]
    expected = np.mean([(entropy(a_hat, to_a) + entropy(b_hat, to_b)) / 2 for to_a, to_b in pairs])
    np.testing.assert_allclose(made["loss/contrastive"], expected, rtol=1e-5)
    values = Reconstruction()(made)
    single = ((np.asarray(made["reconstruction"]) - X) ** 2).mean(axis=1)[~is_pair].mean()
    np.testing.assert_allclose(values.mean(), single, rtol=1e-6)
    np.testing.assert_array_equal(values[is_pair], 0)


def test_kmeans_init_starts_from_the_first_batch_and_learns_on():
    model = SidRqvae(INPUTS, codebook=(8, 8), embed_dim=4, hidden_dims=(7,), kmeans_init=True, rngs=nnx.Rngs(1))
    z = model.encoded(model.encoder(jnp.asarray(X)))
    tables = model._tables(z)
    expected = residual_kmeans(z, jnp.ones(300), (8, 8), iterations=10, seed=123)
    for table, centroids in zip(tables, expected, strict=True):
        np.testing.assert_allclose(table, centroids, rtol=0, atol=1e-6)
    again = model._tables(z * 2)  # no second start
    np.testing.assert_array_equal(again[0], tables[0])
    with pytest.raises(ValueError, match="kmeans_init needs batches of at least 8 rows"):
        model({}, {"vector": jnp.asarray(X[:5])})


@pytest.mark.parametrize(
    "options",
    [{"forward_mode": "gumbel_softmax", "sinkhorn_iters": 0}, {"rotation_trick": True}, {"distance_type": "cosine"}],
)
def test_other_ways_train(options):
    model = SidRqvae(INPUTS, codebook=(8, 8), embed_dim=4, hidden_dims=(16,), **options, rngs=nnx.Rngs(1))
    apply, params, rest = functional(model)

    @jax.jit
    def step(params, rest):
        def loss(params):
            made, new = apply.train(params, rest, {}, {"vector": jnp.asarray(X)})
            return Reconstruction()(made).mean() + made["loss/commitment"], new

        (value, rest_), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), rest_, value

    values = []
    for _ in range(60):
        params, rest, value = step(params, rest)
        values.append(float(value))
    assert np.mean(values[-10:]) < 0.8 * np.mean(values[:10])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codebook": ()}, "codebook must be the sizes"),
        ({"codebook": (0,)}, "codebook must be an integer"),
        ({"codebook": (4,), "pair": "pair"}, "go together"),
        ({"codebook": (4,), "forward_mode": "gumbel_softmax"}, "set sinkhorn_iters to 0"),
        ({"codebook": (4,), "pair": "flag", "pair_flag": "pair"}, "one number; got 1 and 6"),
    ],
)
def test_mistakes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SidRqvae(PAIRS if "pair_flag" in options else INPUTS, **options, rngs=nnx.Rngs(0))


def test_a_sample_below_the_codebook_is_refused():
    with pytest.raises(ValueError, match="sample_size must be at least 8"):
        SidRqkmeans(INPUTS, codebook=(8,), sample_size=4, rngs=nnx.Rngs(0))
