"""Builds the package, and compiles its CPU kernels. Without a compiler the package works, on the slower XLA kernels."""

import pathlib
import sys
import time

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
LIBRARIES = pathlib.Path("sparrow") / "kernels" / "native" / "lib"


class BuildWithKernels(build_py):
    """A build that compiles the libraries next to the sources (for an editable install) and into the build."""

    def run(self) -> None:
        """Build the kernels; a failure to compile is reported, and does not fail the build."""
        super().run()
        started = time.perf_counter()
        sys.path.insert(0, str(ROOT))
        try:
            from sparrow.kernels.native.shipped import build

            made = build(ROOT / LIBRARIES)
        except Exception as error:  # such as a missing compiler
            self.warn(f"the CPU kernels were not compiled ({error}); they will be on first use, where possible")
            return
        finally:
            sys.path.remove(str(ROOT))
        self.announce(f"compiled {len(made) - 1} libraries in {time.perf_counter() - started:.0f} s", level=2)
        if not self.editable_mode:
            for library in made:
                target = pathlib.Path(self.build_lib) / LIBRARIES / library.name
                self.mkpath(str(target.parent))
                self.copy_file(str(library), str(target))


class PlatformDistribution(Distribution):
    """A wheel with compiled libraries is for one platform, but for every Python: they are not extension modules."""

    def has_ext_modules(self) -> bool:
        """Return True, so that setuptools names the platform."""
        return True


class AnyPython(bdist_wheel):
    """Names the wheel py3-none-<platform>."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag without the Python's own ABI."""
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithKernels, "bdist_wheel": AnyPython}, distclass=PlatformDistribution)
