"""What a TorchEasyRec config means, where it was easy to get wrong: each a difference that a model would feel."""

import pyarrow as pa
import pytest

from sparrow import config, losses, metrics
from sparrow.config import ConfigError, assemble, train_pipeline
from sparrow.config.torcheasyrec import Edit, read_config
from sparrow.data import IdFeature, RawFeature, SequenceFeature
from sparrow.data.computed import Bucketize, Constant
from sparrow.data.errors import Problems
from tests.config.family.parts import (
    AGED,
    BCE,
    CLICK_IDS,
    CLICKS,
    RECALL,
    SINGLE,
    TOWERS,
    USER_ITEM,
    group,
    ids,
    mlp,
    raw,
)
from tests.config.family.parts import config as family_config

PATHS = [Edit("train_input_path", "a.parquet"), Edit("eval_input_path", "b.parquet")]
FINAL = f"multi_tower {{ towers {{ input: 'all' }} {mlp('final', 4)} }}"


def imported(features, names, more="", model=f"{FINAL} {BCE}", **options):
    text = family_config("x", features, f"{group('all', names, more=more)} {model}", **options)
    return config.import_config(text, "x.config", PATHS)


def converted(feature, values):
    problems = Problems(len(values))
    made = feature.convert(pa.RecordBatch.from_pydict({feature.columns[0]: values}), problems)
    assert problems.rows is None
    return made.to_lists() if hasattr(made, "to_lists") else made.tolist()


def feature_of(made, name):
    return next(feature for feature in made.data.features if feature.name == name)


def test_defaults_fill_rows_without_ids():
    more = 'num_buckets: 9 default_value: "7" separator: "|"'
    made = feature_of(imported([ids("u", more=more)], ["u"]), "u")
    assert converted(made, ["1|2", "", None]) == [[1, 2], [7], [7]]
    assert converted(made, [[1], [], None]) == [[1], [7], [7]]
    encoded = 'id_feature { feature_name: "u" embedding_dim: 4 num_buckets: 9 fg_encoded_default_value: "3" }'
    made = feature_of(imported([encoded], ["u"], mode="FG_NONE"), "u")
    assert converted(made, ["1\x032", "", None]) == [[1, 2], [3], [3]]


def test_an_empty_sequence_has_one_default_element():
    sequence = """sequence_id_feature { feature_name: "s" sequence_length: 3 sequence_delim: ";" expression: "user:s"
      num_buckets: 9 embedding_dim: 4 }"""
    numbers = 'sequence_raw_feature { feature_name: "r" sequence_length: 3 sequence_delim: ";" expression: "user:r" }'
    groups = 'sequence_groups { feature_names: ["s", "r"] } sequence_encoders { pooling_encoder {} }'
    made = imported([ids("u"), sequence, numbers], ["u"], groups)
    assert converted(feature_of(made, "s"), ["4;5;6;7", "", None]) == [[4, 5, 6], [0], [0]]
    assert converted(feature_of(made, "r"), ["4;5", "", None]) == [[[4.0], [5.0]], [[0.0]], [[0.0]]]


def test_inputs_that_are_features_or_constants():
    made = imported(
        [
            raw("age", "user", "boundaries: [18, 30] embedding_dim: 4"),
            'id_feature { feature_name: "b" expression: "feature:age" num_buckets: 5 embedding_dim: 4 }',
            'id_feature { feature_name: "c" expression: "const:7" num_buckets: 9 embedding_dim: 4 }',
            'id_feature { feature_name: "d" expression: "feature:u" num_buckets: 20 embedding_dim: 4 }',
            ids("u"),
        ],
        ["age", "b", "c", "d", "u"],
    )
    assert feature_of(made, "b").compute == Bucketize("age", boundaries=(18.0, 30.0))
    assert feature_of(made, "c").compute == Constant(7)
    assert feature_of(made, "d").column == "u"
    with pytest.raises(ConfigError, match="the feature 'n' has a normalizer; make its values a column"):
        imported(
            [
                raw("n", "user", 'normalizer: "method=minmax,min=0,max=2"'),
                'raw_feature { feature_name: "m" expression: "feature:n" }',
            ],
            ["n", "m"],
        )
    with pytest.raises(
        ConfigError, match="expression: must be a column with its side, such as item:price, got 'usr:x'"
    ):
        imported(['raw_feature { feature_name: "m" expression: "usr:x" }', ids("u")], ["m", "u"])


def test_a_frozen_table_has_a_frozen_wide_twin():
    features = [ids("u", more="num_buckets: 9 trainable: false"), ids("i")]
    groups = group("wide", ["u", "i"], "WIDE") + group("deep", ["u", "i"])
    text = family_config("x", features, f"{groups} wide_and_deep {{ {mlp('deep', 4)} }} {BCE}")
    made = config.import_config(text, edits=PATHS)
    (frozen,) = made.train.table_optimizers
    assert frozen.tables == ("u", "u_wide")
    assert {spec.table_spec.name for spec in assemble(made).specs} == {"u", "i", "u_wide", "i_wide"}


def test_every_encoder_of_a_group_counts():
    more = """sequence_groups { group_name: "s" feature_names: ["item", "click_seq__item"] }
    sequence_encoders { pooling_encoder { input: "s" pooling_type: "sum" } }
    sequence_encoders { pooling_encoder { input: "s" pooling_type: "mean" max_seq_length: 3 } }"""
    made = imported([*SINGLE, CLICK_IDS], ["user", "item"], more)
    first, second = made.model.encoders["all"]
    assert (first.pooling_type, second.pooling_type, second.max_length) == ("sum", "mean", 3)
    # The single feature of the group attends, and does not join the deep group a second time.
    assert made.model.groups == {"s": ("item", "click_seq__item"), "all": ("user", "item")}


def test_a_query_beside_pooled_sequences_stays_out_of_the_deep_group():
    more = """sequence_groups { group_name: "s" feature_names: ["item", "click_seq__item"] }
    sequence_encoders { pooling_encoder { input: "s" } }"""
    made = imported([*SINGLE, CLICK_IDS], ["user"], more)
    assert made.model.groups == {"all": ("user", "click_seq__item")}
    assert feature_of(made, "click_seq__item").pooling == "mean"


def test_names_of_sequence_groups_are_inferred():
    more = 'sequence_groups { feature_names: "click_seq__price" } sequence_encoders { pooling_encoder {} }'
    made = imported([*AGED, CLICKS], ["user"], more)
    assert made.model.encoders["all"][0].input == "all_sequences"
    assert made.model.groups["all_sequences"] == ("click_seq__price",)


def test_two_losses_of_a_match_model_are_refused():
    text = family_config("x", SINGLE, f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 4 in_batch_negative: true }} {RECALL}")
    twice = text.replace("losses {", "losses { softmax_cross_entropy {} } losses {", 1)
    with pytest.raises(ConfigError, match="dssm takes one loss, softmax_cross_entropy; remove the others"):
        config.import_config(twice, edits=PATHS)


def test_without_output_dim_towers_end_as_they_are():
    text = family_config("x", SINGLE, f"{USER_ITEM} dssm {{ {TOWERS} output_dim: 0 in_batch_negative: true }} {RECALL}")
    assert config.import_config(text, edits=PATHS).model.architecture.output_dim is None


def test_an_element_of_several_ids_is_an_error_without_a_value_dim():
    sequence = """sequence_id_feature { feature_name: "s" sequence_length: 3 sequence_delim: "|" expression: "user:s"
      num_buckets: 9 embedding_dim: 4 }"""
    groups = 'sequence_groups { feature_names: "s" } sequence_encoders { pooling_encoder {} }'
    made = feature_of(imported([ids("u"), sequence], ["u"], groups, mode="FG_NONE"), "s")
    assert isinstance(made, SequenceFeature)
    problems = Problems(2)
    made.convert(pa.RecordBatch.from_pydict({"s": ["1|2", "3|4\x035"]}), problems)
    assert problems.rows.tolist() == [False, True]
    assert "takes one id per element, got '4\\x035'" in problems.first[2]


@pytest.mark.parametrize("field", ['separator: ","', "value_dim: 1"])
def test_fields_of_a_cross_that_cannot_be_kept_are_refused(field):
    combo = f"""combo_feature {{ feature_name: "c" expression: ["user:a", "item:b"] hash_bucket_size: 9 embedding_dim: 4
      {field} }}"""
    with pytest.raises(ConfigError, match=rf"combo_feature.{field.split(':')[0]}: not supported"):
        imported([combo], ["c"])


def test_the_pooling_of_a_cross_has_nothing_to_pool():
    combo = """combo_feature { feature_name: "c" expression: ["user:a", "item:b"] hash_bucket_size: 9 embedding_dim: 4
      pooling: "mean" value_dim: 0 }"""
    text = family_config("x", [combo], f"{group('all', ['c'])} {FINAL} {BCE}")
    notes = {outcome.path[-1] for outcome in read_config(text, edits=PATHS).outcomes if outcome.is_note}
    assert {"pooling", "value_dim"} <= notes


def test_groups_of_metrics_and_sessions_are_columns_of_features():
    user = 'id_feature { feature_name: "who" expression: "user:uid" num_buckets: 9 embedding_dim: 4 }'
    model = f"""{FINAL} num_class: 2 losses {{ jrc_loss {{ session_name: "who" }} }}
      metrics {{ grouped_auc {{ grouping_key: "who" }} }} metrics {{ grouped_auc {{ grouping_key: "page" }} }}"""
    made = imported([user], ["who"], model=model)
    task = made.tasks["clk"]
    assert task.losses == (losses.JRC("uid"),)
    assert [use.group_by for use in task.metrics] == ["uid", "page"]
    # Rows to train on need no group of a metric of evaluation.
    keys = train_pipeline(made.model_copy(update={"data": made.data.model_copy(update={"train": _rows()})}))
    assert next(iter(keys)).keys.keys() == {"uid"}


def _rows():
    from sparrow.data import Tables

    return Tables({"uid": [1, 2], "clk": [0, 1], "page": [None, None]})


def test_an_id_and_a_pooled_sequence_share_a_table():
    sequence = CLICK_IDS.replace(
        "num_buckets: 20 embedding_dim: 4", 'num_buckets: 20 embedding_dim: 4 embedding_name: "t"'
    )
    more = """sequence_groups { feature_names: "click_seq__item" }
      sequence_encoders { pooling_encoder { pooling_type: "mean" } }"""
    item = ids("item", "item", 'num_buckets: 20 embedding_name: "t" pooling: "sum"')
    specs = {spec.name: spec for spec in assemble(imported([item, sequence], ["item"], more)).specs}
    assert specs["item"].table_spec == specs["click_seq__item"].table_spec
    assert (specs["item"].combiner, specs["click_seq__item"].combiner) == ("sum", "mean")


def test_features_in_no_group_are_left_out_with_a_note():
    text = family_config("x", [*SINGLE, ids("lonely")], f"{group('all', ['user', 'item'])} {FINAL} {BCE}")
    made = read_config(text, edits=PATHS)
    assert [feature.name for feature in made.config.data.features] == ["user", "item"]
    notes = {outcome.value for outcome in made.outcomes if "in no group" in outcome.text}
    assert "'lonely'" in notes


def test_the_first_label_of_a_model_with_one_task_counts():
    ((name, task),) = imported([ids("u")], ["u"], labels='["clk", "buy"]').tasks.items()
    assert (name, task.label) == ("clk", "clk")


def test_the_last_of_a_field_given_twice_counts():
    made = imported([ids("u")], ["u"], train="num_epochs: 1 num_epochs: 3")
    assert made.train.epochs == 3
    made = imported([ids("u")], ["u"], extra="eval_config { num_steps: 4 }")  # a second eval_config: both are joined
    assert made.evaluate.steps == 4


def test_words_have_the_rows_that_torcheasyrec_gives_them(tmp_path):
    made = feature_of(imported([ids("u", more='vocab_list: ["a", "b"]')], ["u"]), "u")
    assert converted(made, ["a", "b", "x", None]) == [[2], [3], [1], [0]]
    made = feature_of(imported([ids("u", more='vocab_list: ["a", "b"] default_bucketize_value: 1')], ["u"]), "u")
    assert converted(made, ["a", "b", "x", None]) == [[0], [1], [1], []]
    made = feature_of(imported([ids("u", more='vocab_dict { key: "a" value: 5 } default_value: "q"')], ["u"]), "u")
    assert (converted(made, ["a", "x", None]), made.num_rows) == ([[5], [1], [0]], 6)
    words = tmp_path / "words.txt"
    words.write_text("red\nblue\n")
    made = feature_of(imported([ids("u", more=f'vocab_file: "{words}" default_bucketize_value: 1')], ["u"]), "u")
    assert converted(made, ["red", "x", None]) == [[0], [1], []]
    made = feature_of(imported([ids("u", more=f'vocab_file: "{words}"')], ["u"]), "u")
    assert converted(made, ["red", "x", None]) == [[0], [2], []]  # without a row given, unknown words have the last one


def test_numbers_in_buckets_may_be_several():
    made = feature_of(
        imported([raw("r", more="value_dim: 2 boundaries: [1, 2] embedding_dim: 4"), ids("u")], ["r", "u"]), "r"
    )
    assert made == RawFeature(
        "r", column="r", dim=2, separator="\x1d", boundaries=(1.0, 2.0), embedding_dim=4, pooling="sum", missing=0.0
    )
    assert converted(made, [[0.5, 1.5], [2.5, 0.0]]) == [[0, 1], [2, 0]]
    assert made.table_use.combiner == "sum"


def test_values_of_words_are_combined():
    combine = """combine_feature { feature_name: "c" expression: "user:tags" separator: "|" combiner: "mean"
      value_map { key: "a" value: 1.5 } value_map { key: "b" value: 2.5 } """
    made = feature_of(imported([combine + "}", ids("u")], ["c", "u"]), "c")
    assert isinstance(made, RawFeature)
    assert converted(made, ["a|b", "b", "x", None]) == [[2.0], [2.5], [0.0], [0.0]]
    made = feature_of(imported([combine + 'default_value: "7" }', ids("u")], ["c", "u"]), "c")
    assert converted(made, ["a", None]) == [[1.5], [7.0]]
    counted = combine.replace("mean", "count") + "num_buckets: 4 embedding_dim: 4 }"
    made = feature_of(imported([counted], ["c"]), "c")
    assert isinstance(made, IdFeature)
    assert converted(made, ["a|b|x", "b"]) == [2, 1]
    with pytest.raises(ConfigError, match=r"Combine\.combiner must be one of"):
        imported([combine.replace("mean", "median") + "}"], ["c"])


def test_marks_choose_the_ids():
    mask = """bool_mask_feature { feature_name: "m" expression: ["user:seen", "user:valid"] separator: "|"
      num_buckets: 9 embedding_dim: 4 }"""
    made = feature_of(imported([mask], ["m"]), "m")
    batch = pa.RecordBatch.from_pydict({"seen": ["1|2|3", "4"], "valid": ["true|false|1", "0"]})
    assert made.convert(batch, Problems(2)).to_lists() == [[1, 3], []]
    with pytest.raises(ConfigError, match="takes two columns, the values and their marks, got 1"):
        imported([mask.replace(', "user:valid"', "")], ["m"])


def test_shorter_lists_of_an_expression_are_filled():
    expr = 'expr_feature { feature_name: "e" expression: "dot(a, b)" variables: ["user:a", "item:b"] separator: "|" '
    made = feature_of(imported([expr + "fill_missing: 2 }", ids("u")], ["e", "u"]), "e")
    batch = pa.RecordBatch.from_pydict({"a": ["1|2|3", "1"], "b": ["10", "5|6"]})
    assert made.convert(batch, Problems(2)).tolist() == [[20.0], [17.0]]
    problems = Problems(2)
    feature_of(imported([expr + "}", ids("u")], ["e", "u"]), "e").convert(batch, problems)
    assert problems.rows.all()


@pytest.mark.parametrize("kind", ["combine_feature", "lookup_feature"])
def test_encoded_columns_of_computed_features_hold_numbers_or_ids(kind):
    inputs = 'expression: "user:x"' if kind == "combine_feature" else 'map: "user:x" key: "item:y"'

    def encoded(more):
        feature = f'{kind} {{ feature_name: "c" {inputs} {more} }}'
        return feature_of(imported([feature, ids("u")], ["c", "u"], mode="FG_NONE"), "c")

    assert isinstance(encoded(""), RawFeature)
    assert encoded('fg_encoded_default_value: "0.5"').missing == 0.5
    assert encoded("num_buckets: 5 embedding_dim: 4").num_rows == 5


def test_sampled_xauc_while_training_compares_pairs_within_a_batch():
    model = f"{FINAL} losses {{ l2_loss {{}} }} train_metrics {{ xauc {{ sample_ratio: 0.1 }} decay_step: 5 }}"
    made = imported([ids("u")], ["u"], model=model).tasks["clk"].train_metrics[0].metric
    assert made == metrics.Decayed(metrics.XAUC(in_batch=True), decay_step=5)


def test_a_sequence_among_single_features_is_refused():
    with pytest.raises(
        ConfigError, match="'click_seq__item' is a sequence; put it into sequence_groups with an encoder"
    ):
        imported([*SINGLE, CLICK_IDS], ["user", "click_seq__item"])


def test_ids_have_the_rows_and_pooling_of_their_fields():
    made = imported([ids("u", more='hash_bucket_size: 9 value_dim: 0 pooling: "mean"')], ["u"])
    assert feature_of(made, "u") == IdFeature(
        "u", column="u", hash_bucket_size=9, embedding_dim=4, separator="\x1d", pooling="mean"
    )


IN_SEQUENCE = """sequence_feature {
    sequence_name: "seen" sequence_length: 3 sequence_delim: "|"
    features { expr_feature { feature_name: "age" expression: "now - time" variables: ["user:now", "item:time"]
                              sequence_fields: ["time"] } }
    features { lookup_feature { feature_name: "liked" map: "user:likes" key: "item:kind" sequence_fields: ["kind"]
                                separator: "," } }
    features { combine_feature { feature_name: "kind" expression: "item:kind" num_buckets: 9 embedding_dim: 4 } }
  }"""


def test_computed_features_of_sequences_have_a_value_for_each_element():
    """Columns of the sequence begin with its name; others are the same for all elements."""
    names = ["seen__age", "seen__liked", "seen__kind"]
    groups = group("deep", ["user"]) + group("seq", ["user", *names], "SEQUENCE")
    attention = f'din_towers {{ input: "seq" {mlp("attn_mlp", 4)} }}'
    din = f'multi_tower_din {{ towers {{ input: "deep" }} {attention} {mlp("final", 4)} }}'
    text = family_config("x", [ids("user"), IN_SEQUENCE], f"{groups} {din} {BCE}")
    made = config.import_config(text, "x.config", PATHS).data.features[1:]
    rows = pa.RecordBatch.from_pydict(
        {
            "now": [10.0, 20.0, 30.0],
            "seen__time": ["1|2", "5", ""],
            "seen__kind": ["3|4", "4", ""],
            "likes": ["3:0.5,4:2", "3:1", "4:1"],
        }
    )
    problems = Problems(3)
    found = {feature.name: feature.convert(rows, problems) for feature in made}
    assert problems.first is None
    assert found["seen__age"].values[:, 0].tolist()[:3] == [9.0, 8.0, 15.0]
    assert found["seen__liked"].values[:, 0].tolist()[:3] == [0.5, 2.0, 0.0]
    assert found["seen__kind"].values.tolist()[:3] == [3, 4, 4]


IN_ELEMENTS = """sequence_feature {
  sequence_name: "seen" sequence_length: 5 sequence_delim: ";"
  features { tokenize_feature { feature_name: "title" expression: "item:title" vocab_file: "tokens.json"
                                embedding_dim: 4 } }
  features { combo_feature { feature_name: "cross" expression: ["user:who", "item:kind"] hash_bucket_size: 50
                             embedding_dim: 4 } }
  features { lookup_feature { feature_name: "liked" map: "user:likes" key: "item:kind" } } }"""


def test_inputs_of_the_user_are_the_same_for_all_elements_and_texts_are_cut_element_by_element():
    """Of a kind with several inputs, those of the item are sequences where sequence_fields names none."""
    names = ["seen__title", "seen__cross", "seen__liked"]
    more = f'sequence_groups {{ group_name: "s" feature_names: {names} }} sequence_encoders {{ pooling_encoder {{}} }}'
    made = imported([*SINGLE, IN_ELEMENTS], ["user"], more.replace("'", '"'))
    title, cross, liked = (feature_of(made, name) for name in names)
    assert (title.element.pooling, title.element.default, title.fill) == ("sum", "0", True)
    assert title.columns == title.sequences == ("seen__title",)
    assert (cross.columns, cross.sequences) == (("who", "seen__kind"), ("seen__kind",))
    assert (liked.columns, liked.compute.sequences) == (("likes", "seen__kind"), ("seen__kind",))
    assert title.element_pooling == ("sum", "seen__title/sizes")
    assert cross.element_pooling is None


@pytest.mark.parametrize(("mode", "separator", "fill"), [("FG_DAG", "\x1d", True), ("FG_NONE", "\x03", False)])
def test_elements_of_several_ids(mode, separator, fill):
    text = CLICK_IDS.replace("num_buckets", 'value_dim: 0 pooling: "mean" num_buckets')
    more = 'sequence_groups { feature_names: "click_seq__item" } sequence_encoders { pooling_encoder {} }'
    made = imported([*SINGLE, text], ["user"], more, mode=mode)
    feature = feature_of(made, "click_seq__item")
    assert (feature.element.pooling, feature.element.separator, feature.fill) == ("mean", separator, fill)
    assert made.model.encoders["all"][0].pooling_type == "mean"
