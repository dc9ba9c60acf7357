"""Tables and features: specs, packing, the `Embedder`, row gradients."""

from sparrow.embedding.embedder import Embedder, EmbeddingState
from sparrow.embedding.hashing import U64, hash_integers, mix64
from sparrow.embedding.initializers import INITIALIZERS, Constant, Initializer, Normal, Uniform, register_initializer
from sparrow.embedding.inputs import Bags, Ragged, to_bags
from sparrow.embedding.packing import Measured, PackedBatch, of_one_size
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sizes import Learned, Sizes, size_class
from sparrow.embedding.specs import FeatureSpec, TableSpec

__all__ = [
    "INITIALIZERS",
    "U64",
    "Bags",
    "Constant",
    "Embedder",
    "EmbeddingState",
    "FeatureSpec",
    "Initializer",
    "Learned",
    "Measured",
    "Normal",
    "PackedBatch",
    "Ragged",
    "RowGrads",
    "Sizes",
    "TableSpec",
    "Uniform",
    "hash_integers",
    "mix64",
    "of_one_size",
    "register_initializer",
    "size_class",
    "to_bags",
]
