"""Labels in lists, and labels that are bits."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import CandidateLabel, Label, LabelCheck
from sparrow.data.errors import Problems


def converted(label, **columns):
    rows = pa.RecordBatch.from_pydict(columns)
    problems = Problems(rows.num_rows)
    return label.convert(rows, problems), problems


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("as_text", [False, True])
def test_lists_are_cut_as_candidates_are(keep, as_text):
    label = CandidateLabel("y", max_length=2, keep=keep, separator=";")
    given = ["1;2;3", "", "4"] if as_text else [[1, 2, 3], [], [4]]
    made, problems = converted(label, y=given)
    assert made.to_lists() == [[1.0, 2.0] if keep == "first" else [2.0, 3.0], [], [4.0]]
    assert problems.first is None
    assert label.refuse(pa.RecordBatch.from_pydict({"y": given}).column(0).type) is None


def test_bits():
    made, _ = converted(Label("like", column="action", bitmask=6), action=[0, 1, 2, 4, 7, 8])
    assert made.tolist() == [0, 0, 1, 1, 1, 0]
    made, _ = converted(CandidateLabel("like", "action", bitmask=2, max_length=3), action=[[0, 2], [3]])
    assert made.to_lists() == [[0.0, 1.0], [1.0]]


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0**60])
def test_bits_of_other_numbers(value):
    _, problems = converted(Label("like", column="action", bitmask=2), action=[1.0, value])
    assert problems.rows.tolist() == [False, True]
    assert "reads bits of integers" in problems.first[2]


def test_at_least_and_bits_exclude_each_other():
    with pytest.raises(ValueError, match="at_least and bitmask exclude each other"):
        Label("y", at_least=1.0, bitmask=1)


def test_labels_out_of_range_do_not_count_where_their_weight_is_0():
    check = LabelCheck("binary_cross_entropy of the task 'click'", most=1.0, weight="w")
    label = CandidateLabel("y", max_length=4, checks=(check,))
    _, problems = converted(label, y=[[0, 2], [1, 0], [0, 3]], w=[0.0, 1.0, 2.0])
    assert np.flatnonzero(problems.rows).tolist() == [2]
    assert problems.first == (
        2,
        "y",
        "binary_cross_entropy of the task 'click' takes numbers from 0 to 1 as labels, got 3",
    )


def test_missing_labels_are_of_their_row():
    _, problems = converted(CandidateLabel("y", max_length=4), y=[[1, 0], [None, 1]])
    assert problems.first[:2] == (1, "y")
    assert "has no value" in problems.first[2]
