"""Every record that has a name can stand in a config: read, written, in the JSON schema, and refused when wrong."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from sparrow import config, metrics, rules, schedules
from sparrow.config import ConfigError, json_schema
from sparrow.config.loading.files import plain
from sparrow.config.loading.json_schema import KINDS
from sparrow.data import Expr, IdFeature, Parquet, Tables, register_function
from sparrow.models import (
    HSTU,
    MLP,
    STU,
    Actions,
    BayesTaskTower,
    Capsules,
    Content,
    DINTower,
    ExtractionNetwork,
    HSTUChannel,
    MaskBlocks,
    MINDUserTower,
    TaskTower,
    Tower,
    WukongLayer,
)
from sparrow.registry import fields_of
from sparrow.rules.shipped import RULES
from tests.config.examples import valid

REQUIRED = {
    "lr": 0.1,
    "end": 0.01,
    "steps": 10,
    "decay_size": 3,
    "schedule_sizes": (3,),
    "learning_rates": (0.01,),
    "t_max": 4,
    "t_0": 4,
    "session_name": "session",
    "codebook": (8, 4),
    "num_classes": 3,
    "name": "item",
    "embedding_dim": 4,
    "max_length": 5,
    "cross": ("a", "b"),
    "hash_bucket_size": 10,
    "path": "clicks.parquet",
    "impressions": 100,
    "rows": 100,
    "part": "train",
    "columns": ("user", "item"),
    "low": -0.5,
    "source": Parquet("items.parquet"),
    "column": "attributes",
    "separator": ":",
    "into": ("a", "b"),
    "high": 0.5,
    "final": MLP((8,)),
    "deep": MLP((8, 4), dropout_ratio=0.5),
    "expert_mlp": MLP((8,)),
    "task_towers": (TaskTower("click", MLP((4,))),),
    "towers": (Tower("user", MLP((4,))), Tower("item")),
    "user_tower": Tower("user"),
    "item_tower": Tower("item"),
    "cin_layer_size": (4, 2),
    "mask_net_module": MaskBlocks(2, 4),
    "wukong_layers": (WukongLayer(2, 2, MLP((4,))),),
    "extraction_networks": (ExtractionNetwork(1, MLP((4,))),),
    "booster_mlp": MLP((8,)),
    "light_mlp": MLP((4,)),
    "user_augment": "user_augment",
    "item_augment": "item_augment",
    "output_dim": 4,
    "din_towers": (DINTower("history", MLP((4,))),),
    "windows_len": (2, 3),
    "attn_mlp": MLP((4,)),
    "hstu": HSTU(8, 2, 4, 4, 10),
    "channel": HSTUChannel(STU(8, 2, 4, 4, 10, 16)),
    "channels": (HSTUChannel(STU(8, 2, 4, 4, 10, 16), actions=Actions(2, (1, 2), 4), content=Content(4)),),
    "vocabulary": "tokenizer.json",
    "expression": "a / b",
    "map": "clicks",
    "key": "category",
    "nested_map": "clicks",
    "query": "query",
    "title": "title",
    "document": "title",
    "method": "is_equal",
    "mask": "valid",
    "boundaries": (1.0, 2.0),
    "value": 7,
    "first": "query",
    "second": "title",
    "pattern": "[0-9]",
    "replacement": "",
    "function": "test_of_records",
    "arguments": ("a", Expr("a + b")),
    "compute_each": Expr("a + b"),
    "sequences": ("a",),
    "num_channels": 3,
    "input": "history",
}
register_function("test_of_records")(lambda a, b: a)
MIND_USER = MINDUserTower("user", "history", MLP((4,)), Capsules(4, 5), MLP((4,)))
GIVEN = {
    "dbmtl": {"task_towers": (BayesTaskTower("click"),)},
    "mind": {"user_tower": MIND_USER},
    "id": {"num_buckets": 10},
    "sequence": {"vocabulary": ("a", "b")},
    "bag_sequence": {
        "element": IdFeature("x", num_buckets=3, embedding_dim=2, pooling="sum"),
        "separator": ";",
        "sequences": ("x",),
    },
    "histories": {"user": "user", "item": "item"},
    "follow": {"path": "clicks/*.parquet"},
    "kafka": {"servers": "localhost:9092", "topics": ("clicks",)},
}
NESTED = {"decayed": metrics.MAE(), "by_group": metrics.NDCGAtK()}
RECORDS = [(registry, name) for registry in KINDS for name in registry.names()]


def record_of(registry, name):
    """The record with its defaults, and something sensible for the fields that have none."""
    cls = registry[name]
    given = GIVEN.get(name, {})
    missing = [field for field, described in fields_of(cls).items() if described.required and field not in given]
    fields = {field: NESTED[name] if field == "metric" else REQUIRED[field] for field in missing}
    return cls(**{**fields, **given})


@pytest.mark.parametrize(("registry", "name"), RECORDS, ids=lambda x: getattr(x, "kind", x))
@pytest.mark.parametrize("defaults", [False, True])
def test_written_and_read_back(registry, name, defaults):
    record = record_of(registry, name)
    written = plain(record, defaults)
    assert registry.read(written) == record
    if defaults:
        assert set(written) == {registry.key, *fields_of(type(record))} or written == name


@pytest.mark.parametrize(("registry", "name"), RECORDS, ids=lambda x: getattr(x, "kind", x))
def test_unknown_field_is_refused_by_name(registry, name):
    written = plain(record_of(registry, name), defaults=True)
    written = {registry.key: written} if isinstance(written, str) else written
    with pytest.raises(ConfigError, match=r"^no_such_field: unknown field"):
        registry.read(written | {"no_such_field": 1})


def test_every_rule_has_a_name():
    assert {RULES[name] for name in RULES.names()} >= set(rules.SHIPPED)


def test_schedules_inside_rules():
    written = {"name": "adam", "learning_rate": {"name": "linear", "lr": 0.1, "end": 0.0, "steps": 5}, "beta1": 0.8}
    rule = RULES.read(written)
    assert rule == rules.Adam(learning_rate=schedules.linear(0.1, 0.0, 5), beta1=0.8)
    assert plain(rule) == written


def test_records_without_a_name_work_from_python():
    def schedule(step):
        return 0.1

    table = Tables({"id_0": [1], "id_1": [2], "probability": [0.5]})
    made = config.from_mapping(valid(train__dense_optimizer__learning_rate=schedule, data__train=table))
    assert made.train.dense_optimizer.learning_rate is schedule
    assert made.data.train is table
    with pytest.raises(ConfigError, match=r"^config.train.dense_optimizer.learning_rate is <function .* has no name"):
        config.dumps(made)


def test_what_has_no_name_cannot_be_written():
    with pytest.raises(ConfigError, match=r"config.learning_rate is <function .* has no name"):
        plain(rules.Adam(learning_rate=lambda step: 0.1))


def test_ones_own_rule():
    @dataclasses.dataclass(frozen=True)
    class Own(rules.Rule):
        strength: float = 1.0

        def update(self, row, grad, slots, h):
            return row - h.learning_rate * h.strength * grad, slots

    config.register_rule("own_rule_of_this_test")(Own)
    try:
        read = RULES.read({"name": "own_rule_of_this_test", "strength": 2.0})
        assert read == Own(strength=2.0)
        names = [form["properties"]["name"]["const"] for form in json_schema()["$defs"]["rule"]["anyOf"][1:]]
        assert "own_rule_of_this_test" in names
    finally:
        del RULES._records["own_rule_of_this_test"]


def test_json_schema_holds_every_record_and_only_known_references():
    schema = json_schema()
    for registry in KINDS:
        forms = [form for form in schema["$defs"][registry.kind]["anyOf"] if "enum" not in form]
        assert [form["properties"][registry.key]["const"] for form in forms] == registry.names()
        assert all(form["additionalProperties"] is False for form in forms)
    for reference in references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"], reference


def references(node):
    if isinstance(node, dict):
        yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
        for item in node.values():
            yield from references(item)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_the_schema_file_is_up_to_date():
    """In a process of its own, where no test has registered anything."""
    written = Path(config.__file__).with_name("schema.json").read_text()
    printed = subprocess.run([sys.executable, "-m", "sparrow.config"], capture_output=True, text=True, check=True)
    assert printed.stdout == written, "python -m sparrow.config > sparrow/config/schema.json"
