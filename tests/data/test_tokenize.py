"""Texts as tokens, against the library itself."""

import pyarrow as pa
import pytest

from sparrow.data import DataError, IdFeature, Tables, TokenizeFeature
from sparrow.data.errors import Problems
from sparrow.data.features import registry
from sparrow.data.features.tokenize import NORMALIZERS
from tests.feed.pipelines import pipeline_of

tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[UNK]", "red", "shoes", "running", "中", "文"]


@pytest.fixture
def file(tmp_path):
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_padding(length=9)  # of no use here, and left out
    made.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


def tokens(feature, texts):
    batch = pa.RecordBatch.from_pydict({"title": pa.array(texts, pa.string())})
    return feature.convert(batch, Problems(len(texts))).to_lists()


def test_tokens_are_those_of_the_library(file):
    title = TokenizeFeature("title", vocabulary=file, embedding_dim=4)
    assert title.num_rows == len(WORDS)
    assert tokens(title, ["red running shoes", "", None, "blue shoes"]) == [[1, 3, 2], [], [], [0, 2]]
    default = TokenizeFeature("title", vocabulary=file, embedding_dim=4, default="shoes")
    assert tokens(default, ["red", "", None]) == [[1], [2], [2]]
    lower = TokenizeFeature("title", vocabulary=file, embedding_dim=4, normalize=("lower", "split_chinese"))
    assert tokens(lower, ["RED中文"]) == [[1, 4, 5]]
    assert registry.from_json(registry.to_json(lower)) == lower


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("lower", "AbC", "abc"),
        ("upper", "abc", "ABC"),
        ("half_width", "ＡＢ！　ｚ", "AB! z"),
        ("split_chinese", "a中文b", "a 中 文 b"),
        ("remove_symbols", "a-b, c$", "ab c"),
        ("remove_space", " a b\tc", "abc"),
    ],
)
def test_normalizers(name, text, expected):
    assert NORMALIZERS[name](text) == expected


def test_a_pipeline_of_tokens(file):
    features = [
        IdFeature("item", num_buckets=9, embedding_dim=4),
        TokenizeFeature("words", column="title", vocabulary=file, embedding_dim=4, pooling="mean"),
    ]
    (batch,) = pipeline_of(Tables({"item": [1, 2], "title": ["red", "red shoes"]}), features, batch_size=2)
    assert batch.ids["words"].to_lists() == [[1], [1, 2]]


def test_mistakes(file, tmp_path):
    with pytest.raises(DataError, match="the tokenizer cannot be read: No such file"):
        tokens(TokenizeFeature("title", vocabulary=str(tmp_path / "none.json"), embedding_dim=4), ["a"])
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match=r"is not a tokenizer\.json"):
        tokens(TokenizeFeature("title", vocabulary=str(tmp_path / "bad.json"), embedding_dim=4), ["a"])
    with pytest.raises(ValueError, match="normalize must be one of 'lower'"):
        TokenizeFeature("title", vocabulary=file, embedding_dim=4, normalize=("lowr",))
    title = TokenizeFeature("title", vocabulary=file, embedding_dim=4)
    assert title.refuse("title", pa.int64()) == "feature 'title' cuts texts into tokens, the column holds int64"
