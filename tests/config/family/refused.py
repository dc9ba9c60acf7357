"""Configs that are refused, each with the paths of all its problems."""

from __future__ import annotations

from tests.config.family.parts import (
    BOTH,
    CLICK_IDS,
    DIN,
    DIN_GROUPS,
    NAMES,
    RECALL,
    SINGLE,
    USER_ITEM,
    config,
    group,
    raw,
)

REFUSED: dict[str, tuple[str, list[str]]] = {
    "dlrm_hstu": (config("hstu", SINGLE, f"{USER_ITEM} dlrm_hstu {{ max_seq_len: 8 }}"), ["model_config.dlrm_hstu"]),
    "ultra_hstu": (config("hstu", SINGLE, f"{USER_ITEM} ultra_hstu {{ max_seq_len: 8 }}"), ["model_config.ultra_hstu"]),
    "hstu_match": (
        config("hstu", SINGLE, f"{USER_ITEM} hstu_match {{ output_dim: 4 }} {RECALL}", data="sample_mask_prob: 0.1"),
        ["data_config.sample_mask_prob", "model_config.hstu_match"],
    ),
    "sid_rqvae": (
        config("sid", SINGLE, f"{group('deep', NAMES)} sid_rqvae {{}} losses {{ recon_loss {{}} }}"),
        ["model_config.sid_rqvae", "model_config.losses.recon_loss"],
    ),
    "sid_rqkmeans": (config("sid", SINGLE, f"{group('deep', NAMES)} sid_rqkmeans {{}}"), ["model_config.sid_rqkmeans"]),
    "dc2vr": (config("dc2vr", SINGLE, f"{group('all', NAMES)} dc2vr {{}}", labels=BOTH), ["model_config.dc2vr"]),
    "computed_in_sequences": (
        config(
            "mask",
            [
                *SINGLE,
                "sequence_bool_mask_feature { feature_name: 'b' }",
                CLICK_IDS.replace("id_feature {", "combine_feature {", 1),
            ],
            f"{DIN_GROUPS} {DIN}",
        ),
        [
            "feature_configs.sequence_bool_mask_feature",
            "feature_configs.sequence_feature.features.combine_feature",
        ],
    ),
    "masked": (
        config(
            "masked",
            [raw("price", more="use_mask: true"), *SINGLE[:3]],
            f"{DIN_GROUPS} {DIN}",
            data="batch_cost_size: 3",
        ),
        ["data_config.batch_cost_size", "feature_configs.raw_feature.use_mask"],
    ),
}
