"""The files of compiled programs that processes share: complete, or not there."""

import subprocess
import sys

CODE = """
import resource, signal, sys
from jax._src.lru_cache import LRUCache
from sparrow.processes import write_programs_whole

write_programs_whole()
cache = LRUCache(sys.argv[1], max_size=-1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # as on a disk that is full
try:
    cache.put("a", b"x" * 20_000)
except OSError as error:
    print(error.strerror)
print(cache.get("a"))
cache.put("b", b"y" * 5_000)
cache.put("b", b"z")
print(len(cache.get("b")))
"""


def test_a_file_that_could_not_be_written_is_not_there(tmp_path):
    """JAX's own way leaves the first half of it, which every later process warns of."""
    result = subprocess.run([sys.executable, "-c", CODE, tmp_path], capture_output=True, text=True)
    assert result.stdout.splitlines() == ["File too large", "None", "5000"], result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["b-cache"]
