"""The planner: near the best of all placements on small cases, even, and within memory."""

import itertools

import numpy as np
import pytest

import sparrow as sp
from sparrow.embedding.planner.costs import Costs, Links
from sparrow.embedding.planner.search import candidates, choose, choose_placement
from sparrow.embedding.planner.uses import Use, imagined_mesh, uses

FAST = Links(link=1e9, latency=1e-9)  # bytes count


def table(name, rows, dim=16, rule=None):
    return sp.TableSpec(name=name, vocabulary_size=rows, embedding_dim=dim, optimizer=rule or sp.rules.Adagrad(0.1))


def use(bags, ids, rows):
    lengths = [0.0] * (ids + 1)
    lengths[ids] = bags
    distinct = min(rows, bags * ids) * 0.9
    return Use(bags, tuple(map(float, lengths)), distinct, (bags / 10, bags * ids / 10), weighted=False)


CASES = [
    ({"a": (5, 1), "b": (50_000, 1), "c": (80_000, 20)}, 2),
    ({"a": (5, 1), "b": (50_000, 10), "c": (50_000, 10), "d": (300, 2)}, 2),
    ({"a": (3, 1), "b": (90_000, 30), "c": (40_000, 1)}, 4),
    ({"a": (30_000, 5), "b": (30_000, 5), "c": (30_000, 5)}, 4),
]


def every_placement(costs):
    """Yield the costs of all combinations of forms and devices."""
    forms = []
    for name in costs.tables:
        places = []
        for form in candidates(costs, name):
            each = costs.devices if form.copies else form.columns * form.over
            places += [form._replace(device=device) for device in range(0, costs.devices, each)]
        forms.append(places)
    for places in itertools.product(*forms):
        yield costs.of(dict(zip(costs.tables, places, strict=True)))


@pytest.mark.parametrize("rule", [sp.rules.Adagrad(0.1), sp.rules.RowwiseAdagrad(0.1)])
@pytest.mark.parametrize(("sizes", "devices"), CASES)
def test_the_choice_is_near_the_best_of_all(sizes, devices, rule):
    tables = [table(name, rows, rule=rule) for name, (rows, _) in sizes.items()]
    counted = {name: use(512, ids, rows) for name, (rows, ids) in sizes.items()}
    costs = Costs(tables, counted, devices, links=FAST)
    best = min(cost.score for cost in every_placement(costs))
    found = choose(costs)
    assert found.cost.score <= 1.05 * best
    assert found.cost.score <= found.by_rows.score


def batch(rng, rows, ids, size):
    return (rows * rng.random((size, ids)) ** 3).astype(np.int64)


def long_bags(rule=None):
    sizes = {"a": (5, 1), "b": (50_000, 20), "c": (80_000, 30), "d": (300, 2), "e": (70_000, 6)}
    rng = np.random.default_rng(0)
    specs = [sp.FeatureSpec(name=name, table_spec=table(name, rows, 32, rule)) for name, (rows, _) in sizes.items()]
    return sp.Embedder(specs), {name: batch(rng, rows, ids, 2048) for name, (rows, ids) in sizes.items()}


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_estimates_are_near_the_routed_bytes(devices):
    """The search estimates the room of pairs; the bytes of the chosen places are those of real ids."""
    embedder, inputs = long_bags()
    choice = choose_placement(embedder, inputs, devices, links=FAST)
    for placement, cost in ((choice.placements, choice.cost), ("rows", choice.by_rows)):
        mesh = imagined_mesh(embedder, devices, placement=placement)
        routed = mesh.measure(inputs)
        sent = sum(one.sent for one in mesh.traffic(routed, sp.Sizes().fit(mesh.settle(routed.needs))).values())
        assert cost.sent == pytest.approx(sent, rel=0.25)
    # On two devices 0.62 is the least of all balanced placements.
    assert choice.cost.sent < (0.63 if devices == 2 else 0.5) * choice.by_rows.sent
    assert choice.cost.fullest < 1.15
    assert choice.cost.lookups < 1.15


@pytest.mark.parametrize(
    "rule", [sp.rules.Adagrad(0.1), pytest.param(sp.rules.RowwiseAdagrad(0.1), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("devices", [256, pytest.param(1024, marks=pytest.mark.slow)])
def test_many_devices_are_even_and_send_little_padding(devices, rule):
    """26 tables fill no number of devices evenly in one form; by rows, hot rows make owners uneven."""
    rng, size = np.random.default_rng(0), 65_536
    rows = np.exp(rng.random((26, size)) * np.log(40_000_000)).astype(np.int64)
    tables = [table(f"t{i}", 40_000_000, 128, rule) for i in range(26)]
    embedder = sp.Embedder([sp.FeatureSpec(name=one.name, table_spec=one) for one in tables])
    inputs = {one.name: own for one, own in zip(tables, rows, strict=True)}
    links = Links(link=300e9, network=50e9, latency=20e-6, memory=3e12)
    choice = choose_placement(embedder, inputs, devices, devices // 8, links)
    assert choice.cost.fullest <= 1.15
    assert choice.cost.lookups <= 1.15
    mesh = imagined_mesh(embedder, devices, placement=choice.placements)
    batch = mesh.measure(inputs)
    stacks = mesh.traffic(batch, sp.Sizes().fit(mesh.settle(batch.needs))).values()
    assert sum(stack.padding * stack.sent for stack in stacks) <= 0.25 * sum(stack.sent for stack in stacks)
    width = {stack.name: stack.dim // mesh.layouts[stack.name].columns for stack in mesh.stacks}
    read = sum(width[name] * sum(route.entries for route in own.pooled) for name, own in batch.routed.items())
    assert read.max() <= 1.15 * read.mean()


def test_hot_rows_make_owners_uneven():
    """The estimate of the fullest owner of rows that a hash spreads is near the one of real ids."""
    tables = [table(f"t{i}", 40_000) for i in range(6)]
    embedder = sp.Embedder([sp.FeatureSpec(name=one.name, table_spec=one) for one in tables])
    rng = np.random.default_rng(0)
    inputs = {one.name: np.exp(rng.random((4096, 2)) * np.log(40_000)).astype(np.int64) for one in tables}
    by_rows = choose_placement(embedder, inputs, 64).by_rows
    mesh = imagined_mesh(embedder, 64)
    [routed] = mesh.measure(inputs).routed.values()
    [stack] = by_rows.stacks
    read = sum(route.rows if stack.exchange == "rows" else route.entries for route in routed.rows or routed.pooled)
    assert by_rows.lookups > 1.15
    assert by_rows.lookups == pytest.approx(read.max() / read.mean(), rel=0.15)


def test_uses_are_counted():
    embedder, inputs = long_bags()
    found = uses(embedder, inputs, 4)
    assert found["c"].bags == 512
    assert found["c"].entries == 512 * 30
    parts = inputs["c"].reshape(4, -1)
    assert found["c"].distinct == pytest.approx(np.mean([len(np.unique(part)) for part in parts]))
    counts = np.unique(inputs["c"], return_counts=True)[1].astype(float)
    assert found["c"].hottest[1] == counts.max() / 4
    devices = np.unique(np.concatenate([np.unique(part) for part in parts]), return_counts=True)[1]
    assert found["c"].squares == (np.square(counts).sum(), np.square(devices).sum())
    assert not found["a"].ragged
    assert found["c"].sums(1) == 512


def test_no_more_is_sent_than_by_rows_without_a_reason():
    """Copies save two collectives here; they would send 60 times the bytes, and rows are even."""
    choice = choose(Costs([table("a", 2000)], {"a": use(64, 1, 2000)}, 8))
    assert choice.by_rows.lookups < 1.12
    assert choice.cost.sent <= choice.by_rows.sent
    assert choice.alternatives["a"]["replicated"].seconds < choice.cost.seconds


def test_a_full_device_moves_tables():
    embedder, inputs = long_bags()
    counted = uses(embedder, inputs, 4)
    total = sum(Costs(list(embedder.tables.values()), counted, 4).bytes.values())
    choice = choose(Costs(list(embedder.tables.values()), counted, 4, links=FAST, memory=int(0.3 * total)))
    assert choice.cost.memory <= 0.3 * total


def test_dynamic_tables_stay_by_rows():
    spec = sp.TableSpec(
        name="ids", vocabulary_size=64, embedding_dim=8, optimizer=sp.rules.SGD(0.1), dynamic=sp.Dynamic()
    )
    embedder = sp.Embedder([sp.FeatureSpec(name="id", table_spec=spec)])
    assert choose_placement(embedder, {"id": np.arange(64)}, 4).placements == {}
