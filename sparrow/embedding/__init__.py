"""Tables and features: specs, packing, the `Embedder`, row gradients."""

from sparrow.embedding.embedder import Embedder, EmbeddingState
from sparrow.embedding.initializers import INITIALIZERS, Initializer, register_initializer
from sparrow.embedding.inputs import Ragged
from sparrow.embedding.packing import PackedBatch
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sizes import Sizes
from sparrow.embedding.specs import FeatureSpec, TableSpec

__all__ = [
    "INITIALIZERS",
    "Embedder",
    "EmbeddingState",
    "FeatureSpec",
    "Initializer",
    "PackedBatch",
    "Ragged",
    "RowGrads",
    "Sizes",
    "TableSpec",
    "register_initializer",
]
