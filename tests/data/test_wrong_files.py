"""Wrong data files: each gives one clear line that names the file, the row or line, and the column."""

import datetime
import gzip
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import (
    ComboFeature,
    Criteo,
    Csv,
    DataError,
    IdFeature,
    MovieLens,
    Parquet,
    RawFeature,
    SequenceFeature,
    Tables,
    Vocabulary,
    build_vocabularies,
)
from tests.feed.pipelines import pipeline_of

ITEM = IdFeature("item", num_buckets=10, embedding_dim=4)
PRICE = RawFeature("price")


def parquet(folder, name="t.parquet", **columns):
    pq.write_table(pa.table(columns), folder / name)


def good(folder, name="t.parquet"):
    parquet(folder, name, item=[1, 2], price=[0.5, 1.0], click=[0, 1])


def run(source, features=(ITEM,), labels=("click",), **options):
    for _ in pipeline_of(source, list(features), labels=list(labels), batch_size=4, **options):
        pass


CASES = {}


def case(message):
    """Registers a function of a folder, which must fail with one line that matches ``message``."""

    def register(function):
        CASES[function.__name__] = (function, message)
        return function

    return register


@case(r"^.*/nowhere\.parquet: there is no such file or folder$")
def no_such_file(folder):
    run(Parquet(str(folder / "nowhere.parquet")))


@case(r"^.*: the folder holds no file that ends in \.parquet or \.pq$")
def folder_without_files(folder):
    run(Parquet(str(folder)))


@case(r"^.*/\*\.csv: no file matches the pattern$")
def pattern_without_files(folder):
    run(Csv(str(folder / "*.csv")))


@case(r"^.*/t\.parquet: the file is empty; remove it")
def empty_parquet(folder):
    (folder / "t.parquet").touch()
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet: is text; give its name the ending \.csv, or the source name: csv$")
def not_parquet(folder):
    (folder / "t.parquet").write_text("item,click\n1,0\n" * 10)
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet: is not a Parquet file, or was cut off: it has no footer$")
def truncated_parquet(folder):
    good(folder)
    data = (folder / "t.parquet").read_bytes()
    (folder / "t.parquet").write_bytes(data[:-20])
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, row group 0, column .item.: cannot be read, it is damaged: the header of a page is malformed$")
def damaged_pages(folder):
    good(folder)
    data = bytearray((folder / "t.parquet").read_bytes())
    data[4:60] = b"\xff" * 56  # the first pages; the footer stays
    (folder / "t.parquet").write_bytes(data)
    run(Parquet(str(folder)))


@case(r"^table in memory, row 0: cannot be read, it may be damaged: .*out.of.bounds")
def words_beyond_the_dictionary(folder):
    indices = pa.array([0, 9], pa.int32())
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    item = IdFeature("item", hash_bucket_size=10, embedding_dim=4)
    run(Tables({"item": words, "click": [0, 1]}), [item])


@case(r"^.*/t\.parquet: there are no rows$")
def parquet_without_rows(folder):
    parquet(folder, item=pa.array([], pa.int64()), click=pa.array([], pa.int64()))
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, column 'item': there is no such column: did you mean 'items'\? Valid names: click, items$")
def missing_column(folder):
    parquet(folder, items=[1, 2], click=[0, 1])
    run(Parquet(str(folder)))


@case(r"^.*/b\.parquet, column 'click': there is no such column")
def missing_column_in_a_later_file(folder):
    good(folder, "a.parquet")
    parquet(folder, "b.parquet", item=[1])
    run(Parquet(str(folder)))


@case(r"^.*/b\.parquet, column 'item': the column holds string, but int64 in .*/a\.parquet; make the files alike$")
def files_that_differ(folder):
    good(folder, "a.parquet")
    parquet(folder, "b.parquet", item=["1"], click=[0])
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, column 'price': feature 'price' needs numbers, the column holds timestamp\[us\]$")
def dates_for_numbers(folder):
    parquet(folder, price=[datetime.datetime(2020, 1, 1)], click=[0])
    run(Parquet(str(folder)), [PRICE])


@case(r"^.*/t\.parquet, column 'item': feature 'item' needs ids .* the column holds struct<a: int64>$")
def structs_for_ids(folder):
    parquet(folder, item=[{"a": 1}], click=[0])
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, column 'item': feature 'c' crosses single values .* the column holds list<.*>$")
def lists_in_a_cross(folder):
    parquet(folder, item=[[1]], day=[1], click=[0])
    run(Parquet(str(folder)), [ComboFeature("c", cross=("item", "day"), hash_bucket_size=9, embedding_dim=4)])


@case(r"^.*/t\.parquet, column 'click': the column needs one number per row, it holds list<.*>$")
def lists_for_labels(folder):
    parquet(folder, item=[1], click=[[0]])
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, row 2, column 'item': id 10 is outside 0 to 9; correct the data, or num_buckets of feature")
def id_too_large(folder):
    parquet(folder, item=[1, 2, 10, 11], click=[0, 1, 0, 1])
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, row 1, column 'seen': id -4 is outside 0 to 9")
def negative_id_in_a_sequence(folder):
    parquet(folder, seen=[[1], [2, -4]], click=[0, 1])
    run(Parquet(str(folder)), [SequenceFeature("seen", num_buckets=10, embedding_dim=4, max_length=5)])


@case(r"^.*/t\.parquet, row 1, column 'item': 2\.5 is not an integer$")
def fractional_id(folder):
    parquet(folder, item=[1.0, 2.5], click=[0, 1])
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, row 1, column 'price': inf is not a finite number$")
def infinite_number(folder):
    parquet(folder, price=[1.0, float("inf")], click=[0, 1])
    run(Parquet(str(folder)), [PRICE])


@case(r"^.*/t\.parquet, row 1, column 'click': label 'click' has no value; remove the row, or set data.*$")
def missing_label(folder):
    parquet(folder, item=[1, 2], click=[0, None])
    run(Parquet(str(folder)))


@case(r"^.*/t\.parquet, row 0, column 'weight': a sample weight must not be negative, got -1$")
def negative_sample_weight(folder):
    parquet(folder, item=[1], click=[0], weight=[-1.0])
    run(Parquet(str(folder)), weights=["weight"])


@case(r"^.*/t\.parquet, row 1, column 'session': the key has no value; remove the row.*$")
def missing_key(folder):
    parquet(folder, item=[1, 2], click=[0, 1], session=["a", None])
    run(Parquet(str(folder)), keys=["session"])


@case(r"^.*/t\.parquet, row 1, column 'w': 2 ids in column 'item' need as many weights, got 1$")
def too_few_weights(folder):
    parquet(folder, item=[[1], [2, 3]], w=[[1.0], [1.0]], click=[0, 1])
    run(Parquet(str(folder)), [IdFeature("item", num_buckets=10, embedding_dim=4, weight_column="w")])


@case(r"^.*/t\.parquet, row 1, column 'vector': feature 'vector' needs 3 numbers per row, got 2$")
def wrong_number_of_numbers(folder):
    parquet(folder, vector=[[1.0, 2.0, 3.0], [1.0, 2.0]], click=[0, 1])
    run(Parquet(str(folder)), [RawFeature("vector", dim=3)])


@case(r"^.*/t\.parquet, row 1, column 'item': 'Bonn' is not in the vocabulary of feature 'item'; build it again")
def unknown_word(folder):
    parquet(folder, item=["Rome", "Bonn"], click=[0, 1])
    run(Parquet(str(folder)), [IdFeature("item", vocabulary=("Rome",), unknown="error", embedding_dim=4)])


@case(r"^.*/t\.parquet: no row can be used: every one is malformed; set bad_rows to 'error' to see why$")
def bad_rows_only(folder):
    parquet(folder, item=[-1, 99], click=[0, 1])
    run(Parquet(str(folder)), bad_rows="skip", epochs=None)


@case(r"^.*/t\.parquet: the 2 rows that can be used do not fill a batch of 4, and drop_remainder leaves them out")
def fewer_rows_than_a_batch(folder):
    good(folder)
    run(Parquet(str(folder)), drop_remainder=True, epochs=None)


@case(r"^.*/t\.csv: there are no rows$")
def csv_of_a_header_only(folder):
    (folder / "t.csv").write_text("item,click\n\n")
    run(Csv(str(folder)))


@case(r"^.*/t\.csv, line 3: needs 2 columns, got 1: '2'$")
def csv_line_too_short(folder):
    (folder / "t.csv").write_text("item,click\n1,0\n2\n")
    run(Csv(str(folder)))


@case(r"^.*/t\.csv, line 4: needs 2 columns, got 3: '3,1,1'$")
def csv_line_too_long_in_a_later_chunk(folder):
    (folder / "t.csv").write_text("item,click\n1,0\n2,1\n3,1,1\n")
    run(Csv(str(folder), chunk_bytes=4))


@case(r"^.*/t\.csv, line 3: the line is empty$")
def csv_empty_line(folder):
    (folder / "t.csv").write_text("item,click\n1,0\n\n2,1\n")
    run(Csv(str(folder)))


@case(r"^.*/t\.csv, line 3: byte 0xe9 is not utf8 text; give the file's encoding, such as latin1$")
def csv_of_another_encoding(folder):
    (folder / "t.csv").write_bytes("item,click\na,0\ncaf\xe9,1\n".encode("latin1"))
    run(Csv(str(folder)), [IdFeature("item", hash_bucket_size=9, embedding_dim=4)])


@case(r"^.*/t\.csv, line 3, column 'click': 'yes' is not a number$")
def csv_text_for_a_label(folder):
    (folder / "t.csv").write_text("item,click\n1,0\n2,yes\n")
    run(Csv(str(folder)))


@case(r"^.*/t\.csv, line 2, column 'item': '99999999999999999999' is not an integer; words need a vocabulary.*$")
def csv_number_beyond_64_bits(folder):
    (folder / "t.csv").write_text("item,click\n99999999999999999999,0\n")
    run(Csv(str(folder)))


@case(r"^.*/t\.csv, column 'click': there are several columns of this name; rename one$")
def csv_column_twice(folder):
    (folder / "t.csv").write_text("item,click,click\n1,0,0\n")
    run(Csv(str(folder)))


@case(r"^.*/t\.csv\.xz: the file is compressed; unpack it first")
def compressed_csv(folder):
    (folder / "t.csv.xz").write_bytes(b"?")
    run(Csv(str(folder / "t.csv.xz")))


@case(r"^.*/t\.parquet\.gz: the file is compressed; unpack it first")
def compressed_parquet(folder):
    (folder / "t.parquet.gz").write_bytes(b"?")
    run(Parquet(str(folder / "t.parquet.gz")))


@case(r"^.*/t\.csv\.gz: cannot be unpacked: ")
def damaged_compressed_csv(folder):
    text = b"item,click\n" + b"".join(b"%d,%d\n" % (i * i % 10, i % 2) for i in range(400_000))
    packed = gzip.compress(text)
    (folder / "t.csv.gz").write_bytes(packed[: len(packed) // 2] + b"\0" * (len(packed) // 2))
    run(Csv(str(folder / "t.csv.gz")))


@case(r"^.*/t\.csv\.gz: cannot be read: ")
def csv_that_is_not_compressed(folder):
    (folder / "t.csv.gz").write_bytes(b"item,click\n1,0\n")
    run(Csv(str(folder / "t.csv.gz")))


@case(r"^.*/t\.csv, line 5: needs 2 columns, got 1: ")
def csv_with_quotes_left_open(folder):
    (folder / "t.csv").write_text('item,click\n1,"0"\n"2\n",1\n"3,1\n4,0\n')
    run(Csv(str(folder / "t.csv"), newlines_in_values=True), bad_rows="error")


@case(r"^.*: the folder holds neither train\.txt nor day_0; name the folder of Criteo's files$")
def not_criteo(folder):
    good(folder)
    run(Criteo(str(folder)), Criteo.features())


@case(r"^.*/train\.txt, line 1: needs 40 columns, got 39: ")
def criteo_with_a_column_less(folder):
    (folder / "train.txt").write_text("\t".join(["0"] * 39) + "\n")
    run(Criteo(str(folder)), Criteo.features(), ["label"])


@case(r"^.*: the folder holds none of u\.data, ratings\.dat, ratings\.csv; name the folder that MovieLens")
def not_movielens(folder):
    run(MovieLens(str(folder)), [IdFeature("user_id", num_buckets=9, embedding_dim=4)], ["rating"])


@case(r"^.*/movies\.dat: there is no such file or folder$")
def movielens_without_movies(folder):
    (folder / "ratings.dat").write_text("1::2::3::4\n")
    run(MovieLens(str(folder)), [IdFeature("title", hash_bucket_size=9, embedding_dim=4)], ["rating"])


@case(r"^.*/words\.txt: there is no such vocabulary file; build it with `sparrow vocab`$")
def no_vocabulary_file(folder):
    good(folder)
    run(Parquet(str(folder)), [IdFeature("item", vocabulary=str(folder / "words.txt"), embedding_dim=4)])


@case(r"^.*/words\.txt: holds the word 'a' twice; list each word once$")
def vocabulary_with_a_word_twice(folder):
    (folder / "words.txt").write_text("a\nb\na\n")
    Vocabulary.load(folder / "words.txt")


@case(r"^.*/words\.txt: the column holds integers, the vocabulary the word 'red'; build it from this column$")
def vocabulary_of_another_column(folder):
    good(folder)
    (folder / "words.txt").write_text("1\nred\n")
    run(Parquet(str(folder)), [IdFeature("item", vocabulary=str(folder / "words.txt"), embedding_dim=4)])


@case(r"^.*/t\.parquet, column 'price': a vocabulary is made of strings or integers, the column holds double$")
def vocabulary_of_prices(folder):
    good(folder)
    build_vocabularies(Parquet(str(folder)), ["price"])


@case(r"^column 'item': no word occurs 5 times or more; lower min_count$")
def vocabulary_of_rare_words(folder):
    good(folder)
    build_vocabularies(Parquet(str(folder)), ["item"], min_count=5)


@case(r"^column 'item': there is no word to count: the data holds no rows, or no values$")
def vocabulary_of_no_rows(folder):
    (folder / "t.csv").write_text("item\n")
    build_vocabularies(Csv(str(folder / "t.csv")), ["item"])


@case(r"^.*/packed\.csv: is compressed; give its name the ending \.gz, or unpack it$")
def packed_without_its_ending(folder):
    (folder / "packed.csv").write_bytes(gzip.compress(b"user,item\n1,2\n"))
    Csv(str(folder / "packed.csv")).column_names()


@case(r"^.*/t\.parquet: is a Parquet file; give its name the ending \.parquet, or the source name: parquet$")
def parquet_as_text_with_names(folder):
    good(folder)
    Csv(str(folder / "t.parquet"), columns=("user",)).open(["user"])


@case(r"^.*/t\.parquet: is a Parquet file; give its name the ending \.parquet, or the source name: parquet$")
def parquet_as_text(folder):
    good(folder)
    Csv(str(folder / "t.parquet")).column_names()


@pytest.mark.parametrize("name", CASES)
def test_wrong_file(tmp_path, name):
    function, message = CASES[name]
    with pytest.raises(DataError) as caught:
        function(tmp_path)
    text = str(caught.value)
    assert re.search(message, text), text
    assert "\n" not in text


def test_there_are_enough_of_them():
    assert len(CASES) >= 20


def test_the_good_file_is_good(tmp_path):
    good(tmp_path)
    run(Parquet(str(tmp_path)), [ITEM, PRICE])
