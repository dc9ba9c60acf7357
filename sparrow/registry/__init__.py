"""Records by name: exact conversion between objects and config files, dicts or JSON.

A *record* is a frozen dataclass registered under a name. Rules, schedules, dense optimizers, losses, metrics, models,
features, sources and initializers each keep one `Registry`; a user's own record is registered the same way as the
shipped ones. `read` and `written` are the two directions, by the types of the fields.
"""

from sparrow.registry.reading import (
    NOT_EMPTY,
    REGISTRIES,
    Bounds,
    fields_of,
    freeze,
    read,
    read_fields,
    registry_of,
    written,
)
from sparrow.registry.registry import FUNCTIONS, Registry, dump_yaml, load_yaml, yaml_classes
from sparrow.registry.schema import PLACEHOLDER, fields_schema, schema
from sparrow.registry.synonyms import answering, nearest
