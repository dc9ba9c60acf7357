"""Lines of text by compiled code: the rows that Arrow and NumPy read, for any text, and the same errors."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import (
    ComboFeature,
    Criteo,
    Csv,
    DataError,
    HeldOut,
    IdFeature,
    Label,
    MovieLens,
    RawFeature,
    SequenceFeature,
    Tables,
)
from sparrow.data.converter import Converter
from sparrow.data.labels import CheckedLabel, LabelCheck
from sparrow.data.sources.text import TextReader
from sparrow.embedding import Ragged
from sparrow.kernels import feed
from tests.data.test_compiled import assert_same, assert_same_bags
from tests.feed.pipelines import pipeline_of

pytestmark = pytest.mark.skipif(feed.unavailable() is not None, reason=str(feed.unavailable()))

PLAIN = (
    "",
    "a",
    "7",
    "12",
    "00000007",
    "1234567",
    "12345678",
    "123456789",
    "f3a1b2c4",
    "longer than eight bytes",
    "ü",
    "日本",
)
NUMBERS = (
    "1e3",
    "-0",
    "-3",
    " 7",
    "7 ",
    " ",
    "  -2.5 ",
    "+5",
    "0.5",
    "-12.75",
    ".5",
    "5.",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "8191",
    "8192",
)
NUMBERS += (
    "9007199254740993",
    "123456789012345678901234567890",
    "0.1234567890123456",
    "0x10",
    "1_0",
    "NA",
    "--1",
    "1-",
)
ODD = ('"', 'a"b', '"quoted"', '"a,b"', '"a""b"', '""', '"a"b', '"a\tb"', "x y", "\x00", "a:b", ":", "\x1f", "a\rb")
FEATURES = [
    lambda c: IdFeature("f", column=c, hash_bucket_size=1000, embedding_dim=2),
    lambda c: IdFeature("f", column=c, hash_bucket_size=97, embedding_dim=2, default="nothing"),
    lambda c: IdFeature("f", column=c, hash_bucket_size=2**30 + 7, embedding_dim=2, as_integer=True),
    lambda c: IdFeature("f", column=c, num_buckets=30, embedding_dim=2, unknown="row", default=7),
    lambda c: IdFeature("f", column=c, num_buckets=30, embedding_dim=2),
    lambda c: IdFeature("f", column=c, vocabulary=PLAIN[1:], embedding_dim=2, default="zz"),
    lambda c: IdFeature("f", column=c, vocabulary=("a", "7"), embedding_dim=2, unknown="error"),
    lambda c: IdFeature("f", column=c, hash_bucket_size=99, embedding_dim=2, separator=" ", weight_separator=":"),
    lambda c: SequenceFeature("f", column=c, hash_bucket_size=99, embedding_dim=2, max_length=2, separator=" "),
    lambda c: RawFeature("f", column=c),
    lambda c: RawFeature("f", column=c, log=True, mean=0.3, std=1.7, missing=2.5),
    lambda c: RawFeature("f", column=c, missing=None, log10_above=1.0),
    lambda c: RawFeature("f", column=c, expression="1 / (x - 3)", missing=1.0),
    lambda c: RawFeature("f", column=c, dim=2, separator=" "),
    lambda c: RawFeature("f", column=c, boundaries=(0.0, 2.5, 10.0), embedding_dim=2),
    lambda c: ComboFeature("f", cross=(c, "other"), hash_bucket_size=77, embedding_dim=2),
]


@st.composite
def texts(draw):
    """A file's bytes, and the options that it is read with."""
    quote, separator = draw(st.sampled_from([(None, "\t"), (None, "::"), (None, ":"), ('"', ","), ("'", "|")]))
    words = draw(st.sampled_from([PLAIN, PLAIN + NUMBERS, NUMBERS, PLAIN + ODD]))
    fields = st.sampled_from(words)
    if quote is not None and draw(st.booleans()):
        quoted = st.sampled_from(["", "a", f"a{separator}b", f"a{quote}b", "7", "longer than eight bytes", "a\nb"])
        fields |= quoted.map(lambda text: quote + text.replace(quote, 2 * quote) + quote)
    columns = draw(st.integers(1, 4))
    times = draw(st.sampled_from([1, 2, 300]))
    block = draw(st.lists(st.lists(fields, min_size=columns, max_size=columns), min_size=1, max_size=12))
    lines = [separator.join([*row, str(i % 2)]) for i, row in enumerate(block * times)][:520]
    if draw(st.integers(0, 3)) == 0:
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(["", "a", separator * 9, "\r"])))
    ends = draw(st.sampled_from(["\n", "\r\n"]))
    text = ends.join(lines) + draw(st.sampled_from(["", ends, ends + ends]))
    data = text.encode()
    if draw(st.integers(0, 9)) == 0:
        data += b"\xff" + ends.encode()
    options = {
        "separator": separator,
        "quote": quote,
        "columns": (*(f"c{i}" for i in range(columns)), "label"),
        "missing": draw(st.sampled_from([("",), ("", "NA"), ("NA",), (), ("", "longer than eight bytes", "7")])),
        "encoding": draw(st.sampled_from(["utf8", "utf8", "latin1"])),
        "newlines_in_values": quote is not None and draw(st.booleans()),
        "chunk_bytes": draw(st.sampled_from([1, 100])) if times < 3 else 2**20,
    }
    return data, options


def rows_of(source, features, bad_rows):
    """The rows of each chunk by compiled code (None: it asked for the reference), and by way of Arrow."""
    converter = Converter(features, [Label("label")], [], [])
    reader = source.open(converter.columns)
    if not reader.num_chunks:
        return [], []
    converter.check(reader)
    by_arrow = []
    for chunk in range(reader.num_chunks):
        try:
            by_arrow.append(converter.convert(reader.read(chunk, bad_rows), bad_rows))
        except DataError as error:
            by_arrow.append(str(error))
    ours = []
    for chunk in range(reader.num_chunks):
        try:
            ours.append(converter.decode(reader.fetch(chunk), bad_rows))
        except DataError as error:
            ours.append(str(error))
    return ours, by_arrow


@hypothesis.given(texts(), st.sampled_from(FEATURES), st.sampled_from(["error", "skip"]), st.data())
@hypothesis.settings(max_examples=250, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_text_gives_the_rows_that_arrow_reads(tmp_path_factory, text, feature, bad_rows, data):
    content, options = text
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    column = data.draw(st.sampled_from(options["columns"]))
    made = [feature(column)]
    if made[0].columns != (column,):
        made[0] = ComboFeature("f", cross=(column, options["columns"][0]), hash_bucket_size=77, embedding_dim=2)
    try:
        ours, by_arrow = rows_of(Csv(str(path), **options), made, bad_rows)
    except ValueError:  # a default that is no valid id
        hypothesis.reject()
    for mine, other in zip(ours, by_arrow, strict=True):
        hypothesis.event("by compiled code" if mine is not None else "by the reference")
        if mine is None:
            continue
        if isinstance(other, str):
            assert mine == other
            continue
        assert mine[1] == other[1]
        assert_same(mine[0], other[0])


def clicks(rows, seed=0, ends="\n"):
    """Lines of Criteo's form, some values missing."""
    rng = np.random.default_rng(seed)
    counts, ids = rng.geometric(0.01, (rows, 13)) - 3, rng.integers(0, 2**32, (rows, 26))
    empty = rng.random((rows, 39)) < 0.1
    lines = []
    for i in range(rows):
        fields = [*map(str, counts[i]), *(f"{value:08x}" for value in ids[i])]
        fields = ["" if gone else field for field, gone in zip(fields, empty[i], strict=True)]
        lines.append("\t".join([str(i % 2), *fields]) + ends)
    return "".join(lines)


@pytest.fixture
def no_arrow(monkeypatch):
    monkeypatch.setattr(TextReader, "read", lambda *_: pytest.fail("Arrow was asked"))


def batches(source, features, **options):
    options = {"batch_size": 100, "labels": ["label"], "threads": 2, **options}
    return list(pipeline_of(source, features, **options))


def assert_same_batches(some, others):
    assert len(some) == len(others) > 0
    for a, b in zip(some, others, strict=True):
        for part in ("ids", "numbers", "labels"):
            mine, other = getattr(a, part), getattr(b, part)
            assert mine.keys() == other.keys()
            for name, values in mine.items():
                if isinstance(values, Ragged):
                    assert_same_bags(values, other[name])
                else:
                    np.testing.assert_array_equal(values, other[name])


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_criteo_needs_no_arrow(tmp_path, monkeypatch, threads, ends):
    """Byte ranges that cut lines, any number of threads, a last line without its end: Arrow's batches."""
    (tmp_path / "train.txt").write_bytes(clicks(2000, ends=ends).encode()[: -len(ends)])
    source, features = Criteo(str(tmp_path), chunk_bytes=40_000), Criteo.features(1000)
    options = {"shuffle_rows": 500, "seed": 3, "epochs": 2}
    with monkeypatch.context() as patch:
        patch.setattr(TextReader, "fetch", lambda *_: None)
        by_arrow = batches(source, features, **options)
    monkeypatch.setattr(TextReader, "read", lambda *_: pytest.fail("Arrow was asked"))
    assert_same_batches(batches(source, features, threads=threads, **options), by_arrow)


@pytest.mark.parametrize("part", ["train", "evaluate"])
def test_rows_that_are_held_out_need_no_arrow(tmp_path, monkeypatch, part):
    """A malformed value counts in the part that its row belongs to."""
    lines = clicks(2000).splitlines()
    for i in range(100, 200):
        lines[i] = "\t" + lines[i].split("\t", 1)[1]  # without a label
    (tmp_path / "train.txt").write_text("\n".join(lines))
    source = HeldOut(Criteo(str(tmp_path), chunk_bytes=40_000), part, share=0.3, seed=5)
    options = {"batch_size": 100, "labels": ["label"], "threads": 3, "bad_rows": "skip", "shuffle_rows": 300}
    with monkeypatch.context() as patch:
        patch.setattr(TextReader, "fetch", lambda *_: None)
        reference = pipeline_of(source, Criteo.features(1000), **options)
        by_arrow = list(reference)
    with monkeypatch.context() as patch:
        patch.setattr(TextReader, "read", lambda *_: pytest.fail("Arrow was asked"))
        pipeline = pipeline_of(source, Criteo.features(1000), **options)
        assert_same_batches(list(pipeline), by_arrow)
    assert pipeline.skipped == reference.skipped == {"train": 67, "evaluate": 33}[part]
    with pytest.raises(DataError, match=r"train\.txt, line 10\d, column 'label': label 'label' has no value"):
        list(pipeline_of(source, Criteo.features(1000), batch_size=100, labels=["label"]))


def test_labels_that_a_loss_cannot_take_are_refused_with_their_line(tmp_path):
    (tmp_path / "a.csv").write_text("c,label\n1,0\n2,2\n3,1\n")
    label = CheckedLabel("label", checks=(LabelCheck("a loss", most=1.0),))
    features = [IdFeature("c", num_buckets=9, embedding_dim=2)]
    with pytest.raises(DataError, match="line 3, column 'label': a loss takes numbers from 0 to 1 as labels, got 2"):
        batches(Csv(str(tmp_path / "a.csv")), features, labels=[label])
    made = batches(Csv(str(tmp_path / "a.csv")), features, labels=[label], bad_rows="skip")
    assert made[0].ids["c"].tolist() == [1, 3]


CSV = "user,price,title,tags,label\n" + "".join(
    f"user {i % 7},{i / 8},{title},{i % 3}|{i % 5},{i % 2}\n"
    for i, title in enumerate(["plain", "with ü", "", "a title that is longer than eight bytes"] * 50)
)
CSV_FEATURES = [
    IdFeature("user", vocabulary=[f"user {i}" for i in range(7)], embedding_dim=2),
    RawFeature("price", log=True),
    IdFeature("title", hash_bucket_size=99, embedding_dim=2),
    IdFeature("tags", num_buckets=9, embedding_dim=2, separator="|"),
]


@pytest.mark.usefixtures("no_arrow")
def test_plain_csv_needs_no_arrow(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    made = batches(Csv(str(tmp_path / "a.csv"), chunk_bytes=1000), CSV_FEATURES)
    assert sum(len(batch) for batch in made) == 200
    assert made[0].ids["user"].tolist()[:9] == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    np.testing.assert_array_equal(made[0].numbers["price"][:, 0], np.log(np.arange(100) / 8 + 1).astype(np.float32))


@pytest.mark.parametrize("newlines_in_values", [False, True])
def test_quoted_csv_needs_no_arrow(tmp_path, monkeypatch, newlines_in_values):
    inside = "a, b\nc" if newlines_in_values else "a, b"
    text = CSV.replace("plain", f'"{inside}"').replace("with ü", '"say ""ü"""')
    (tmp_path / "a.csv").write_text(text)
    source = Csv(str(tmp_path / "a.csv"), chunk_bytes=1000, newlines_in_values=newlines_in_values)
    with monkeypatch.context() as patch:
        patch.setattr(TextReader, "fetch", lambda *_: None)
        by_arrow = batches(source, CSV_FEATURES)
    monkeypatch.setattr(TextReader, "read", lambda *_: pytest.fail("Arrow was asked"))
    assert_same_batches(batches(source, CSV_FEATURES), by_arrow)


@pytest.mark.parametrize("field", ['"quoted, and more"', '"7"', "longer than eight bytes", "NA", "12345678", ""])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_chunk_may_change_in_its_middle(tmp_path, field, ends, at):
    """Strings of another form come after many blocks of short ones, in the first, an inner or the last column."""
    lines = []
    for i in range(2000):
        fields = [str(i % 50), "7" if i % 3 else "", f"{i:x}", str(i % 2)]
        if i in (700, 1999):
            fields[at if at < 2 else 3] = field if at < 2 or field == "12345678" else "0"
        lines.append(",".join(fields) + ends)
    (tmp_path / "a.csv").write_bytes("".join(lines).encode())
    source = Csv(str(tmp_path / "a.csv"), columns=("a", "b", "c", "label"), missing=("", "NA"))
    features = [IdFeature(name, hash_bucket_size=2**30, embedding_dim=2) for name in "cba"]
    ours, by_arrow = rows_of(source, features, "error")
    assert ours[0] is not None
    assert_same(ours[0][0], by_arrow[0][0])


@pytest.mark.usefixtures("no_arrow")
def test_spaces_around_numbers_need_no_arrow(tmp_path):
    (tmp_path / "a.csv").write_text("item, price, label\n" + "".join(f"{i}, {i}.25 , {i % 2}\n" for i in range(9)))
    features = [IdFeature("item", num_buckets=9, embedding_dim=2), RawFeature("price", column=" price")]
    made = batches(Csv(str(tmp_path / "a.csv")), features, labels=[Label("label", " label")])
    np.testing.assert_array_equal(made[0].numbers["price"][:, 0], np.arange(9, dtype=np.float32) + 0.25)


@pytest.mark.usefixtures("no_arrow")
def test_ratings_of_movielens_need_no_arrow(tmp_path):
    (tmp_path / "ratings.dat").write_text(
        "".join(f"{i}::{i % 7}::{i % 5 + 1}::{978300760 + i}\n" for i in range(1, 300))
    )
    features = [IdFeature(name, num_buckets=300, embedding_dim=2) for name in ("movie_id", "user_id")]
    made = batches(MovieLens(str(tmp_path)), features, labels=[Label("label", "rating", at_least=4.0)])
    assert np.concatenate([batch.ids["user_id"] for batch in made]).tolist() == list(range(1, 300))
    assert np.concatenate([batch.ids["movie_id"] for batch in made]).tolist() == [i % 7 for i in range(1, 300)]
    assert np.concatenate([batch.labels["label"] for batch in made]).tolist() == [i % 5 >= 3 for i in range(1, 300)]


@pytest.mark.parametrize("threads", [1, 7])
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1\t2", "line 1501: needs 40 columns, got 2"),
        ("", "line 1501: the line is empty"),
        ("x" + "\t" * 39, "line 1501, column 'label': 'x' is not a number"),
        ("1\tmany" + "\t" * 38, "line 1501, column 'count_1': 'many' is not a number"),
    ],
)
def test_errors_have_their_lines(tmp_path, threads, line, why):
    lines = clicks(2000).splitlines()
    lines.insert(1500, line)
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    source = Criteo(str(tmp_path), chunk_bytes=40_000)
    with pytest.raises(DataError, match=why):
        batches(source, Criteo.features(1000), threads=threads)
    pipeline = pipeline_of(
        source, Criteo.features(1000), batch_size=100, labels=["label"], threads=threads, bad_rows="skip"
    )
    assert sum(len(batch) for batch in pipeline) == 2000
    assert pipeline.skipped == 1


def test_damaged_lines_never_crash(tmp_path):
    """Any byte may be wrong: the rows are then Arrow's to refuse, or the ones that Arrow reads."""
    path = tmp_path / "a.csv"
    rng = np.random.default_rng(0)
    data = bytearray(CSV.replace("plain", '"pl""ain"').encode())
    known = 0
    for _ in range(300):
        damaged = bytearray(data)
        for at in rng.integers(40, len(data), rng.integers(1, 4)):
            damaged[at] = rng.choice([rng.integers(0, 256), *b',"\n\r\t0\xc3'])
        path.write_bytes(damaged)
        for mine, other in zip(*rows_of(Csv(str(path)), CSV_FEATURES, "skip"), strict=True):
            if mine is not None:
                known += 1
                assert mine[1] == other[1]
                assert_same(mine[0], other[0])
    assert 30 < known < 300


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    reader = Csv(str(tmp_path / "a.csv")).open(["user"])
    (tmp_path / "a.csv").write_text(CSV[:1000])
    assert reader.fetch(0) is None
    (tmp_path / "a.csv").unlink()
    assert reader.fetch(0) is None


@hypothesis.given(
    st.lists(st.binary(max_size=5) | st.text(max_size=5).map(lambda text: text.encode(errors="surrogatepass")))
)
@hypothesis.settings(max_examples=300, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_text_that_is_not_utf8_is_left_to_the_reference(tmp_path_factory, parts):
    content = b"x" + b"".join(parts).translate(None, b'\r\n,"') + b",1\n"
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    try:
        content.decode()
    except UnicodeDecodeError:
        is_valid = False
    else:
        is_valid = True
    features = [IdFeature("c", hash_bucket_size=99, embedding_dim=2)]
    converter = Converter(features, [Label("label")], [], [])
    reader = Csv(str(path), columns=("c", "label")).open(converter.columns)
    converter.check(reader)
    assert (converter.decode(reader.fetch(0), "error") is not None) == is_valid


@hypothesis.given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=None).map(str)
        | st.floats(allow_nan=False, allow_infinity=False).map(str)
        | st.tuples(st.integers(0, 10**15), st.integers(0, 15)).map(lambda x: f"{x[0]}.{x[0] % 10 ** x[1]}"[:17]),
        min_size=1,
    )
)
@hypothesis.settings(max_examples=300, deadline=None)
def test_numbers_are_rounded_once(words):
    converter = Converter([RawFeature("x", std=2.0)], [], [], [])
    table = pa.table({"x": words})
    converter.check(Tables(table).open(["x"]))
    made = feed.convert(converter._compiled.steps, table.to_batches()[0], converter.layout.width)
    if made is not None:  # or NumPy must look at one of them
        later = made.later[0]
        assert len(later.values) > 0 or all(float(word).is_integer() for word in words)
        for value, place in zip(later.values.tolist(), later.places.tolist(), strict=True):
            assert np.float64(value).tobytes() == np.float64(float(words[place])).tobytes()


@pytest.mark.parametrize(
    "feature",
    [
        RawFeature("x", log=True, missing=-2.0),
        RawFeature("x", log=True, mean=1.25, std=0.7, missing=0.3),
        RawFeature("x", log10_above=3.0, missing=8192.0),
        RawFeature("x", expression="1 / (x + 0.5)"),
        RawFeature("x", expression="1 / (x - 3)", missing=1.0),  # not finite for 3, which is not in the data
        RawFeature("x", dim=2, separator="|", log=True),
    ],
)
def test_transforms_of_small_integers_are_the_ones_of_numpy(feature):
    words = ["0", "1", "-0", "-1", None, "17", "8191", "8192", "1000000", "2.5", "8190.0", "-3e2", "4"]
    if feature.dim == 2:
        words = [None if word is None else f"{word}|{word}" for word in words]
    table = pa.table({"x": words})
    converter = Converter([feature], [], [], [])
    converter.check(Tables(table).open(["x"]))
    rows = Tables(table).open(["x"]).read(0, "error")
    ours, _ = converter._compiled.convert(table.to_batches()[0], "error")
    converter._compiled = None
    assert_same(ours, converter.convert(rows, "error")[0])


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1000, 2**20 - 1, 2**20, 2**30 + 7, 2**31 - 2, 2**31 - 1])
def test_hashes_are_divided_without_a_rest(size):
    table = pa.table({"c": [f"{i}" for i in range(500)]})
    converter = Converter([IdFeature("c", hash_bucket_size=size, embedding_dim=2)], [], [], [])
    converter.check(Tables(table).open(["c"]))
    ours, _ = converter._compiled.convert(table.to_batches()[0], "error")
    converter._compiled = None
    assert_same(ours, converter.convert(Tables(table).open(["c"]).read(0, "error"), "error")[0])
