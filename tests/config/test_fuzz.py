"""Whatever a config file holds, reading it gives a config or a `ConfigError`: never a traceback of ours."""

import contextlib
import json

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow import config
from sparrow.config import ConfigError
from sparrow.config.torcheasyrec.messages import MESSAGES
from tests.config.examples import EVERYTHING, VALID

QUICK = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def survives(text, form):
    wrong = None
    try:
        loaded = config.loads(text, form, "f")
    except ConfigError as error:
        wrong = error
    if wrong is None:
        assert config.loads(config.dumps(loaded)) == loaded
    else:
        assert 0 < len(wrong.problems) == len(str(wrong).split("\n"))


WORDS = sorted({field for fields in MESSAGES.values() for field in fields})
NOISE = st.sampled_from([*"{}<>[]:,;-#\"'\\\n .", "true", "-1", "1e400", "0x", "07", "1.5f", "inf", "nan", '"a"'])


@QUICK
@given(st.text(max_size=80))
def test_any_text(text):
    for form in ("yaml", "json", "config"):
        survives(text, form)


@QUICK
@given(st.lists(st.sampled_from(WORDS) | NOISE, max_size=40))
def test_words_of_torcheasyrec(words):
    survives(" ".join(words), "config")


@QUICK
@given(st.data())
def test_a_config_of_torcheasyrec_with_something_wrong(data):
    tokens = EVERYTHING.split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(tokens) - 1))
        tokens[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.lists(st.sampled_from(WORDS) | NOISE | st.sampled_from(tokens), max_size=2)
        )
    survives(" ".join(tokens), "config")


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["adam", "l2", "id"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("name"), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


PLACES = list(places(VALID))[1:]


@QUICK
@given(st.sampled_from(PLACES), PLAIN, st.sampled_from(["replace", "add", "delete"]))
def test_a_valid_config_with_something_wrong(path, value, how):
    data = json.loads(json.dumps(VALID))
    node = data
    for key in path[:-1]:
        node = node[key]
    if how == "delete":
        del node[path[-1]]
    elif how == "add" and isinstance(node[path[-1]], dict):
        node[path[-1]]["something"] = value
    else:
        node[path[-1]] = value
    survives(json.dumps(data), "json")
    survives(yaml.safe_dump(data), "yaml")


@QUICK
@given(
    st.text(max_size=30)
    | st.builds("{}={}".format, st.sampled_from([*WORDS, "train.steps", "data.features[0]"]), PLAIN)
)
def test_any_override(text):
    with contextlib.suppress(ConfigError):
        config.from_mapping(VALID, overrides=[text])
