"""Tables on a mesh: the numbers of one device, in place, with few collectives and few programs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DTYPES = ("float32", "bfloat16")


def on_devices(count, *checks, threads=None):
    """Run checks of on_devices.py on virtual devices, in one process.

    XLA has as many ``threads`` as devices, where there are fewer cores. A check that starts several programs at once
    needs more: a collective holds a thread until its program has one on each device.
    """
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    environment |= {} if threads is None else {"NPROC": str(threads)}
    program = [sys.executable, Path(__file__).with_name("on_devices.py"), *checks]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


ON_FOUR = [
    *(f"step_program:{exchange}:native" for exchange in ("pooled", "rows")),
    *("patched:pooled", "patched:rows", "patched:rows:mixed"),
    *("device_order", "dynamic", "undone", "small_cache"),
]


@pytest.fixture(scope="module")
def on_four():
    """What the quick checks found on four devices, in one process."""
    return on_devices(4, *ON_FOUR)


def assert_equal(check, found):
    words = check.split(":")
    exact = "pooled" in words and "native" in words
    assert found["first"], check  # the same initial values
    assert found["acts"] < 1e-6, check
    if exact:
        assert found["same"], check
        assert found["norm"], check
    else:
        # Sums that differ by rounding may end on two sides of a border between 16-bit numbers: one step of bfloat16.
        assert found["gap"] < (1e-6 if "float32" in words else 2**-7), check


ONE_RULE = {
    1: ["equal:pooled:native:float32:adam"],
    2: ["equal:pooled:native:float32:adam", "equal:rows:native:float32:rowwise_adagrad"],
    3: ["equal:pooled:native:float32:adam", "equal:rows:native:float32:rowwise_adagrad"],
    8: ["equal:pooled:native:bfloat16:partial_rowwise_adam"],
}


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(3, marks=pytest.mark.slow),
        8,
    ],
)
def test_a_mesh_gives_the_numbers_of_one_device(count):
    """Given the same activation gradients: the pooled exchange to the bit, the rows exchange to rounding.

    Bags are ragged, weighted, empty, shared; ids are ignored, strided, all equal and all distinct; one feature has half
    as many examples, and one table fewer rows than there are devices.
    """
    for check, found in on_devices(count, *ONE_RULE[count]).items():
        assert_equal(check, found)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "backend"), [(1, "native"), (2, "native"), (3, "native"), (8, "native"), (3, "xla")])
def test_every_rule_on_every_mesh(count, backend):
    """The exchanges do not depend on the backend: XLA, slow to compile, has one mesh, of uneven shards."""
    found = on_devices(count, *(f"every_rule:{backend}:{dtype}" for dtype in ("float32", "bfloat16")))
    for check, exchanges in found.items():
        assert exchanges.keys() == {"pooled", "rows"}
        for exchange, differences in exchanges.items():
            assert_equal(f"{check}:{exchange}", differences)


def assert_placed(check, found):
    """Copies add the sums of devices, which rounds otherwise; all else has the bits of one device."""
    assert found["first"], check
    assert found["acts"] < 1e-6, check
    exact = not {"replicated", "grid", "mixed", "rows"} & set(check.split(":"))
    assert found["same"] if exact else found["gap"] < (1e-6 if "float32" in check else 2**-7), check


def test_every_placement_gives_the_numbers_of_one_device():
    checks = ["device:native:float32:adam", "columns:native:float32:rowwise_adagrad", "mixed:native:float32:adam"]
    checks.append("mixed:native:float32:adam:pooled:host")
    for check, found in on_devices(6, *(f"placed:{check}" for check in checks)).items():
        assert_placed(check, found)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "xla"])
def test_every_rule_in_every_placement(backend):
    rules = ("sgd", "adam", "lamb", "partial_rowwise_adam")
    kinds = ("replicated", "device", "columns", "grid", "mixed")
    checks = [f"placed:{kind}:{backend}:{dtype}:{rule}" for kind in kinds for dtype in DTYPES for rule in rules]
    for check, found in on_devices(6, *checks).items():
        if backend == "native":
            assert_placed(check, found)
        else:
            assert found["gap"] < (1e-6 if "float32" in check else 2**-7), check


@pytest.mark.parametrize("rules", [":rowwise_adagrad", pytest.param("", marks=pytest.mark.slow)])
def test_rules_and_checkpoints_from_each_placement_to_each_other(rules):
    """Copies add the sums of devices, which rounds otherwise; all else has the bits of one device. All rules: slow."""
    [found] = on_devices(6, f"moved{rules}", threads=48).values()
    steps = {kind: found.pop(kind) for kind in ("rows", "replicated", "device", "columns", "grid")}
    assert all(own["gap"] < 1e-6 for own in steps.values()), steps
    assert all(steps[kind]["same"] for kind in ("rows", "device", "columns", "grid")), steps
    assert len(found) == 25
    assert all(found.values()), found


def test_the_step_is_in_place_and_exchanges_three_times(on_four):
    for check in ON_FOUR[:2]:
        found = on_four[check]
        assert found["collectives"].pop("all-to-all") == 3, check
        assert found["collectives"].pop("all-gather") == 1, check  # of the dense gradients, which each device adds
        assert not any(found["collectives"].values()), check
        assert found["copies"] == 0, check
        assert found["temp"] <= 3 * found["exchanged"] + (1 << 20), check
        assert found["stay"], check
        assert found["programs"] == 1, check


def test_rows_of_the_next_batch_are_fetched_before_the_update_and_patched_after_it(on_four):
    """The bits of a lookup after the update; only vectors with a touched row travel again."""
    for check in ON_FOUR[2:5]:
        assert all(on_four[check].values()), (check, on_four[check])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 8])
def test_vectors_that_travel_in_16_bits_are_rounded_once(count):
    """An error of at most 2^-8 of the sum of sizes, in activations and in the step of SGD; float32 sums it, too."""
    for check, found in on_devices(count, "rounded:pooled", "rounded:rows").items():
        assert found["acts"] < 1e-6, check
        assert found["tables"] < 1e-5, check
        assert found["differ"], check
        assert found["dtype"], check


def test_sums_are_in_the_order_of_devices(on_four):
    found = on_four["device_order"]
    assert found["reduced"]["xla"] > 0
    assert found["reduced"]["ordered"] == 0
    assert found["gap"] < 1e-5
    assert found["exchanged"] == 2  # of the towers' gradients, and of all parameters' together


@pytest.mark.slow
def test_ordered_features_on_a_mesh():
    (gaps,) = on_devices(4, "ordered:native").values()
    assert gaps.keys() == {"pooled", "rows"}
    assert max(gaps.values()) < 1e-5


def test_dynamic_tables_on_a_mesh(on_four):
    found = on_four["dynamic"]
    assert found["same"]
    assert found["ids"] > 20
    assert found["counts"][0] == found["counts"][1]


def test_each_device_has_a_cache_of_rows_in_host_memory(on_four):
    found = on_four["small_cache"]
    assert re.search(
        r"needs \d+ rows on one of 4 devices, and the cache holds 2; make memory.cache larger", found["problem"]
    )
    assert found["same"]


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["pooled", "rows"])
def test_tables_in_host_memory_on_a_mesh_have_the_bits_of_others(exchange):
    """Of a mesh of GPUs, whose memory is another one: steps, skipped ones, lookups, views, checkpoints both ways."""
    (found,) = on_devices(4, f"in_host_memory:{exchange}", threads=16).values()
    assert found.pop("apart") == [True, True]
    assert all(found.values()), found


def test_evictions_do_not_depend_on_the_number_of_devices():
    for check, found in on_devices(8, "evicted:lru", "evicted:lfu").items():
        assert not found["differ"], (check, found)
        assert min(found["evicted"]) > 100, (check, found)
        assert min(found["ids"], found["waiting"]) > 50, (check, found)


@pytest.mark.parametrize("count", [1, 4])
def test_ids_of_skipped_and_impossible_steps_leave_no_trace(count, request):
    found = (request.getfixturevalue("on_four") if count == 4 else on_devices(count, "undone"))["undone"]
    where = " on one of 4 devices" if count > 1 else ""
    problem = found.pop("problem")
    assert re.fullmatch(
        rf"table 'items': one step needs \d+ rows for its ids{where}, and there are 1\d; make vocabulary_size .*",
        problem,
    ), problem
    assert all(found.values()), found


@pytest.mark.slow
def test_optimizer_on_a_mesh():
    """Clipping, accumulation, EMA, loss scaling and a skipped step, on axes of both types."""
    found = on_devices(4, "optimizer:Auto:float32", "optimizer:Explicit:float32", "split_params")
    split = found.pop("split_params")
    assert all(split.values())
    assert all(split["split"])
    for check, result in found.items():
        assert result["gap"] < 1e-5, check
        assert result["norms"] < 1e-6, check
        assert result["steps"]["one"] == result["steps"]["mesh"] == [4, 1], check
        assert result["applied"]["one"] == result["applied"]["mesh"], check
        assert result["everywhere"], check


@pytest.mark.slow
def test_meshes_of_several_axes():
    """Two axes together, in another order than the mesh's, and one of two, whose other holds copies."""
    for check, found in on_devices(4, "axes:Auto:b,a", "axes:Auto:b", "axes:Explicit:a,b").items():
        assert found["shards"] == (2 if check == "axes:Auto:b" else 4)
        assert found["same"], check
        assert found["first"], check


@pytest.mark.slow
def test_the_rest_of_the_embedder():
    found = on_devices(
        4, "views", "exchanged_ahead", "automatic", "counted_traffic", "ragged_sizes", "layers", "refusals"
    )
    assert all(found["views"].values()), found["views"]
    assert all(found["exchanged_ahead"].values())
    assert len(found["counted_traffic"]) == 4
    assert all(found["counted_traffic"].values()), found["counted_traffic"]
    assert found["automatic"] == {"bags": ["pooled"] * 2, "hot": ["rows"] * 2}
    for exchange, result in found["ragged_sizes"].items():
        assert result["programs"] <= 6, exchange
        assert not result["new"], exchange
    assert max(found["layers"].values()) < 1e-5
    for mistake, words in {
        "uneven": "26 examples cannot be split evenly over the 4 devices",
        "axis": "the mesh has no axis 'dat': did you mean 'data'?",
        "mesh": "mesh must be a jax.sharding.Mesh",
        "exchange": "unknown exchange 'pool': did you mean 'pooled'?",
        "host memory": "table 'r' is in host memory: its rows are spread over all devices; leave placement out",
        "inside": "outside of jax.jit",
        "shape": "table 'movies' has the shape (211, 6), got (3, 6)",
        "other batch": "packed by an Embedder on other devices",
        "other mesh": "packed by an Embedder on other devices",
        "by hand, lookup": "a table was split over devices by hand",
        "by hand, update": "a table was split over devices by hand",
        "by hand, eager": "a table was split over devices by hand",
    }.items():
        assert words in found["refusals"][mistake], mistake
