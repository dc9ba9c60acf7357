"""Every computed column, from a config to a service: trained, exported, and served with the same numbers."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, exports, runs, serving
from sparrow.data import computed


@computed.register_function("test_word_length")
def word_length(words):
    return [len(word) for word in words.to_pylist()]


COMPUTED = {
    "lookup": {"map": "clicks", "key": "kind", "map_separator": "|"},
    "match": {"nested_map": "nested", "pkey": "kind", "skey": "size", "separator": "|"},
    "expr": {"expression": "log(price + 1) * size"},
    "combine": {"column": "tags", "values": {"red": 0.5, "big": 2.0}, "separator": "|", "combiner": "mean"},
    "overlap": {"query": "query", "title": "title", "method": "query_common_ratio", "separator": " "},
    "kv_dot_product": {"query": "clicks", "document": "weights", "separator": "|"},
    "edit_distance": {"first": "query", "second": "title"},
    "custom": {"function": "test_word_length", "arguments": ["title"]},
    "constant": {"value": 3},
}
"""The ones that are numbers."""
IDS = {
    "bucketize": {"column": "price", "boundaries": [0.3, 0.6]},
    "bool_mask": {"column": "tags", "mask": "marks", "separator": "|"},
    "regex_replace": {"column": "title", "pattern": " .*", "replacement": ""},
}
"""The ones that are ids."""
SEQUENCES = {
    "each": {"compute_each": {"name": "expr", "expression": "size - ages"}, "sequences": ["ages"], "separator": "|"}
}


def rows(count, seed=0):
    rng = np.random.default_rng(seed)

    def words(*choices):
        return [str(word) for word in rng.choice(choices, count)]

    return {
        "clicks": words("a:1|b:2", "b:3", "a:4|b:0|c:5"),
        "weights": words("a:2", "b:1|c:2"),
        "nested": words("a^1:2,2:3|b^1:4", "b^2:1"),
        "kind": words("a", "b"),
        "size": rng.integers(1, 3, count),
        "price": rng.random(count),
        "tags": words("red|big", "big|green"),
        "marks": words("true|false", "1|1", "0|true"),
        "query": words("red shoes", "big hat"),
        "title": words("red hat", "green shoes", "hat"),
        "ages": words("1|2|3", "4", ""),
        "click": rng.integers(0, 2, count),
    }


def described(files):
    table = {"hash_bucket_size": 50, "embedding_dim": 4}
    features = [{"kind": "raw", "name": name, "compute": {"name": name, **fields}} for name, fields in COMPUTED.items()]
    features += [
        {"kind": "id", "name": name, "compute": {"name": name, **fields}, "pooling": "sum", **table}
        for name, fields in IDS.items()
    ]
    features += [
        {"kind": "raw_sequence", "name": name, "compute": {"name": name, **fields}, "max_length": 3}
        for name, fields in SEQUENCES.items()
    ]
    single = [*COMPUTED, *IDS]
    return {
        "data": {"train": {"name": "parquet", "path": files}, "features": features},
        "model": {
            "architecture": {"name": "multi_tower", "towers": [{"input": "all"}]},
            "groups": {"all": single, "history": list(SEQUENCES)},
            "encoders": {"all": [{"name": "pooling_encoder", "input": "history", "pooling_type": "sum"}]},
        },
        "tasks": {"click": {"label": "click", "losses": ["binary_cross_entropy"]}},
        "train": {
            "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
            "batch_size": 16,
            "steps": 4,
        },
    }


def test_every_shipped_computed_column_is_here():
    shipped = {name for name in computed.registry.names() if computed.registry[name].__module__.startswith("sparrow.")}
    assert {*COMPUTED, *IDS, *SEQUENCES} == shipped


@pytest.mark.slow
def test_an_export_computes_what_training_did(tmp_path):
    columns = rows(48)
    files = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), files)
    run = runs.train(config.from_mapping(described(str(files))), tmp_path / "run", stream=io.StringIO())
    program, state = runs.load(tmp_path / "run")
    runs.predict(program, state, str(files), tmp_path / "predicted.parquet")
    expected = pq.read_table(tmp_path / "predicted.parquet")["click"].to_numpy()
    assert np.ptp(expected) > 0.01
    exports.export(program, state, tmp_path / "export")
    model = serving.load(tmp_path / "export")
    request = {name: list(values)[:7] for name, values in columns.items() if name != "click"}
    np.testing.assert_allclose(model.predict(request)["click"], expected[:7], rtol=1e-5, atol=1e-6)
    assert run.steps == 4
