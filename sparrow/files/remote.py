"""`Remote`: files of other stores, by Arrow (``s3://``, ``gs://``, ``hdfs://``, ``abfs://``) or by fsspec (all others).

Credentials come from the environment, as each store's own tools read them, never from an address: addresses are logged
and saved. ``AWS_ENDPOINT_URL`` names another server with S3's protocol.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import io
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from sparrow.errors import DataError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://([^/]*)/?(.*)", re.IGNORECASE | re.DOTALL)
_ARROW = {"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"}


class Stat(NamedTuple):
    """The fields of `os.stat_result` that a store knows."""

    st_size: int
    st_mtime_ns: int
    st_dev: int = 0
    st_ino: int = 0


class Remote:
    """A file or folder of another store, with the methods of `Path` that are used here.

    It is no path of the operating system: `os` functions refuse it. A file that is written appears when it is complete.
    """

    def __init__(self, url: str, stat: Stat | None = None) -> None:
        """Check the address; nothing is read. ``stat``: from a listing of its folder."""
        found = _SCHEME.fullmatch(url)
        if found is None:
            raise DataError("is not an address such as s3://bucket/folder", url)
        self._scheme, self._store = found[1].lower(), found[2]
        self._key = PurePosixPath(found[3].strip("/"))
        self._stat = stat
        user, has_user, _ = self._store.rpartition("@")
        if ":" in user or (has_user and self._scheme in ("s3", "gs", "gcs")) or re.search(r"\?\w+=", found[3]):
            hidden = f"{self._scheme}://..."
            raise DataError("holds credentials or options; give them by the environment, as its own tools do", hidden)

    def __str__(self) -> str:
        return f"{self._scheme}://{self._store}" + (f"/{self._key}" if self._key.parts else "")

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: Remote) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self}/{name}")

    name = property(lambda self: self._key.name or self._store)
    stem = property(lambda self: self._key.stem)
    suffix = property(lambda self: self._key.suffix)
    parent = property(lambda self: self.with_key(self._key.parent))

    def with_key(self, key: PurePosixPath) -> Remote:
        """Return another file of the same store."""
        return Remote(f"{self._scheme}://{self._store}/{'' if str(key) == '.' else key}")

    def with_name(self, name: str) -> Remote:
        return self.with_key(self._key.with_name(name))

    def relative_to(self, folder: Remote) -> PurePosixPath:
        return self._key.relative_to(folder._key)

    @property
    def _fs(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        fs, base = _file_system(self._scheme, self._store)
        return fs, f"{base.rstrip('/')}/{self._key}" if self._key.parts else base

    def _info(self) -> Any:
        fs, path = self._fs
        return fs.get_file_info(path)

    def is_file(self) -> bool:
        """Return whether it is a file that can be found."""
        return self._stat is not None or bool(self._info().is_file)

    def is_dir(self) -> bool:
        """Return whether it is a folder: in stores without folders, whether there is a file in it."""
        return self._stat is None and self._info().type.name == "Directory"

    def exists(self) -> bool:
        return self._stat is not None or self._info().type.name != "NotFound"

    def stat(self) -> Stat:
        """Return its size and the time of its last change."""
        if self._stat is None:
            info = self._info()
            if info.type.name == "NotFound":
                raise FileNotFoundError(2, "there is no such file", str(self))
            return _stat(info)
        return self._stat

    def rglob(self, pattern: str = "*") -> Iterator[Remote]:
        """Yield all files below, whose names match, sorted; folders are left out."""
        return iter(sorted(file for file in self._listed(True) if fnmatch.fnmatch(file.name, pattern)))

    def iterdir(self) -> Iterator[Remote]:
        """Yield the files and folders in it, sorted."""
        return iter(sorted(self._listed(False)))

    def _listed(self, recursive: bool) -> Iterator[Remote]:
        from pyarrow.fs import FileSelector

        fs, path = self._fs
        for info in fs.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive)):
            key = self._key / PurePosixPath(info.path).relative_to(path)
            if info.is_file:
                yield Remote(f"{self._scheme}://{self._store}/{key}", _stat(info))
            elif not recursive:
                yield self.with_key(key)

    def open(self, mode: str = "rb", **_: Any) -> Any:
        """Return the file opened at its first byte, for reading at any place. Only ``mode`` "rb"."""
        if mode != "rb":
            raise ValueError(f"a file of a store is opened to read, got mode {mode!r}")
        return io.BufferedReader(self.arrow_file(), 1 << 16)

    def arrow_file(self) -> Any:
        """Return the file as Arrow's, to read at any place from any thread."""
        fs, path = self._fs
        return fs.open_input_file(path)

    def stream(self) -> Any:
        """Return the file from its first byte on, as Arrow's, unpacked where its suffix is that of a packed file."""
        fs, path = self._fs
        return fs.open_input_stream(path, compression="detect")

    def read_bytes(self) -> bytes:
        with self.open() as file:
            data: bytes = file.read()
        return data

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def read_spans(self, spans: Iterable[tuple[int, int]], memory: Any) -> bool:
        """Read spans, each its first byte and size, one after the other into ``memory``; False: the file is shorter."""
        at, view = 0, memoryview(memory)
        with self.arrow_file() as file:
            for begin, size in spans:
                data = file.read_at(size, begin)
                if len(data) != size:
                    return False
                view[at : at + size] = data
                at += size
        return True

    def write_bytes(self, data: bytes) -> None:
        """Write the file; it appears when it is complete."""
        fs, path = self._fs
        file = fs.open_output_stream(path, compression=None)
        file.write(data)
        file.close()  # not by `with`: a file that is closed after an error appears too, cut off

    def send(self, local: Path) -> None:
        """Copy a file of this machine here; it appears when it is complete."""
        fs, path = self._fs
        with local.open("rb") as source:
            file = fs.open_output_stream(path, compression=None)
            while block := source.read(1 << 23):
                file.write(block)
            file.close()

    def fetch(self, local: Path) -> None:
        """Copy it to a file of this machine."""
        local.parent.mkdir(parents=True, exist_ok=True)
        with self.arrow_file() as source, local.open("wb") as file:
            while block := source.read(1 << 23):
                file.write(block)

    def unlink(self, missing_ok: bool = False) -> None:
        fs, path = self._fs
        try:
            fs.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the folder where the store has folders; elsewhere they are made by the files in them."""
        if self._scheme in ("hdfs", "viewfs"):
            fs, path = self._fs
            fs.create_dir(path, recursive=parents)


AnyPath = Path | Remote


def is_remote(path: Any) -> bool:
    """Return whether a path is the address of another store.

    >>> is_remote("s3://bucket/clicks"), is_remote("file:///tmp/clicks"), is_remote("clicks/2024")
    (True, False, False)
    """
    found = _SCHEME.match(path) if isinstance(path, str) else None
    return isinstance(path, Remote) or (found is not None and found[1].lower() != "file")


def at(path: str | os.PathLike[str] | Remote) -> AnyPath:
    """Return the file or folder of a path or an address."""
    if isinstance(path, Remote):
        return path
    text = os.fspath(path)
    if is_remote(text):
        return Remote(text)
    return Path(unquote(urlsplit(text).path)) if text.lower().startswith("file://") else Path(path)


def matching(pattern: str) -> list[AnyPath]:
    """Return the files that match a pattern with ``*``, ``**``, ``?`` or ``[...]``, sorted."""
    if not is_remote(pattern):
        return sorted(path for text in glob.glob(pattern, recursive=True) if (path := at(text)).is_file())
    given = Remote(pattern)
    parts = given._key.parts
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    folder = given.with_key(PurePosixPath(*parts[:fixed]))
    return [file for file in folder.rglob() if _matches(file.relative_to(folder).parts, parts[fixed:])]


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether the parts of a path match those of a pattern; names with a first dot need one in the pattern.

    >>> _matches(("dt=1", "a", "b.csv"), ("dt=*", "**", "*.csv")), _matches(("dt=1", ".b.csv"), ("**", "*.csv"))
    (True, False)
    """
    if not parts or not pattern:
        return not parts and all(part == "**" for part in pattern)
    is_hidden = parts[0].startswith(".") and not pattern[0].startswith(".")
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or (not is_hidden and _matches(parts[1:], pattern))
    return not is_hidden and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _stat(info: Any) -> Stat:
    return Stat(int(info.size or 0), int(info.mtime_ns or 0))


@functools.cache
def _file_system(scheme: str, store: str) -> tuple[Any, str]:
    """Return the file system of a store, and the path of the store in it."""
    import pyarrow as pa
    from pyarrow import fs

    where = f"{scheme}://{store}"
    try:
        if scheme == "s3":
            return _s3(store)
        if scheme in _ARROW:
            made: tuple[Any, str] = fs.FileSystem.from_uri(f"{where}/")
            return made
        import fsspec

        inner, base = fsspec.core.url_to_fs(f"{where}/")
        return fs.PyFileSystem(fs.FSSpecHandler(inner)), str(base)
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise DataError(f"cannot be reached: {error}", where) from None


def _s3(bucket: str) -> tuple[Any, str]:
    from pyarrow import fs

    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint.netloc:
        options = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        return fs.S3FileSystem(region=region or "us-east-1", **options), bucket
    return fs.S3FileSystem(region=region or fs.resolve_s3_region(bucket)), bucket
