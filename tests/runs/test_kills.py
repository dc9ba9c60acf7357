"""Runs that are killed or told to stop, and go on: not a bit is different."""

import os
import signal

import pytest

from tests.runs import victim

pytestmark = pytest.mark.slow

KILLS = 20
FEW = ("train.steps=5", "evaluate={}")
OFTEN = ("train.steps=120", "train.checkpoint={every_steps: 3, keep: 2}")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run that nobody kills, and the compiled programs that it leaves."""
    folder = tmp_path_factory.mktemp("undisturbed")
    process = victim.context().Process(target=victim.train, args=(OFTEN, folder / "run", folder / "cache"))
    process.start()
    process.join(victim.LIMIT)
    assert process.exitcode == 0
    return folder / "run", folder / "cache"


def test_sigkill_at_any_moment(undisturbed, tmp_path):
    chain = victim.Chain(OFTEN, tmp_path / "run", *undisturbed, seed=7)
    chain.go(KILLS)
    assert chain.kills == KILLS
    assert chain.finished
    assert chain.in_saves >= 3
    assert chain.starting < KILLS - 5


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_told_to_stop(undisturbed, tmp_path, number, code):
    """It finishes the step in work, saves, says how to go on; and going on gives the same bits."""
    whole, cache = undisturbed
    folder, output = tmp_path / "run", tmp_path / "output"
    seldom = (*OFTEN, "train.checkpoint={every_steps: 1000}")

    def start(*options):
        process = victim.context().Process(target=victim.command, args=(seldom, folder, cache, output, *options))
        process.start()
        return process

    process = start()
    assert victim.wait_until(lambda: victim.lines(folder) >= 10, process)
    os.kill(process.pid, number)
    process.join(victim.LIMIT)
    assert process.exitcode == code
    last = output.read_text().splitlines()[-1]
    step = victim.everything(folder)[0]
    assert last == f"sparrow: stopped by {number.name} after step {step}: saved; add --resume to continue"
    assert 10 <= step < 120
    refused = start()
    refused.join(victim.LIMIT)
    assert refused.exitcode == 2
    assert f"holds an unfinished run, last saved at step {step}; add --resume" in output.read_text()
    resumed = start("--resume")
    resumed.join(victim.LIMIT)
    assert resumed.exitcode == 0
    assert f"resumed at step {step} from" in output.read_text()
    victim.assert_same(folder, whole)


def test_a_second_ctrl_c_leaves_at_once(undisturbed, tmp_path):
    folder, output = tmp_path / "run", tmp_path / "output"
    _, cache = undisturbed
    process = victim.context().Process(target=victim.slow_to_stop, args=(OFTEN, folder, cache, output))
    process.start()
    assert victim.wait_until(lambda: victim.lines(folder) >= 3, process)
    os.kill(process.pid, signal.SIGINT)
    assert victim.wait_until(lambda: "stopping after this step" in output.read_text(), process)
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    assert process.exitcode == 130
    assert "interrupted at once" in output.read_text()


def test_two_writers(undisturbed, tmp_path):
    folder, output = tmp_path / "run", tmp_path / "output"
    _, cache = undisturbed
    first = victim.context().Process(target=victim.train, args=(("train.steps=100000",), folder, cache))
    first.start()
    assert victim.wait_until(lambda: victim.lines(folder) >= 3, first)
    for options in ((), ("--resume",), ("--overwrite",)):
        second = victim.context().Process(target=victim.command, args=(FEW, folder, cache, output, *options))
        second.start()
        second.join(victim.LIMIT)
        assert second.exitcode == 2
        title, line = output.read_text().splitlines()
        assert title.startswith("sparrow ")
        assert f"is in use by process {first.pid} on" in line
    assert first.is_alive()
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    third = victim.context().Process(target=victim.command, args=(FEW, folder, cache, output, "--overwrite"))
    third.start()
    third.join(victim.LIMIT)
    assert third.exitcode == 0
    assert f"process {first.pid} on" in output.read_text()
    assert "left this folder without finishing; this run continues" in output.read_text()
