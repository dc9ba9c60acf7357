"""Differences from TorchEasyRec that are on purpose, as docs/migrate/torcheasyrec_fields.md lists them."""

import re

import jax
import numpy as np
import pyarrow as pa
import pytest
from flax import nnx

import sparrow as sp
from sparrow import config, losses, models
from sparrow.config import assemble
from sparrow.config.sections.data import Cost, Mask
from sparrow.config.torcheasyrec import read_config
from sparrow.data.errors import Problems
from sparrow.errors import ConfigError
from sparrow.tasks import Scores, predictions
from tests.config.family import hstu
from tests.config.family.parts import BCE, RECALL, SINGLE, TOWERS, USER_ITEM, group, ids, raw
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


def test_numbers_are_normalized_and_then_cut():
    made = imported(
        [raw("r", more='normalizer: "method=minmax,min=10,max=20" boundaries: [0.2, 0.5] embedding_dim: 4')], ["r"]
    )
    (feature,) = made.data.features
    batch = pa.RecordBatch.from_pydict({"r": [10.0, 12.5, 15.0, 19.0]})
    assert feature.convert(batch, Problems(4)).tolist() == [0, 1, 2, 2]
    assert feature.step({"r": pa.float64()}) is None  # compiled code cuts numbers that are not transformed


def differences(text):
    found = read_config(text, "x.config", PATHS)
    assert found.error is None, str(found.error)
    return {outcome.path[-1]: outcome.text for outcome in found.outcomes if "; differs: " in outcome.text}


@pytest.mark.parametrize("policy", ["distance_lfu", "lfu"])
def test_other_numbers_are_reported(policy):
    zch = f"zch {{ zch_size: 9 eviction_interval: 2 {policy} {{}} }}"
    text = family_config("x", [ids("u", more=zch)], f"{group('all', ['u'])} {FINAL} {BCE}")
    assert list(differences(text)) == [policy]
    assert not differences(text.replace(policy, "lru"))


def test_a_temperature_divides_predicted_similarities_too():
    text = family_config(
        "x", SINGLE, f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 4 in_batch_negative: true temperature: 0.5 }} {RECALL}"
    )
    assert not differences(text)
    made = config.import_config(text, edits=PATHS).tasks
    outputs = {"query": np.array([[1.0, 2.0]], np.float32), "item": np.array([[3.0, 4.0]], np.float32)}
    assert predictions(made, outputs)["clk"].tolist() == [22.0]


def test_a_suffix_gives_a_group_tables_of_its_own():
    groups = group("a", ["u", "p"]) + group("b", ["u", "v"], more='embedding_name_suffix: "own"')
    towers = "multi_tower { towers { input: 'a' } towers { input: 'b' } final { hidden_units: 4 } }"
    made = config.import_config(
        family_config(
            "x", [ids("u"), ids("v", more='num_buckets: 20 embedding_name: "u"'), raw("p")], f"{groups} {towers} {BCE}"
        ),
        edits=PATHS,
    )
    found = {feature.name: feature for feature in made.data.features}
    assert sorted(found) == ["p", "u", "u_own", "v_own"]
    assert {name: found[name].table_use.table for name in ("u", "u_own", "v_own")} == {
        "u": "u",
        "u_own": "u_own",
        "v_own": "u_own",
    }
    assert {name: found[name].columns for name in ("u_own", "v_own")} == {"u_own": ("u",), "v_own": ("v",)}
    assert dict(made.model.groups) == {"a": ("u", "p"), "b": ("u_own", "v_own")}
    assert sorted({spec.table_spec.name for spec in assemble(made).specs}) == ["u", "u_own"]


def test_a_suffix_reaches_sequences_and_may_not_meet_another_table():
    sequence = """sequence_id_feature { feature_name: "s" expression: "user:s" sequence_length: 3 sequence_delim: ";"
      num_buckets: 9 embedding_dim: 4 }"""
    more = """embedding_name_suffix: "own" sequence_groups { feature_names: ["u", "s"] }
      sequence_encoders { simple_attention {} }"""
    made = imported([ids("u"), sequence], ["u"], more)
    assert {feature.table_use.table for feature in made.data.features} == {"u_own", "s_own"}
    taken = [ids("u"), ids("w", more='num_buckets: 20 embedding_name: "u_own"')]
    groups = group("a", ["w"]) + group("b", ["u"], more='embedding_name_suffix: "own"')
    with pytest.raises(ConfigError, match="the table 'u' with the suffix 'own' has the name of another"):
        config.import_config(family_config("x", taken, f"{groups} {FINAL} {BCE}"), edits=PATHS)


def test_columns_that_are_to_be_bucketized():
    features = [
        ids("word", more="hash_bucket_size: 50 value_dim: 0"),
        ids("kind", more='vocab_list: ["a", "b"]'),
        "lookup_feature { feature_name: 'cut' map: 'user:m' key: 'item:k' boundaries: [1, 5] embedding_dim: 4 }",
        "combo_feature { feature_name: 'cross' expression: ['user:a', 'item:b'] hash_bucket_size: 9 embedding_dim: 4 }",
        raw("number", more='normalizer: "method=minmax,min=10,max=20"'),
    ]
    made = imported(features, ["word", "kind", "cut", "cross", "number"], mode="FG_BUCKETIZE")
    found = {feature.name: feature for feature in made.data.features}
    assert all(feature.columns == (name,) for name, feature in found.items())

    def values(name, column):
        return found[name].convert(pa.RecordBatch.from_pydict({name: column}), Problems(len(column)))

    words = values("word", ["x\x03y", "x"]).to_lists()
    assert words[0][0] == words[1][0] != words[0][1]
    assert values("kind", ["b", "z"]).to_lists() == [[3], [1]]
    assert values("cut", [0.5, 2.0, 9.0]).tolist() == [0, 1, 2]
    assert values("number", [15.0]).ravel().tolist() == [15.0]  # normalized already
    assert found["cross"].num_rows == 9


def test_members_of_sequences_may_have_one_underscore():
    """TorchEasyRec names them so with USE_RTP=1 in its environment."""
    text = hstu.CONFIGS["dlrm_hstu"]
    long = config.import_config(text, edits=PATHS)
    short = config.import_config(re.sub(r'"(\w+)__(\w+)"', r'"\1_\2"', text), edits=PATHS)
    assert [feature.name.replace("__", "_") for feature in long.data.features] == [
        feature.name for feature in short.data.features
    ]
    columns = {column for feature in short.data.features for column in feature.columns}
    assert any(column.startswith("cand_seq_") for column in columns)
    assert not any("__" in column for column in columns)


def test_a_sequence_without_a_length_has_that_of_the_model():
    ids_of = {"uih_seq": "video", "cand_seq": "video"}
    numbers = {"uih_seq": ("action_time", "action", "watch_time"), "cand_seq": ("query_time",)}
    more = 'num_buckets: 20 embedding_dim: 4 embedding_name: "video_emb"'
    features = [
        *(
            f'sequence_id_feature {{ feature_name: "{s}__{n}" expression: "user:{s}__{n}" {more} }}'
            for s, n in ids_of.items()
        ),
        *(
            f'sequence_raw_feature {{ feature_name: "{s}__{n}" expression: "user:{s}__{n}" }}'
            for s, names in numbers.items()
            for n in names
        ),
        *hstu.CONTEXT,
    ]
    groups = hstu.CONTEXTUAL + hstu.history_groups("uih", "uih_seq") + hstu.CANDIDATE_GROUPS
    model = groups + hstu.ranker("dlrm_hstu", hstu.hstu(hstu.CONTEXTUAL_ONE, hstu.PERIODS))
    made = config.import_config(family_config("x", features, model, labels=hstu.LABELS), edits=PATHS)
    assert [feature.max_length for feature in made.data.features if feature.sequence_length] == [12] * 6
    groups = 'sequence_groups { group_name: "s" feature_names: "uih_seq__video" }'
    more = groups + ' sequence_encoders { pooling_encoder { input: "s" } }'
    with pytest.raises(ConfigError, match="sequence_length: is required"):
        imported([*features[:1], ids("u")], ["u"], more=more)


def test_masks_and_costs():
    data = "sample_mask_prob: 0.25 negative_sample_mask_prob: 0.5 batch_cost_size: 30 sample_cost_field: 'cost'"
    features = [ids("u", more="num_buckets: 9 use_mask: true"), ids("v", more="num_buckets: 9")]
    text = family_config("x", features, f"{group('all', ['u', 'v'])} {FINAL} {BCE}", data=data)
    made = config.import_config(text, edits=PATHS).data
    assert made.mask == Mask(features=("u",), share=0.25)
    assert made.cost == Cost(column="cost", limit=30)
    assert list(differences(text)) == ["batch_cost_size"]
    for field, why in (("use_mask: true", "no feature has use_mask"), ("sample_mask_prob: 0.25", "are 0")):
        without = text.replace(field, "").replace("negative_sample_mask_prob: 0.5", "negative_sample_mask_prob: 0")
        found = read_config(without, "x.config", PATHS)
        assert found.config.data.mask is None
        assert any(why in outcome.text for outcome in found.outcomes if outcome.is_note)
