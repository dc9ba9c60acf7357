"""Commands start without what they do not need, and it still works where it is needed."""

import subprocess
import sys
import textwrap

import pytest


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

        probe = Command("probe", "Look.", (), run, modules=("pyarrow.parquet",))
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
    assert modules_of("import sparrow.runs, sparrow.planning", *names) == "[]"


def test_the_embedder_imports_no_pallas():
    assert modules_of("import sparrow; sparrow.Embedder", "jax.extend", "jax._src.pallas") == "[]"


@pytest.mark.parametrize("command", [["completion", "bash"], ["report", "nowhere"], ["compare", "nowhere"]])
def test_commands_without_data_import_no_heavy_library(command):
    code = f"sys.argv = ['sparrow', *{command!r}]; from sparrow.cli import main; main()"
    assert modules_of(code, "jax", "pyarrow", "sparrow.runs") == "[]"
