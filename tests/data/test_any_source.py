"""Other files, read as those that a model was trained on."""

import dataclasses

from sparrow.data import Csv, HeldOut, Parquet, Source, Split, source_of


@dataclasses.dataclass(frozen=True)
class Lines(Source):
    """A source of your own."""

    path: str
    strict: bool = True

    def open(self, columns):
        raise NotImplementedError

    def column_names(self):
        return []


def test_all_rows_of_other_files():
    """A run that holds rows out of its training data does not leave out any of other files."""
    trained = HeldOut(Split(Parquet("a.parquet"), "both", ":", ("x", "y")), "train")
    assert source_of("b.parquet", trained) == Split(Parquet("b.parquet"), "both", ":", ("x", "y"))
    assert source_of("c.pq", HeldOut(Parquet("a.parquet"), "train")) == Parquet("c.pq")


def test_options_of_the_first_that_reads_such_files():
    semicolons, tabs = Csv("a.csv", separator=";"), Csv("a.tsv", separator="\t")
    assert source_of("b.csv", semicolons, tabs) == Csv("b.csv", separator=";")
    assert source_of("b.tsv.gz", semicolons, tabs) == Csv("b.tsv.gz", separator="\t")
    assert source_of("b.txt", Parquet("a.parquet"), tabs) == Csv("b.txt", separator="\t")
    assert source_of("b.parquet", semicolons) == Parquet("b.parquet")
    assert source_of("folder", Csv("other")) == Csv("folder")
    assert source_of("b.tsv", None) == Csv("b.tsv", separator="\t")


def test_files_of_a_source_of_ones_own():
    own = Lines("a.jsonl", strict=False)
    assert source_of("b.jsonl", Parquet("a.parquet"), own) == Lines("b.jsonl", strict=False)
    assert source_of("b.parquet", own) == Parquet("b.parquet")
