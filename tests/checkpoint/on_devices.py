"""Saves or restores the tables of a mesh of all devices. Run by test_mesh.py as ``on_devices.py save|load FOLDER``.

``on_devices.py load FOLDER... ADDRESS/PROCESSES/NUMBER``: as one of several processes.
"""

import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import AxisType

import sparrow as sp
from sparrow import processes
from sparrow.checkpoint import Checkpoints, Saved, placed, rows_of, spread
from sparrow.embedding import CHECKPOINTS
from sparrow.embedding.sharding import blocks

ROWS = {"movies": 211, "users": 57, "pair": 2}


def embedder():
    """Tables of one stack and of another, one of them smaller than the mesh; small blocks, so that there are many."""
    rules = {"movies": sp.rules.Adam(0.1), "users": sp.rules.Adam(0.1), "pair": sp.rules.RowwiseAdagrad(0.1)}
    dtypes = {"movies": "float32", "users": "float32", "pair": "bfloat16"}
    specs = [
        sp.TableSpec(name=name, vocabulary_size=ROWS[name], embedding_dim=6, optimizer=rules[name], dtype=dtypes[name])
        for name in ROWS
    ]
    features = [sp.FeatureSpec(name=spec.name, table_spec=spec) for spec in specs]
    count = len(jax.devices())
    mesh = None if count == 1 else jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,))
    return sp.Embedder(features, mesh=mesh)


def filled(emb):
    """The same values on any mesh, in tables and slots."""
    state = emb.init(jax.random.key(1))
    for name in emb.tables:
        rng = np.random.default_rng(len(name))
        slots = {slot: rng.random(np.shape(x), np.float32) for slot, x in emb.slots(state, name).items()}
        state = emb.with_slots(state, name, slots)
    return state


def same(emb, state, other):
    pairs = [(emb.table(state, name), emb.table(other, name)) for name in emb.tables]
    pairs += [(x, emb.slots(other, name)[slot]) for name in emb.tables for slot, x in emb.slots(state, name).items()]
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def save(folder):
    emb = embedder()
    checkpoints = Checkpoints(folder)
    checkpoints.save(1, rows_of(emb, filled(emb)), {}, {})
    checkpoints.close()
    files = sorted((folder / "1" / "tables").iterdir())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def load(folder):
    emb = embedder()
    fresh, saved = emb.init(jax.random.key(2)), Saved(folder / "1")
    keys = list(rows_of(emb, jax.eval_shape(emb.init, jax.random.key(0))))
    expected = filled(emb)
    found = {"different": not same(emb, expected, fresh)}
    state = placed(emb, fresh, keys, saved.rows)
    return found | {"same": same(emb, expected, state)}


def digest(emb, state):
    arrays = [np.asarray(emb.table(state, name)) for name in emb.tables]
    arrays += [np.asarray(x) for name in emb.tables for _, x in sorted(emb.slots(state, name).items())]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def chain(folder):
    """Save a full checkpoint and three links of steps in between."""
    emb, rng = embedder(), np.random.default_rng(0)
    state, checkpoints = emb.tracked(filled(emb)), Checkpoints(folder)
    checkpoints.save(1, rows_of(emb, state), {}, {})
    for step in (2, 3, 4):
        batch = emb.pack({name: rng.integers(0, rows, 12) for name, rows in ROWS.items()})
        state = jax.jit(emb.update)(state, batch, {name: np.ones((12, 6), np.float32) * step for name in ROWS})
        state, changed = emb.taken(state, CHECKPOINTS)
        checkpoints.save_link(step, changed, {}, {})
    checkpoints.close()
    return {"digest": digest(emb, state), "rows": sum(len(own.rows) for own in changed().values())}


def restored(folder):
    emb = embedder()
    fresh = emb.init(jax.random.key(2))
    keys = list(rows_of(emb, jax.eval_shape(emb.init, jax.random.key(0))))
    return {"digest": digest(emb, placed(emb, fresh, keys, Saved(folder / "4").rows))}


def largest(folder):
    """The largest block that the host or all devices together hold, beside the size of the table."""
    emb, held = embedder(), []
    state, fresh = filled(emb), emb.init(jax.random.key(2))
    in_order, put_parts = blocks._in_order, type(emb.shards).put_parts

    def noted(made):
        held.append(made.nbytes)
        return made

    blocks._in_order = lambda *given: noted(in_order(*given))
    type(emb.shards).put_parts = lambda *given: noted(put_parts(*given))
    tables = rows_of(emb, state)
    saved = {key: np.concatenate(list(rows.blocks())) for key, rows in tables.items()}

    def read(key):
        return SimpleNamespace(between=lambda first, last: saved[key][first:last], check=lambda: None)

    placed(emb, fresh, list(tables), read)
    return {"blocks": len(held), "largest": max(held), "table": ROWS["movies"] * 6 * 4}


def own_state(emb, embedding):
    """The state of a loop: of an embedder, of optax, and numbers."""
    opt = optax.adam(0.1).init({"w": np.ones(3, np.float32)})
    put = emb.on_its_devices
    return {"embedding": embedding, "opt": put(opt), "at": [put(np.full(2, 3.0, np.float32))]}


def orbax_save(folder):
    emb = embedder()
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder.absolute(), own_state(emb, filled(emb)))
    return {}


def orbax_load(folder):
    emb = embedder()
    fresh = jax.tree.map(lambda leaf: leaf + leaf.dtype.type(1), own_state(emb, emb.init(jax.random.key(2))))
    found = {"different": not same(emb, filled(emb), fresh["embedding"]), "orbax": ""}
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.restore(folder.absolute(), jax.tree.map(lambda leaf: leaf, fresh))
    except ValueError as error:
        found["orbax"] = str(error)
    state = sp.checkpoint.restore_orbax(folder, fresh, emb)
    emb.update(state["embedding"], emb.pack({name: [0] * 6 for name in ROWS}), {name: np.ones((6, 6)) for name in ROWS})
    others = [state["at"][0].tolist(), int(state["opt"][0].count), int(state["embedding"].step)]
    return found | {"same": same(emb, filled(emb), state["embedding"]), "others": others}


def load_all(folders):
    return {folder.name: load(folder) for folder in folders}


if __name__ == "__main__":
    spread.BLOCK_BYTES = 1024
    what, *folders = sys.argv[1:]
    if folders[-1].count("/") == 2 and ":" in folders[-1]:
        address, count, number = folders.pop().split("/")
        processes.join(processes.Membership(address, int(count), int(number)))
    paths = [Path(folder) for folder in folders]
    if what == "load" and len(paths) > 1:
        found = load_all(paths)
    else:
        commands = {"save": save, "load": load, "largest": largest, "chain": chain, "restored": restored}
        commands |= {"orbax-save": orbax_save, "orbax-load": orbax_load}
        found = commands[what](paths[0])
    if processes.is_first():
        print(json.dumps(found), flush=True)
    processes.leave()
