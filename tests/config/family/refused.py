"""Configs that are refused, each with the paths of all its problems."""

from __future__ import annotations

from tests.config.family import hstu
from tests.config.family.parts import (
    BOTH,
    CLICK_IDS,
    DIN,
    DIN_GROUPS,
    NAMES,
    SINGLE,
    config,
    group,
)

REFUSED: dict[str, tuple[str, list[str]]] = {
    "dlrm_hstu": (
        hstu.CONFIGS["dlrm_hstu"]
        .replace("simple_mlp", "parameterized_mlp", 1)
        .replace("max_seq_len: 12", "max_seq_len: 12 sequence_timestamp_is_ascending: false"),
        [
            "model_config.dlrm_hstu.hstu.input_preprocessor.contextual_preprocessor.action_mlp.parameterized_mlp",
            "model_config.dlrm_hstu.sequence_timestamp_is_ascending",
        ],
    ),
    "interleaved": (
        hstu.CONFIGS["dlrm_hstu_padded"].replace("enable_interleaving: false", "enable_interleaving: true"),
        ["model_config.dlrm_hstu.hstu.input_preprocessor.contextual_interleave_preprocessor.enable_interleaving"],
    ),
    "hstu_match": (
        hstu.CONFIGS["hstu_match"]
        .replace("temperature: 0.05", "temperature: 0.05 sequence_timestamp_is_ascending: false")
        .replace("num_workers: 8", "num_workers: 8 batch_cost_size: 9"),
        ["data_config.sample_cost_field", "model_config.hstu_match.sequence_timestamp_is_ascending"],
    ),
    "sid_rqvae": (
        config(
            "sid",
            SINGLE,
            f"{group('deep', NAMES)} sid_rqvae {{ codebook: 4 candidate_output_config {{ enabled: true topk: 2 }} }} "
            "losses { recon_loss {} }",
        ),
        ["model_config.sid_rqvae.candidate_output_config.enabled"],
    ),
    "sid_rqkmeans": (
        config(
            "sid", SINGLE, f"{group('deep', NAMES)} sid_rqkmeans {{ codebook: [4, 4] }} losses {{ recon_loss {{}} }}"
        ),
        ["model_config.losses"],
    ),
    "sid_losses": (
        config("sid", SINGLE, f"{group('deep', NAMES)} sid_rqvae {{ codebook: 4 }} losses {{ contrastive_loss {{}} }}"),
        ["model_config.losses", "model_config.sid_rqvae"],
    ),
    "dc2vr": (config("dc2vr", SINGLE, f"{group('all', NAMES)} dc2vr {{}}", labels=BOTH), ["model_config.dc2vr"]),
    "sequences": (
        config(
            "sequences",
            [
                *SINGLE,
                "sequence_bool_mask_feature { feature_name: 'b' }",
                CLICK_IDS.replace("num_buckets", "value_dim: 0 weighted: true num_buckets"),
            ],
            f"{DIN_GROUPS} {DIN}",
        ),
        [
            "feature_configs.sequence_bool_mask_feature.expression",
            "feature_configs.sequence_feature.features.id_feature.weighted",
        ],
    ),
}
