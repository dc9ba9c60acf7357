# ruff: noqa: E501  configs read best in one line for each part
"""Features that are computed."""

from __future__ import annotations

from tests.config.family.parts import (
    AGED,
    BCE,
    BUCKETS,
    CLICK_NAMES,
    CLICKS,
    DIN,
    NAMES,
    QUERY,
    SINGLE,
    TABLE,
    config,
    group,
    ids,
    mlp,
    raw,
)

COMPUTED = [
    'lookup_feature { feature_name: "l1" map: "user:map_1" key: "item:k1" }',
    'lookup_feature { feature_name: "l2" map: "user:map_1" key: "item:k1" hash_bucket_size: 30 embedding_dim: 4 need_key: true }',
    'lookup_feature { feature_name: "l3" map: "user:map_1" key: "feature:bucket" num_buckets: 30 embedding_dim: 4 }',
    'lookup_feature { feature_name: "l4" map: "user:map_1" key: "const:3" combiner: "max" embedding_dim: 4 mlp {} }',
    raw("bucket", "user", BUCKETS),
    'match_feature { feature_name: "m1" nested_map: "user:nested" pkey: "item:k1" skey: "item:k2" }',
    'match_feature { feature_name: "m2" nested_map: "user:nested" pkey: "item:k1" skey: "ALL" hash_bucket_size: 30 embedding_dim: 4 }',
    'expr_feature { feature_name: "e1" expression: "k1 + k2" variables: ["item:k1", "item:k2"] }',
    'overlap_feature { feature_name: "o1" query: "user:q" title: "item:t" method: "query_common_ratio" }',
    'kv_dot_product { feature_name: "d1" query: "user:kv" document: "item:kd" }',
    """custom_feature { feature_name: "c1" operator_name: "EditDistance" operator_lib_file: "libedit.so"
      expression: ["user:first", "item:second"] operator_params { fields { key: "encoding" value { string_value: "utf-8" } } }
      embedding_dim: 4 autodis { num_channels: 3 } }""",
]
IN_SEQUENCES = """sequence_feature {
  sequence_name: "click_seq" sequence_length: 6 sequence_delim: "|"
  features { id_feature { feature_name: "item" expression: "item:item" num_buckets: 20 embedding_dim: 4 embedding_name: "item_emb" } }
  features { expr_feature { feature_name: "age" expression: "now - time" variables: ["user:now", "item:time"] sequence_fields: ["time"] } }
  features { lookup_feature { feature_name: "liked" map: "user:map_1" key: "item:k1" sequence_fields: ["k1"] } }
  features { match_feature { feature_name: "met" nested_map: "user:nested" pkey: "item:k1" skey: "item:k2" sequence_fields: ["k1", "k2"] } }
  features { combine_feature { feature_name: "kind" expression: "item:k1" num_buckets: 9 embedding_dim: 4 } }
  features { combine_feature { feature_name: "size" expression: "item:k2" boundaries: [2, 5] embedding_dim: 4 } }
  features { overlap_feature { feature_name: "same" query: "user:q" title: "item:t" method: "query_common_ratio" sequence_fields: ["t"] } }
  features { kv_dot_product { feature_name: "dot" query: "user:kv" document: "item:kd" sequence_fields: ["kd"] } }
  features { custom_feature { feature_name: "near" operator_name: "EditDistance" operator_lib_file: "libedit.so" expression: ["user:first", "item:second"] sequence_fields: ["second"] } }
}"""
STANDALONE = """sequence_expr_feature { feature_name: "gap" sequence_length: 6 sequence_delim: "|" expression: "a - b" variables: ["item:a", "item:b"] }"""
BAGS = """sequence_feature {
  sequence_name: "click_seq" sequence_length: 6 sequence_delim: "|"
  features { id_feature { feature_name: "item" expression: "item:item" num_buckets: 20 embedding_dim: 4 embedding_name: "item_emb" } }
  features { id_feature { feature_name: "tags" expression: "user:tags" hash_bucket_size: 30 embedding_dim: 4 value_dim: 0 separator: "," pooling: "mean" } }
  features { id_feature { feature_name: "three" expression: "item:three" num_buckets: 9 embedding_dim: 4 value_dim: 3 } }
  features { combo_feature { feature_name: "cross" expression: ["user:user", "item:k1"] hash_bucket_size: 50 embedding_dim: 4 } }
  features { bool_mask_feature { feature_name: "good" expression: ["item:k2", "item:valid"] hash_bucket_size: 30 embedding_dim: 4 separator: "," } }
}"""
BAG_NAMES = [f"click_seq__{name}" for name in ("item", "tags", "three", "cross", "good")]
IN_SEQUENCES_NAMES = [
    f"click_seq__{name}" for name in ("item", "age", "liked", "met", "kind", "size", "same", "dot", "near")
]
COMBINED = [
    'combine_feature { feature_name: "b1" expression: "user:tags" value_map { key: "w1" value: 0.5 } value_map { key: "w2" value: 2 } combiner: "max" }',
    'combine_feature { feature_name: "b2" expression: "item:k1" num_buckets: 9 embedding_dim: 4 }',
    'combine_feature { feature_name: "b3" expression: "item:k2" boundaries: [2, 5] embedding_dim: 4 combiner: "mean" }',
    'bool_mask_feature { feature_name: "b4" expression: ["user:seen", "user:valid"] hash_bucket_size: 30 embedding_dim: 4 }',
    'expr_feature { feature_name: "b5" expression: "dot(v1, v2)" variables: ["user:v1", "item:v2"] fill_missing: 0 }',
]
COMBINED_NAMES = ["b1", "b2", "b3", "b4", "b5"]
COMPUTED_NAMES = ["l1", "l2", "l3", "l4", "m1", "m2", "e1", "o1", "d1", "c1"]
DCN = f"dcn_v2 {{ cross {{}} {mlp('deep', 8)} {mlp('final', 4)} }} {BCE}"
CONFIGS: dict[str, str] = {
    "computed_in_sequences": config(
        "din",
        [
            ids("item", "item", 'num_buckets: 20 embedding_name: "item_emb"'),
            ids("user"),
            *SINGLE[2:],
            IN_SEQUENCES,
            STANDALONE,
        ],
        f"{group('deep', NAMES)} {group('seq', ['item', *IN_SEQUENCES_NAMES, 'gap'], 'SEQUENCE')} {DIN}",
    ),
    "bags_in_sequences": config(
        "din",
        [ids("item", "item", 'num_buckets: 20 embedding_name: "item_emb"'), ids("user"), *SINGLE[2:], BAGS],
        f"{group('deep', NAMES)} {group('seq', ['item', *BAG_NAMES], 'SEQUENCE')} {DIN}",
    ),
    "computed": config("computed", [*SINGLE, *COMPUTED], f"{group('all', [*NAMES, *COMPUTED_NAMES])} {DCN}"),
    "combined": config("combined", [*SINGLE, *COMBINED], f"{group('all', [*NAMES, *COMBINED_NAMES])} {DCN}"),
    "computed_table": config(
        "computed",
        [*SINGLE, *COMPUTED],
        f"{group('all', [*NAMES, *COMPUTED_NAMES])} {DCN}",
        path=TABLE,
        dataset="OdpsDataset",
    ),
    "computed_din": config(
        "din",
        [*AGED, CLICKS, *COMPUTED],
        f"{group('deep', [*NAMES, *COMPUTED_NAMES])} {group('seq', [*QUERY, 'age', *CLICK_NAMES, 'click_seq__age'], 'SEQUENCE')} {DIN}",
    ),
    "expression": config(
        "expression",
        [raw("price", more='normalizer: "method=expression,expr=log(x+3)"'), *SINGLE[:3]],
        f"{group('all', NAMES)} {DCN}",
    ),
    "embedded_numbers": config(
        "numbers",
        [
            *SINGLE,
            raw("r1", "user", "embedding_dim: 4 mlp {}"),
            raw("r2", "user", "embedding_dim: 4 autodis { num_channels: 3 }"),
        ],
        f"{group('all', [*NAMES, 'r1', 'r2'])} {DCN}",
    ),
    "vocabularies": config(
        "vocabularies",
        [
            *SINGLE,
            ids("v1", "item", 'vocab_list: ["a", "b", "c"] default_bucketize_value: 1'),
            ids("v2", "item", 'vocab_dict { key: "a" value: 2 } vocab_dict { key: "b" value: 3 }'),
            raw("several", "user", "value_dim: 3 " + BUCKETS),
        ],
        f"{group('all', [*NAMES, 'v1', 'v2', 'several'])} {DCN}",
    ),
}
