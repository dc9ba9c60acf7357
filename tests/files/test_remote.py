"""Files of other stores, on a server of S3's protocol and in fsspec's memory."""

import secrets

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import Converter, Csv, DataError, IdFeature, Parquet, RawFeature, Vocabulary
from sparrow.files import Mirror, Remote, at, fill, is_remote, matching, replace_file, replacing, working_copy
from tests.feed.pipelines import pipeline_of

FEATURES = [IdFeature("item", num_buckets=1000, embedding_dim=4), RawFeature("price")]


def test_addresses():
    file = Remote("s3://bucket/a/b.tar.gz")
    assert (file.name, file.stem, file.suffix, str(file.parent)) == ("b.tar.gz", "b.tar", ".gz", "s3://bucket/a")
    assert str(file.parent / "c") == "s3://bucket/a/c"
    assert str(Remote("S3://bucket/")) == "s3://bucket"
    assert str(file.relative_to(Remote("s3://bucket"))) == "a/b.tar.gz"
    assert str(at("file:///tmp/a%20b")) == "/tmp/a b"
    assert not is_remote("c:/windows")


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/a", "s3://key@bucket/a", "s3://bucket/a?secret_key=secret"])
def test_credentials_in_an_address_are_refused_and_not_shown(url):
    with pytest.raises(DataError, match="by the environment") as error:
        at(url)
    assert "secret" not in str(error.value)
    assert "key" not in str(error.value)


def test_files_and_patterns(s3):
    folder = at(f"{s3}/{secrets.token_hex(4)}")
    for name in ("dt=1/a.csv", "dt=1/b.txt", "dt=2/deep/c.csv", "dt=2/.d.csv"):
        replace_file(folder / name, name.encode())
    found = {
        pattern: [str(file.relative_to(folder)) for file in matching(f"{folder}/{pattern}")]
        for pattern in ("dt=*/*.csv", "**/*.csv", "dt=?/[ab].*", "dt=2/.*")
    }
    assert found == {
        "dt=*/*.csv": ["dt=1/a.csv"],
        "**/*.csv": ["dt=1/a.csv", "dt=2/deep/c.csv"],
        "dt=?/[ab].*": ["dt=1/a.csv", "dt=1/b.txt"],
        "dt=2/.*": ["dt=2/.d.csv"],
    }
    assert folder.is_dir()
    assert not folder.is_file()
    assert not (folder / "none").exists()
    assert (folder / "dt=1/a.csv").stat().st_size == len("dt=1/a.csv")
    with pytest.raises(FileNotFoundError):
        (folder / "none").read_bytes()


def test_a_file_of_a_failed_writer_does_not_appear(s3):
    file = at(f"{s3}/{secrets.token_hex(4)}/scores.parquet")
    with pytest.raises(RuntimeError), replacing(file) as partial:  # noqa: PT012
        partial.write_bytes(b"half")
        raise RuntimeError
    assert not file.exists()
    with replacing(file) as partial:
        partial.write_bytes(b"all")
    assert file.read_bytes() == b"all"


def test_other_stores_by_fsspec(tmp_path):
    folder = at(f"memory://{secrets.token_hex(4)}")
    replace_file(folder / "rows.csv", b"item,price\n1,2.5\n")
    assert Csv(f"{folder}/rows.csv").open(["item"]).read(0, "error").table.to_pydict() == {"item": ["1"]}
    with pytest.raises(DataError, match="cannot be reached"):
        at("nosuchstore://a/b").exists()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A folder with the same rows as Parquet, CSV and packed CSV."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    table = pa.table(
        {
            "item": rng.integers(0, 1000, 5000),
            "price": rng.random(5000).astype(np.float32),
            "words": [["a"] * (i % 3) for i in range(5000)],
            "when": pa.array(range(5000), pa.date32()),
        }
    )
    pq.write_table(table, folder / "rows.parquet", row_group_size=1200)
    text = "item,price\n" + "".join(
        f"{i},{p}\n" for i, p in zip(*(table[c].to_pylist() for c in ("item", "price")), strict=True)
    )
    (folder / "rows.csv").write_text(text)
    with pa.output_stream(str(folder / "packed.csv.gz"), compression="gzip") as out:
        out.write(text.encode())
    return folder


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "packed.csv.gz"])
def test_the_same_batches_as_from_this_machine(s3, rows, name):
    folder = at(f"{s3}/{secrets.token_hex(4)}")
    (folder / name).send(rows / name)

    def made(path):
        kind = Parquet(path) if name.endswith(".parquet") else Csv(path, chunk_bytes=10_000)
        reader = kind.open(["item", "price"])
        whole = pa.concat_tables([reader.read(chunk, "error").table for chunk in range(reader.num_chunks)])
        assert name.endswith(".parquet") or reader.num_chunks > 3
        fetched = [reader.fetch(chunk) is not None for chunk in range(reader.num_chunks)]
        batches = pipeline_of(kind, FEATURES, batch_size=512, shuffle_rows=2048, seed=3)
        return (
            reader.fingerprint,
            whole,
            fetched,
            [(b.ids["item"].tolist(), b.numbers["price"].tolist()) for b in batches],
        )

    here, there = made(str(rows / name)), made(f"{folder}/{name}")
    assert here == there
    assert all(there[2])  # the compiled readers read them too


def test_columns_that_arrow_reads(s3, rows):
    folder = at(f"{s3}/{secrets.token_hex(4)}")
    (folder / "rows.parquet").send(rows / "rows.parquet")
    made = [Parquet(path).open(["when", "words"]) for path in (str(rows), str(folder))]
    for chunk in range(made[0].num_chunks):
        assert made[1].fetch(chunk) is None
        assert made[0].read(chunk, "error").table == made[1].read(chunk, "error").table


def test_errors_are_one_sentence(s3, rows):
    for path, why in [("none", "no such file or folder"), ("*.parquet", "no file matches")]:
        with pytest.raises(DataError, match=why):
            Parquet(f"{s3}/{secrets.token_hex(4)}/{path}").open(["item"])
    file = at(f"{s3}/{secrets.token_hex(4)}/cut.parquet")
    replace_file(file, (rows / "rows.parquet").read_bytes()[:-20])
    with pytest.raises(DataError, match="has no footer"):
        Parquet(str(file)).open(["item"])


def test_vocabularies(s3):
    file = at(f"{s3}/{secrets.token_hex(4)}/words.txt")
    Vocabulary(["red", "green"]).save(file)
    assert Vocabulary.load(str(file)).words == ("red", "green")
    feature = IdFeature("color", vocabulary=str(file), embedding_dim=4)
    assert Converter([feature], (), (), ()).features[0].words.words == ("red", "green")


def test_a_mirror_sends_descriptions_last_and_removes_them_first(s3, tmp_path, monkeypatch):
    folder = at(f"{s3}/{secrets.token_hex(4)}")
    for name in (
        "5/tables/a.npy",
        "5/manifest.json",
        "5/about.json",
        "log.txt",
        "6.partial-1/b",
        ".x.partial",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    order = []
    for method in ("send", "unlink"):
        real = getattr(Remote, method)
        monkeypatch.setattr(
            Remote,
            method,
            lambda self, *a, real=real, m=method, **k: (order.append((m, self.name)), real(self, *a, **k)),
        )
    mirror = Mirror(tmp_path, folder, print)
    mirror.send()
    assert order[-1] == ("send", "manifest.json")
    assert {name for _, name in order} == {"a.npy", "manifest.json", "about.json", "log.txt"}
    order.clear()
    mirror.send()
    assert not order  # nothing changed
    for name in ("5/tables/a.npy", "5/manifest.json", "5/about.json"):
        (tmp_path / name).unlink()
    mirror.send()
    assert order[0] == ("unlink", "manifest.json")
    assert [str(file.relative_to(folder)) for file in folder.rglob()] == ["log.txt"]


def test_a_working_copy_fetches_large_files_when_they_are_needed(s3):
    folder = at(f"{s3}/{secrets.token_hex(4)}")
    for name in ("checkpoints/5/tables/a.npy", "checkpoints/5/manifest.json", "log.txt"):
        replace_file(folder / name, name.encode())
    local = working_copy(folder)
    assert (local / "log.txt").read_text() == "log.txt"
    assert not (local / "checkpoints/5/tables/a.npy").exists()
    fill(local / "checkpoints" / "5")
    assert (local / "checkpoints/5/tables/a.npy").read_text() == "checkpoints/5/tables/a.npy"
    replace_file(folder / "log.txt", b"more")
    (folder / "checkpoints/5/manifest.json").unlink()
    assert working_copy(folder) == local
    assert (local / "log.txt").read_text() == "more"
    assert not (local / "checkpoints/5/manifest.json").exists()
