"""Plans over many devices: rows add up, traffic is that of a real mesh, balance and refusals."""

import dataclasses
import json

import pytest

from sparrow import config, plan
from sparrow.cli import main
from sparrow.config import ConfigError
from sparrow.planning.many import Links, spread
from sparrow.runs.step.memory import Memory
from tests.runs.cases import case

SMALL = ("train.batch_size=256", "train.steps=4", "data.evaluate=null", "data.features[0].num_buckets=5000")


@pytest.fixture(scope="module")
def planned():
    return plan(case(*SMALL))


def test_memory_divides_and_traffic_grows(planned):
    by_rows = [case(*SMALL, f"train.mesh.data={n}", "train.mesh.placement=rows") for n in (1, 2, 8, 64)]
    made = {one.train.mesh.data: spread(one, planned, one.train.mesh.data) for one in by_rows}
    tables = {n: one.tables for n, one in made.items()}
    assert tables[1] == sum(table.total for table in planned.tables)
    for n in (2, 8):
        assert tables[1] / n <= tables[n] <= tables[1] / n * 1.2 + 64 * n
    assert made[1].sent == 0
    assert made[2].sent > 0
    assert all(one.exchange in ("pooled", "rows") for one in made[8].stacks.values())
    assert all(one.fullest >= 1 and 0 <= one.padding < 1 for one in made[8].stacks.values())
    assert made[8].seconds > 0


def test_small_tables_are_copied(planned):
    made = spread(case(*SMALL), planned, 8)
    assert "replicated" in made.placement.values()
    assert made.tables <= sum(table.total for table in planned.tables)
    assert len(made.used) == len(made.read) == 8
    assert made.alternatives.keys() == {table.name for table in planned.tables}
    sent, seconds = made.by_rows
    assert sent > 0
    assert seconds >= made.alternatives["id_0"][""][1]


def test_bytes_between_processes(planned):
    alone, many = (spread(case(*SMALL), planned, 8, processes) for processes in (1, 4))
    assert alone.between == 0
    assert many.inside + many.between == alone.inside
    assert many.between == pytest.approx(alone.inside * 6 / 7, abs=1)


def test_time_follows_the_given_rates(planned):
    slow, fast = (
        spread(case(*SMALL), planned, 8, 2, Links(link=1e9, network=rate, latency=1e-6)) for rate in (1e6, 1e9)
    )
    assert slow.exchange_seconds == pytest.approx(slow.between * 4 / 1e6)
    assert slow.seconds > fast.seconds
    exchanged = sum(stack.exchange != "copies" for stack in slow.stacks.values())
    assert slow.latency_seconds == pytest.approx((3 * exchanged + (len(slow.stacks) - exchanged) + 2) * 1e-6)


def test_refusals(planned):
    with pytest.raises(ConfigError, match="8 devices cannot be shared evenly by 3 processes"):
        spread(case(*SMALL), planned, 8, 3)
    with pytest.raises(ConfigError, match="256 examples cannot be split evenly over 5 devices"):
        spread(case(*SMALL), planned, 5)


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        ("{id_9: device}", "train.mesh.placement: placement names an unknown table 'id_9': did you mean 'id_2'"),
        (
            "{id_0: sideways}",
            "train.mesh.placement.id_0: must be 'rows', 'replicated', 'device', 'columns' or 'grid' or",
        ),
        (
            "{id_0: {kind: device, devices: 2}}",
            "train.mesh.placement.id_0: placement: devices has no meaning for 'device'",
        ),
        ("{id_0: {columns: 2}}", "train.mesh.placement.id_0: placement: columns has no meaning for 'rows'"),
        ("{id_0: {kind: columns, columns: 3}}", "train.mesh.placement: table 'id_0': rows of 4 numbers cannot be cut"),
        ("{id_0: {kind: device, device: 9}}", "train.mesh.placement: table 'id_0': placement.device must be"),
        ("{id_0: {kind: grid, columns: 2, devices: 3}}", "train.mesh.placement: table 'id_0': 2 pieces over 3 devices"),
    ],
)
def test_placements_that_cannot_be(planned, placement, problem):
    """One sentence, which names the table."""
    with pytest.raises(ConfigError) as refused:
        spread(case(*SMALL, f"train.mesh={{data: 4, placement: {placement}}}"), planned, 4)
    assert str(refused.value).startswith(problem)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(("share", "end"), [(0.9, "too much"), (1.1, " free, fits")])
def test_devices_with_too_little_memory(planned, share, end):
    by_rows = case(*SMALL, "train.mesh={data: 8, placement: rows}")
    needed = spread(by_rows, planned, 8).memory
    places = (Memory("device 0", needed * 9, int(needed * share)), Memory("device 1", needed * 9, needed * 2))
    small = dataclasses.replace(planned, machine=dataclasses.replace(planned.machine, devices=places))
    assert spread(by_rows, small, 8).fits.endswith(end)


def test_dynamic_tables(planned):
    field = "data.features[0]={kind: id, name: id_0, embedding_dim: 4, dynamic: {rows: 60}}"
    made = spread(case(*SMALL[:-1], field), planned, 8)
    assert all(one.sent > 0 for one in made.stacks.values())


def test_command(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text(config.dumps(case(*SMALL, "train.mesh.data=4")))
    assert main(["plan", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spread"]["devices"] == 4
    assert main(["plan", str(path), "--devices", "8", "--processes", "2", "--network", "3"]) == 0
    shown = capsys.readouterr().out
    assert "Traffic of 8 devices in 2 processes" in shown
    assert "Memory of a device" in shown
    assert "Placement; all tables by rows" in shown
    assert "fullest over the mean" in shown
    assert main(["plan", str(path), "--devices", "7"]) == 2
    saved = tmp_path / "placed.yaml"
    assert main(["plan", str(path), "--devices", "8", "--save", str(saved)]) == 0
    mesh = config.load(saved).train.mesh
    assert mesh.data == 8
    assert mesh.placement != "auto"
    assert main(["plan", str(path), "--devices", "1", "--save", str(saved)]) == 2
