"""Tables, batches and comparisons that the checks on a mesh share."""

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sparrow as sp
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
