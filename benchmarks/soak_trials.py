"""The trials of the soak script: failing file operations, damaged files, kills, readers; and the guarantees."""

import collections
import contextlib
import errno
import io
import json
import os
import shutil
import signal
import time

from benchmarks import faults
from sparrow import cli, runs, serving
from sparrow.checkpoint import Damaged, Vanished, saved_steps, whole
from sparrow.config import dumps
from sparrow.runs.saved.loading import best_step
from tests.runs import victim

CODES = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EBUSY)
HALF, FULL = ("train.steps=6",), ("train.steps=12",)
SHORT = (
    "train.checkpoint={every_steps: 2, keep: 3, best_by: {metric: auc, mode: max}}",
    "evaluate={steps: 2, every_steps: 3}",
    "train.tensorboard=true",
)
FOREIGN = ("notes.txt", "checkpoints/bert-base/weights", "tensorboard/other", "vocabularies/mine.txt")
ACTIONS = ("eval", "export", "resume", "fresh", "report")
DAMAGES = ("missing", "empty", "cut", "flipped", "folder", "link", "longer")


class Trials:
    """A run of six steps, its models by step, and trials on copies of it.

    Attributes:
      counts: trials by kind.
      outcomes: exit codes by action.
      messages: the last line of commands that failed.
    """

    def __init__(self, folder, rng):
        self.folder, self.rng = folder, rng
        self.counts, self.outcomes, self.messages = (collections.Counter() for _ in range(3))
        self.cache, self.work, self.origin = folder / "cache", folder / "work", folder / "origin"
        victim.use_cache(self.cache)
        self.files = {name: self._config(name, steps) for name, steps in (("half", HALF), ("full", FULL))}
        for name in ("half", "full"):
            assert self._main("train", self.files[name], "--model-dir", folder / name)[0] == 0
        self.expected = victim.everything(folder / "full")
        self.models = {
            step: self._evaluated(folder / "half", step) for step in saved_steps(folder / "half/checkpoints")
        }
        shutil.copytree(folder / "half", self.origin / "run")
        for name in FOREIGN:
            (self.origin / "run" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.origin / "run" / name).write_text(f"precious {name}")
        assert self._main("export", self.origin / "run", self.origin / "exported", "--step", min(self.models))[0] == 0
        self.operations = {action: self._count(action) for action in ACTIONS}

    def _config(self, name, overrides):
        path = self.folder / f"{name}.yaml"
        path.write_text(dumps(victim.config(*SHORT, *overrides)))
        return path

    def _main(self, *arguments):
        """Return exit code, output and errors of a command. An exception that it raises is a traceback."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main([str(argument) for argument in arguments])
        return code, out.getvalue(), err.getvalue()

    def _evaluated(self, folder, step):
        code, out, _ = self._main("eval", folder, "--json", "--step", step)
        assert code == 0
        return json.loads(out)

    def _arguments(self, action):
        run = self.work / "run"
        return {
            "eval": ("eval", run, "--json"),
            "export": ("export", run, self.work / "exported", "--overwrite"),
            "resume": ("train", self.files["full"], "--model-dir", run, "--resume"),
            "fresh": ("train", self.files["half"], "--model-dir", self.work / "new", "train.steps=2"),
            "report": ("report", run),
        }[action]

    def _copy(self):
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.origin, self.work, symlinks=True)

    def _count(self, action):
        self._copy()
        faults.arm(self.work, faults.NEVER, faults.KILL)
        code, _, err = self._main(*self._arguments(action))
        count = faults.disarm()
        assert code == 0, err
        return count

    def failing(self):
        """Make one file operation of a command fail, or all from then on."""
        action, code = self.rng.choice(ACTIONS), self.rng.choice(CODES)
        at, sticky = self.rng.randint(1, self.operations[action]), self.rng.random() < 0.3
        what = f"{action}, {errno.errorcode[code]} at operation {at}{' and after it' * sticky}"
        self._copy()
        with self._naming(what):
            with faults.failing(self.work, at, code, sticky=sticky):
                result = self._main(*self._arguments(action))
            self._check(action, *result)
        self.counts["failing operations"] += 1

    def damaged(self):
        """Damage one file of a run before a command."""
        action, how = self.rng.choice(("eval", "export", "resume", "report")), self.rng.choice(DAMAGES)
        self._copy()
        files = [path for path in sorted((self.work / "run").rglob("*")) if path.is_file()]
        path = self.rng.choice([path for path in files if str(path.relative_to(self.work / "run")) not in FOREIGN])
        what = f"{action}, {path.relative_to(self.work)} {how}"
        with self._naming(what):
            damage(path, how, self.rng)
            self._check(action, *self._main(*self._arguments(action)), is_damaged=True)
        self.counts["damaged files"] += 1

    @contextlib.contextmanager
    def _naming(self, what):
        try:
            yield
        except BaseException as error:
            error.add_note(what)
            raise

    def _check(self, action, code, out, err, is_damaged=False):
        """Check for one line on failure, the right model on success, nothing lost, no foreign file touched."""
        self.outcomes[f"{action} {code}"] += 1
        if code:
            last = err.strip().splitlines()[-1].replace(str(self.folder), "")
            self.messages[f"{action}: {last}"] += 1
        assert code in (0, 1, 2), (code, err)
        assert "Traceback" not in err, err
        assert (code == 0) or any(line.startswith("sparrow: ") for line in err.splitlines()), err
        for name in FOREIGN:
            assert (self.work / "run" / name).read_text() == f"precious {name}", name
        lines: list[str] = []
        steps = [saved.step for saved in whole(self.work / "run/checkpoints", lines.append) if read(saved, lines)]
        assert len(steps) >= (len(self.models) - 1 if is_damaged else len(self.models)) or action == "resume", lines
        if not is_damaged:
            assert not lines, lines
            assert best_step(runs.RunFolder(self.work / "run"), lines.append) in steps
        if action == "eval" and code == 0:
            assert json.loads(out) in self.models.values()
            assert json.loads(out) == self.models[max(self.models)] or "was skipped" in err, err
        if action == "resume" and code == 0:
            step, tables, arrays = victim.everything(self.work / "run")
            assert step == self.expected[0]
            same(tables, self.expected[1])
            same(arrays, self.expected[2])
        if action != "resume" and not is_damaged:
            assert set(steps) == set(self.models), steps
        exported = serving.load(self.work / "exported")  # the old one or the new one, complete
        assert exported.description.step in self.models

    def killed(self, kills=4):
        """Kill a run at some file operation, again and again, and let it finish then."""
        folder, undisturbed = self.folder / "killed", self.folder / "long"
        overrides = (*SHORT, "train.steps=40")
        if not undisturbed.exists():
            process = victim.context().Process(target=victim.train, args=(overrides, undisturbed, self.cache))
            process.start()
            process.join()
            assert process.exitcode == 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        best = None
        for _ in range(kills):
            at = self.rng.randint(1, 1200)
            process = victim.context().Process(target=train_killed, args=(overrides, folder, self.cache, at))
            process.start()
            process.join(300)
            self.counts["kills at an operation"] += process.exitcode == -signal.SIGKILL
            assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
            lines: list[str] = []
            steps = [saved.step for saved in whole(folder / "checkpoints", lines.append) if read(saved, lines)]
            assert not lines, lines
            if best is not None:
                assert best_step(runs.RunFolder(folder), lines.append) in steps
            best = best_step(runs.RunFolder(folder), lines.append) if any(_bests(folder)) else best
            if process.exitcode == 0:
                break
        process = victim.context().Process(target=victim.train, args=(overrides, folder, self.cache))
        process.start()
        process.join(300)
        assert process.exitcode == 0
        victim.assert_same(folder, undisturbed)
        self.counts["chains of kills"] += 1

    def read_while_training(self, seconds=20.0):
        """Readers of all kinds, of a run that keeps one checkpoint and saves each step."""
        folder = self.folder / "busy"
        shutil.rmtree(folder, ignore_errors=True)
        overrides = (
            "train.steps=1000000",
            "train.checkpoint={every_steps: 1, keep: 1, best_by: {metric: auc, mode: max}}",
            "evaluate={steps: 1, every_steps: 5}",
        )
        process = victim.context().Process(target=train_until_told, args=(overrides, folder, self.cache))
        process.start()
        lines: list[str] = []
        try:
            assert victim.wait_until(lambda: len(saved_steps(folder / "checkpoints")) > 0, process, 300)
            end, turn = time.monotonic() + seconds, 0
            while time.monotonic() < end:
                turn += 1
                assert any(read(saved, lines) for saved in whole(folder / "checkpoints", lines.append))
                if turn % 20 == 1:
                    runs.load(folder, log=lines.append)
                    runs.saved_config(folder)
                    if any(_bests(folder)):
                        runs.load(folder, step="best", log=lines.append)
                    code, _, err = self._main("report", folder, "--output", self.folder / "busy.html")
                    assert code == 0, err
                    self.counts["models loaded while training"] += 1
                self.counts["checkpoints read while training"] += 1
            assert process.is_alive()
        finally:
            os.kill(process.pid, signal.SIGTERM)
            process.join(120)
        assert not lines, lines


def _bests(folder):
    for saved in whole(folder / "checkpoints", lambda _: None):
        yield saved.about["progress"]["best"]


def train_until_told(overrides, folder, cache):
    """Train until a signal ends it: the target of a process."""
    with contextlib.suppress(KeyboardInterrupt):
        victim.train(overrides, folder, cache)


def train_killed(overrides, folder, cache, at):
    """Train until the file operation that kills the process: the target of a process."""
    faults.arm(folder, at, faults.KILL)
    victim.train(overrides, folder, cache)


def read(saved, lines):
    """Return whether a complete checkpoint could be read; False: it was removed meanwhile, or is damaged."""
    try:
        saved.arrays()
        for key in saved.tables:
            for _ in saved.rows(key):
                pass
    except Vanished:
        return False
    except Damaged as error:
        lines.append(str(error))
        return False
    return True


def same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].tobytes() == theirs[name].tobytes(), name


def damage(path, how, rng):
    """Damage a file in one way."""
    data = bytearray(path.read_bytes())
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "longer":
        path.write_bytes(bytes(data) + b"\x00more")
    elif how == "flipped" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
        elif how == "link":
            path.symlink_to(path)
