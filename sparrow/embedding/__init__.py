"""Tables and features: specs, packing, the `Embedder`, row gradients."""

from sparrow.embedding.clipping import clip_factor
from sparrow.embedding.dynamic.id_map import Settings, id_map
from sparrow.embedding.dynamic.new_rows import NewRows
from sparrow.embedding.dynamic.record import Dynamic
from sparrow.embedding.dynamic.vocabularies import Held, Vocabularies, replaced
from sparrow.embedding.embedder import Embedder
from sparrow.embedding.hashing import U64, hash_integers, mix64
from sparrow.embedding.host.lookahead import staged
from sparrow.embedding.host.plans import IdsOf, Plans
from sparrow.embedding.host.record import HostMemory
from sparrow.embedding.host.rows import free_memory
from sparrow.embedding.host.session import Session
from sparrow.embedding.host.swaps import Counts, Swap
from sparrow.embedding.host.tables import HostTables
from sparrow.embedding.host.transfer import Sender, copied, is_in_host_memory, on_host, to_host
from sparrow.embedding.host.transfer import blocks as host_blocks
from sparrow.embedding.host.workers import Workers
from sparrow.embedding.initializers import INITIALIZERS, Constant, Initializer, Normal, Uniform, register_initializer
from sparrow.embedding.inputs import Bags, to_bags
from sparrow.embedding.ordered import room_name
from sparrow.embedding.packed_batch import Group, PackedBatch
from sparrow.embedding.packing import MAX_ENTRIES, Measured, of_one_size
from sparrow.embedding.ragged import Ragged
from sparrow.embedding.row_grads import RowGrads
from sparrow.embedding.sequences import Jagged, Sequence
from sparrow.embedding.sharding.device_order import in_device_order
from sparrow.embedding.sharding.imagined import imagined_mesh
from sparrow.embedding.sharding.measured import RoutedBatch
from sparrow.embedding.sharding.shards import Shards, from_host
from sparrow.embedding.sizes import Learned, Sizes, size_class
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.embedding.stacking import Stack
from sparrow.embedding.state import EmbeddingState

__all__ = [
    "INITIALIZERS",
    "MAX_ENTRIES",
    "U64",
    "Bags",
    "Constant",
    "Counts",
    "Dynamic",
    "Embedder",
    "EmbeddingState",
    "FeatureSpec",
    "Group",
    "Held",
    "HostMemory",
    "HostTables",
    "IdsOf",
    "Initializer",
    "Jagged",
    "Learned",
    "Measured",
    "NewRows",
    "Normal",
    "PackedBatch",
    "Plans",
    "Ragged",
    "RoutedBatch",
    "RowGrads",
    "Sender",
    "Sequence",
    "Session",
    "Settings",
    "Shards",
    "Sizes",
    "Stack",
    "Swap",
    "TableSpec",
    "Uniform",
    "Vocabularies",
    "Workers",
    "clip_factor",
    "copied",
    "free_memory",
    "from_host",
    "hash_integers",
    "host_blocks",
    "id_map",
    "imagined_mesh",
    "in_device_order",
    "is_in_host_memory",
    "mix64",
    "of_one_size",
    "on_host",
    "register_initializer",
    "replaced",
    "room_name",
    "size_class",
    "staged",
    "to_bags",
    "to_host",
]
