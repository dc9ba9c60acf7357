"""Commands start without what they do not need, and it still works where it is needed."""

import subprocess
import sys
import textwrap

import pytest


def test_arrow_imports_pandas_only_where_it_is_needed():
    code = """
        import sys
        from sparrow.cli.quick_start import leave_pandas_out

        leave_pandas_out()
        import numpy as np
        import pyarrow as pa

        assert pa.array(np.arange(3)).to_numpy().tolist() == [0, 1, 2]
        assert "pandas" not in sys.modules
        import pandas as pd

        table = pa.Table.from_pandas(pd.DataFrame({"a": [1, 2], "b": ["x", None]}), preserve_index=False)
        assert table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
        assert pa.array(pd.Series([1.0, float("nan")])).null_count == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_late_methods_are_those_of_dataclasses():
    code = """
        import copy, dataclasses, pickle
        from sparrow.cli.quick_start import make_methods_late

        @dataclasses.dataclass(frozen=True, order=True)
        class Early:
            a: int
            b: str = "x"

        make_methods_late()

        @dataclasses.dataclass(frozen=True, order=True)
        class Late:
            a: int
            b: str = "x"

        @dataclasses.dataclass(frozen=True, order=True)
        class Lower(Late):
            c: float = 0.5

        @dataclasses.dataclass
        class Open:
            a: list = dataclasses.field(default_factory=list)
            hidden: int = dataclasses.field(default=3, repr=False, compare=False)

        late = Late(1)
        assert repr(late) == repr(Early(1)).replace("Early", "Late")
        assert repr(Lower(1)) == "Lower(a=1, b='x', c=0.5)"
        for _ in range(2):  # compiled, and found again
            assert late == Late(1) and late != Late(2) and late != Lower(1) and Lower(1) == Lower(1)
            assert hash(late) == hash(Early(1)) and hash(Lower(1)) != hash(late)
            assert Late(1) < Late(2) <= Late(2, "y") and Late(3) > late and late >= late
            assert {late: 0}[Late(1)] == 0
            for change in (lambda: setattr(late, "a", 2), lambda: delattr(late, "a"), lambda: setattr(late, "c", 2)):
                try:
                    change()
                except dataclasses.FrozenInstanceError as error:
                    assert str(error).startswith("cannot ")
                else:
                    raise AssertionError("a frozen record was changed")
        assert Late.__eq__.__qualname__ == "Late.__eq__" and Late.__repr__.__name__ == "__repr__"
        assert pickle.loads(pickle.dumps(late)) == copy.deepcopy(late) == dataclasses.replace(late, a=1)
        assert repr(Open([1])) == "Open(a=[1])" and Open() == Open([], 4)
        nested = Open()
        nested.a.append(nested)
        assert repr(nested) == "Open(a=[...])"
        try:
            hash(Open())
        except TypeError:
            pass
        else:
            raise AssertionError("a record that may change has no hash")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_garbage_is_collected_again_after_the_imports():
    code = """
        import gc, sys
        from sparrow.cli.entry import main
        from sparrow.cli.command import Command
        from sparrow.cli import parsing

        def run(options):
            assert gc.isenabled() and 10_000 <= gc.get_threshold()[0] <= 100_000
            assert gc.get_freeze_count() > 10_000
            assert "pyarrow.parquet" in sys.modules

        probe = Command("probe", "Look.", lambda parser: None, run, modules=("pyarrow.parquet",))
        parsing.COMMANDS = (probe,)
        sys.argv = ["sparrow", "probe"]
        sys.exit(main())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def modules_of(code, *names):
    """The modules among ``names`` that are imported once ``code`` has run."""
    ending = f"\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", "import sys\n" + textwrap.dedent(code) + ending],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


def test_a_run_imports_neither_orbax_nor_configs_of_others_before_it_needs_them():
    names = ("orbax.checkpoint", "pandas", "tensorboard", "optuna", "aiohttp", "sparrow.config.torcheasyrec")
    assert modules_of("import sparrow.runs, sparrow.plan", *names) == "[]"


def test_the_embedder_imports_no_pallas():
    assert modules_of("import sparrow; sparrow.Embedder", "jax.extend", "jax._src.pallas") == "[]"


@pytest.mark.parametrize("command", [["completion", "bash"], ["report", "nowhere"], ["compare", "nowhere"]])
def test_commands_without_data_import_no_heavy_library(command):
    code = f"sys.argv = ['sparrow', *{command!r}]; from sparrow.cli import main; main()"
    assert modules_of(code, "jax", "pyarrow", "pydantic", "sparrow.runs") == "[]"
