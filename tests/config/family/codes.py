# ruff: noqa: E501  configs read best in one line for each part
"""Models of semantic ids: vectors of items become codes. They have no labels."""

from __future__ import annotations

from tests.config.family.parts import ADAM, config, group, raw

VECTOR, OTHER, FLAG = raw("vector", more="value_dim: 6"), raw("other", more="value_dim: 6"), raw("is_pair")
PAIRS = group("deep", ["vector"]) + group("pair", ["other"]) + group("flag", ["is_pair"])
LOSSES = (
    "losses { recon_loss { recon_type: 'l2' } } losses { commitment_loss { latent_weight: 1.0 latent_weight: 0.5 } }"
)


def without_labels(name, features, model):
    """A config that reads no labels."""
    return config(name, features, model, dense=ADAM).replace('label_fields: "clk"', "")


CONFIGS: dict[str, str] = {
    "sid_rqkmeans": without_labels(
        "codes",
        [VECTOR],
        f"{group('deep', ['vector'])} sid_rqkmeans {{ codebook: 8 codebook: 4 faiss_kmeans_kwargs {{ niter: 5 seed: 42 min_points_per_centroid: 1 }} }}",
    ),
    "sid_rqvae": without_labels(
        "codes",
        [VECTOR],
        f"{group('deep', ['vector'])} sid_rqvae {{ embed_dim: 4 hidden_dims: 8 codebook: 8 codebook: 4 kmeans_init: true sinkhorn_config {{ enabled: false iters: 5 }} }} {LOSSES}",
    ),
    "sid_rqvae_pairs": without_labels(
        "codes",
        [VECTOR, OTHER, FLAG],
        f"{PAIRS} sid_rqvae {{ embed_dim: 4 hidden_dims: 8 codebook: [8, 4] contrastive_config {{ pair_feature_group: 'pair' pair_flag_feature_group: 'flag' }} }} {LOSSES} losses {{ contrastive_loss {{}} }}",
    ),
}
