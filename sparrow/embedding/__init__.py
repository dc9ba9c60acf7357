"""Tables and features: specs, packing, the `Embedder`, row gradients."""

from sparrow.embedding.embedder import Embedder, EmbeddingState
from sparrow.embedding.inputs import Ragged
from sparrow.embedding.packing import PackedBatch
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.specs import FeatureSpec, TableSpec

__all__ = ["Embedder", "EmbeddingState", "FeatureSpec", "PackedBatch", "Ragged", "RowGrads", "TableSpec"]
