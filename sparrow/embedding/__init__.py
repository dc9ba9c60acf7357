"""Tables and features: specs, packing, the `Embedder`, row gradients."""

from sparrow.embedding.clipping import clip_factor
from sparrow.embedding.dynamic.id_map import Settings, id_map
from sparrow.embedding.dynamic.new_rows import NewRows
from sparrow.embedding.dynamic.record import Dynamic
from sparrow.embedding.dynamic.vocabularies import Held, Vocabularies, replaced
from sparrow.embedding.embedder import Embedder
from sparrow.embedding.hashing import U64, hash_integers, mix64
from sparrow.embedding.initializers import INITIALIZERS, Constant, Initializer, Normal, Uniform, register_initializer
from sparrow.embedding.inputs import Bags, Ragged, to_bags
from sparrow.embedding.ordered import room_name
from sparrow.embedding.packing import Group, Measured, PackedBatch, of_one_size
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sequences import Jagged, Sequence
from sparrow.embedding.sharding.imagined import imagined_mesh
from sparrow.embedding.sharding.measured import RoutedBatch
from sparrow.embedding.sharding.shards import Shards, from_host
from sparrow.embedding.sizes import Learned, Sizes, size_class
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.embedding.state import EmbeddingState

__all__ = [
    "INITIALIZERS",
    "U64",
    "Bags",
    "Constant",
    "Dynamic",
    "Embedder",
    "EmbeddingState",
    "FeatureSpec",
    "Group",
    "Held",
    "Initializer",
    "Jagged",
    "Learned",
    "Measured",
    "NewRows",
    "Normal",
    "PackedBatch",
    "Ragged",
    "RoutedBatch",
    "RowGrads",
    "Sequence",
    "Settings",
    "Shards",
    "Sizes",
    "TableSpec",
    "Uniform",
    "Vocabularies",
    "clip_factor",
    "from_host",
    "hash_integers",
    "id_map",
    "imagined_mesh",
    "mix64",
    "of_one_size",
    "register_initializer",
    "replaced",
    "room_name",
    "size_class",
    "to_bags",
]
