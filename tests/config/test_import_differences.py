"""Differences from TorchEasyRec that are on purpose, as docs/config.md lists them: each is what the docs promise."""

import jax
import numpy as np
import pyarrow as pa
import pytest
from flax import nnx

import sparrow as sp
from sparrow import config, losses, models
from sparrow.config import assemble
from sparrow.data.errors import Problems
from sparrow.tasks import Scores
from tests.config.family.parts import BCE, RECALL, SINGLE, TOWERS, USER_ITEM, group, ids
from tests.config.family.parts import config as family_config
from tests.config.test_import_semantics import FINAL, PATHS


def imported(features, names, more="", **options):
    model = f"{group('all', names, more=more)} {FINAL} {BCE}"
    return config.import_config(family_config("x", features, model, **options), "x.config", PATHS)


def test_a_weighted_mean_divides_by_the_weights():
    made = imported([ids("u", more='num_buckets: 9 value_dim: 0 weighted: true separator: "|" pooling: "mean"')], ["u"])
    bags = made.data.features[0].convert(pa.RecordBatch.from_pydict({"u": ["1:1|2:3"]}), Problems(1))
    embedder = sp.Embedder(assemble(made).specs, backend="xla")
    rows = np.arange(36, dtype=np.float32).reshape(9, 4)
    state = embedder.with_table(embedder.init(jax.random.key(0)), "u", rows)
    found = embedder.lookup(state, embedder.pack({"u": bags}))["u"][0]
    np.testing.assert_allclose(found, (rows[1] + 3 * rows[2]) / 4, rtol=1e-6)


def test_sample_weights_count_in_metrics_of_evaluation():
    made = imported([ids("u")], ["u"], data='sample_weight_fields: "w"')
    scores = Scores(made.tasks)
    outputs = {"logits": np.array([2.0, 1.0, -1.0, 3.0], np.float32)}
    columns = {"clk": np.array([1.0, 1.0, 0.0, 0.0], np.float32)}

    def auc(weights):
        states = scores.update(scores.init(), outputs, columns | {"w": np.array(weights, np.float32)})
        return scores.compute(states)["auc"]

    assert auc([1, 1, 1, 0]) == pytest.approx(1.0)  # the row that is ranked too high has no weight
    assert auc([1, 1, 1, 1]) == pytest.approx(0.5)


def test_label_smoothing_of_a_match_model_is_applied():
    smoothed = RECALL.replace("softmax_cross_entropy {}", "softmax_cross_entropy { label_smoothing: 0.2 }")
    text = family_config(
        "x", SINGLE, f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 4 in_batch_negative: true }} {smoothed}"
    )
    (loss,) = config.import_config(text, edits=PATHS).tasks["clk"].losses
    assert (type(loss), loss.label_smoothing) == (losses.InBatchSoftmax, 0.2)


def test_dense_layers_start_as_those_of_flax():
    layers = models.MLP((400,)).build(100, rngs=nnx.Rngs(0))
    linear = layers.layers[0].linear
    assert np.std(linear.kernel[...]) == pytest.approx(0.1, rel=0.05)  # LeCun: 1 / √100; torch's would be 0.058
    assert not np.asarray(linear.bias[...]).any()


@pytest.mark.parametrize("mode", ["FG_NONE", "FG_DAG"])
def test_sequences_are_cut_to_their_first_elements(mode):
    sequence = """sequence_id_feature { feature_name: "s" expression: "user:s" sequence_length: 3 sequence_delim: ";"
      num_buckets: 9 embedding_dim: 4 }"""
    groups = 'sequence_groups { feature_names: "s" } sequence_encoders { simple_attention {} }'
    groups = groups.replace('"s"', '["u", "s"]')
    made = imported([ids("u"), sequence], ["u"], groups, mode=mode)
    feature = next(feature for feature in made.data.features if feature.name == "s")
    bags = feature.convert(pa.RecordBatch.from_pydict({"s": ["1;2;3;4;5", "6"]}), Problems(2))
    assert bags.to_lists() == [[1, 2, 3], [6]]
