"""Exports of strangers: whatever their files declare, loading them is one sentence or a model, and nothing else."""

import hashlib
import json
import os
import random
import re
import shutil
import struct
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export as jax_export

from sparrow import exports, serving
from sparrow.data import DataError
from sparrow.serving import description
from sparrow.serving.parts import called, deserialized
from sparrow.serving.tensors import COPIED_BYTES
from tests.crafted import changed
from tests.exports.cases import WORDS, config, program_and_state, rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    exports.export(*program_and_state(config("test_own", folder / "words.txt")), folder / "export")
    return folder / "export"


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def craft(folder, change):
    """Changes the description as somebody would who knows how its checksum is made."""
    fields = json.loads((folder / "export.json").read_text())
    fields.pop("checksum")
    change(fields)
    fields["checksum"] = description._checksum(fields)
    (folder / "export.json").write_text(json.dumps(fields))


def put(folder, name, data):
    """Replaces a file, with the fingerprint that belongs to it."""
    (folder / name).write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    craft(folder, lambda fields: fields["files"].update({name: entry}))


def refused(folder, match):
    with pytest.raises(DataError, match=match) as error:
        serving.load(folder)
    assert len(str(error.value).splitlines()) == 1
    str(error.value).encode()


@pytest.mark.parametrize(
    "name", ["../outside.txt", "/etc/hostname", "link.txt", "vocabularies/../../outside.txt", "\ud800"]
)
def test_files_of_another_place_are_not_read(name, copy):
    (copy.parent / "outside.txt").write_text("secret")
    (copy / "link.txt").symlink_to("../outside.txt")
    entry = {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}
    craft(copy, lambda fields: fields["files"].update({name: entry}))
    refused(copy, "may be damaged" if name == "\ud800" else "lists a file of another place")


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/hostname", "link.txt", "not/listed.txt"])
def test_words_and_programs_are_files_of_the_export(name, copy):
    (copy.parent / "outside.txt").write_text("red\ngreen\nblue\n")
    (copy / "link.txt").symlink_to("../outside.txt")
    before = (copy / "export.json").read_bytes()
    craft(copy, lambda fields: [f.update(vocabulary=name) for f in fields["features"] if f.get("vocabulary")])
    refused(copy, "does not list the file '.*', which it needs")
    (copy / "export.json").write_bytes(before)
    craft(copy, lambda fields: fields["functions"]["predict"].update(file=name))
    refused(copy, "does not list the file '.*', which it needs")


def test_a_pipe_is_not_waited_for(copy):
    (copy / "parameters.safetensors").unlink()
    os.mkfifo(copy / "parameters.safetensors")
    refused(copy, "the export lacks this file")


DESCRIPTIONS = {
    "no function": (lambda f: f["functions"].clear(), "needs a function 'predict'"),
    "no rows": (lambda f: f.update(batch_size=0), "batch_size of at least 1"),
    "text for a number": (lambda f: f.update(step="7"), "step: must be an integer, got '7'"),
    "a number for a list": (lambda f: f.update(platforms=1), "platforms: must be a list, got 1"),
    "a list for a mapping": (lambda f: f.update(functions=[]), "functions: must be a mapping of names to values, got"),
    "another type inside": (
        lambda f: f["functions"]["predict"]["outputs"]["click"].update(shape=[1.5]),
        r"functions.predict.outputs.click.shape\[0\]: must be a string or an integer, got 1.5",
    ),
    "an unknown field": (lambda f: f["tables"]["user"].update(color=1), "tables.user.color: unknown field"),
    "a missing field": (lambda f: f["lookups"]["user"].pop("table"), "lookups.user.table: is required"),
    "more rows": (lambda f: f["tables"]["user"].update(rows=10**15), r"table 'user' is float32 of shape \(50, 4\)"),
    "fewer rows": (lambda f: f["tables"]["user"].update(rows=3), "and is described as float32 of shape"),
    "another dtype": (lambda f: f["tables"]["user"].update(dtype="object"), "described as object of shape"),
    "no such table": (lambda f: f["tables"].pop("user"), "up in a table that is not there"),
    "another combiner": (lambda f: f["tables"]["user"].update(combiner="max"), "does not describe an export"),
    "no such feature": (lambda f: f["lookups"]["user"].update(feature="x"), "takes 'x', which the export lacks"),
    "no such parameter": (lambda f: f["functions"]["predict"]["parameters"].append("x"), "takes 'x', which"),
    "fewer parameters": (lambda f: f["functions"]["predict"]["parameters"].pop(), "does not fit the parameters"),
    "another output": (
        lambda f: f["functions"]["predict"]["outputs"]["click"].update(shape=["batch", 10**12]),
        "does not fit",
    ),
    "an unknown feature": (lambda f: f["features"][0].update(kind="x"), "feature 'user' cannot be read: unknown"),
    "no feature at all": (lambda f: f.update(features=[{"kind": []}]), "feature None cannot be read"),
    "tables not listed": (lambda f: f["files"].pop("tables.safetensors"), "does not list the file 'tables.safet"),
}


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_descriptions_that_do_not_fit(case, copy):
    change, match = DESCRIPTIONS[case]
    craft(copy, change)
    refused(copy, match)


TEXTS = {
    "deep": ("[" * 100_000, "may be damaged"),
    "not UTF-8": (b"\xff\xfe{}", "may be damaged"),
    "a long number": ('{"form": ' + "9" * 10_000 + "}", "may be damaged"),
    "another version": ('{"form": [1], "versions": 7}', r"was written in format version \[1\]"),
    "null": ("null", "does not describe an export"),
    "empty": ("", "may be damaged"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts_that_are_no_description(case, copy):
    text, match = TEXTS[case]
    (copy / "export.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(copy, match)


def test_a_description_without_end_is_not_read(copy, monkeypatch):
    monkeypatch.setattr(description, "LARGEST", 100)
    refused(copy, "is larger than 100 bytes")


def header(**arrays):
    """The beginning of a file in the safetensors format."""
    text = json.dumps(arrays).encode()
    return struct.pack("<Q", len(text)) + text


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TABLES = {
    "no header": b"1234",
    "a header without end": struct.pack("<Q", 2**62) + b"{}",
    "a header that is no JSON": struct.pack("<Q", 4) + b"{'a'",
    "a list": struct.pack("<Q", 2) + b"[]",
    "a huge shape": header(user=entry([2**40, 2**40], 0, 2**82)),
    "a shape of another size": header(user=entry([51, 5], 0, 816)) + bytes(816),
    "a negative size": header(user=entry([-51, -4], 0, 816)) + bytes(816),
    "a size that is no number": header(user=entry(["51", 4], 0, 816)) + bytes(816),
    "too few bytes": header(user=entry([51, 4], 0, 816)) + bytes(815),
    "too many bytes": header(user=entry([51, 4], 0, 816)) + bytes(817),
    "two in one place": header(user=entry([51, 4], 0, 816), item=entry([51, 4], 0, 816)) + bytes(816),
    "a gap": header(user=entry([51, 4], 8, 824)) + bytes(824),
    "another dtype": header(user=entry([51, 4], 0, 816, "I32")) + bytes(816),
    "no offsets": header(user={"dtype": "F32", "shape": [51, 4]}) + bytes(816),
    "fewer tables": header(user=entry([51, 4], 0, 816)) + bytes(816),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_are_none(case, copy):
    put(copy, "tables.safetensors", TABLES[case])
    refused(copy, "tables.safetensors: ")


@pytest.mark.parametrize("data", [b"", b"\xff" * 100, header(x=entry([2**60], 0, 2**62)), header()])
def test_parameters_that_are_none(data, copy):
    put(copy, "parameters.safetensors", data)
    refused(copy, "is not a safetensors file|which the export lacks")


def program(function, *targets, arguments=None):
    """A program as `jax.export` writes it, with custom calls to ``targets``."""
    checks = [jax_export.DisabledSafetyCheck.custom_call(target) for target in targets]
    shapes = arguments or ({}, {"a": jax.ShapeDtypeStruct((2, 4), jnp.float32)}, {})
    return bytes(jax_export.export(jax.jit(function), disabled_checks=checks)(*shapes).serialize())


def outside(parameters, acts, numbers):
    shape = jax.ShapeDtypeStruct((2, 4), jnp.float32)
    return {"y": jax.ffi.ffi_call("xla_ffi_python_cpu_callback", shape)(acts["a"], descriptor=np.uint64(1))}


def test_programs_that_call_other_code_are_refused(copy):
    put(copy, "predict.stablehlo", program(outside, "xla_ffi_python_cpu_callback"))
    refused(copy, r"predict.stablehlo: calls code outside of the program: xla_ffi_python_cpu_callback; load an export")


def run_alone(data, custom_calls=()):
    return deserialized(
        data,
        where="x",
        written_by="1",
        arguments=({}, {"a": ((2, 4), "float32")}, {}),
        outputs={"y": ((2, 4), "float32")},
        custom_calls=custom_calls,
    )


def test_custom_calls_are_allowed_by_name():
    def solves(parameters, acts, numbers):
        return {"y": acts["a"] + jnp.linalg.cholesky(jnp.eye(4))[:1]}

    data = program(solves)
    with pytest.raises(DataError, match="lapack_spotrf_ffi"):
        run_alone(data)
    call = run_alone(data, ["lapack_spotrf_ffi"])
    assert call({}, {"a": np.ones((2, 4), np.float32)}, {})["y"].shape == (2, 4)


def test_programs_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="does not fit the parameters and tables"):
        run_alone(program(lambda p, a, n: {"y": a["a"].sum(axis=1)}))
    with pytest.raises(DataError, match="does not fit the parameters and tables"):
        run_alone(program(lambda p, a, n: {"z": a["a"]}))
    with pytest.raises(DataError, match="cannot read a program of jax 1"):
        run_alone(b"no program")
    one = jax.ShapeDtypeStruct((2, 4), jnp.float32)
    with pytest.raises(DataError, match="the program takes 1 arguments"):
        run_alone(program(lambda x: x, arguments=(one,)))


def test_custom_calls_are_found_in_every_form():
    assert called('stablehlo.custom_call @a(%0) {m = "custom_call @b()"} : () -> ()') == {"a"}
    assert called('stablehlo.custom_call @"a b"(%0)') == {'"a b"'}
    assert called('mhlo.custom_call @"\\" loc(" custom_call @shape_assertion(") x') == {'"\\" loc("', "shape_assertion"}
    assert called('%0 = "stablehlo.custom_call"(%1)') == {'"stablehlo.custom_call"'}
    assert called("stablehlo.custom_call(%1)") == {"custom_call"}
    assert called("func.call @custom_call(%1) : () -> ()") == set()
    assert called('%0 = stablehlo.add %1, %2 loc("custom_call"(#loc5))') == set()


def test_random_changes(copy):
    """Descriptions and files that were changed in some place: a model that predicts, or one sentence."""
    before, rng = (copy / "export.json").read_text(), random.Random(0)
    values = [None, True, -1, 0, 2**63, 1e300, float("nan"), "", "../x", "user", [], {}, [[]], {"name": "user"}]
    outcomes = set()
    for _ in range(60):
        (copy / "export.json").write_text(before)
        craft(copy, lambda fields: changed(fields, rng, values))
        try:
            serving.load(copy)
            outcomes.add("model")
        except DataError:
            outcomes.add("refused")
    assert outcomes == {"model", "refused"}


def test_the_documentation_lists_what_is_allowed():
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    assert set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)) == serving.CUSTOM_CALLS
    assert f"tables of up\nto {COPIED_BYTES >> 20} MiB in all" in text


def test_programs_hold_no_paths_of_their_makers_machine(whole):
    for path in whole.glob("*.stablehlo"):
        assert b".py" not in path.read_bytes()
        assert str(Path(__file__).parents[2]).encode() not in path.read_bytes()


def test_an_honest_export_is_loaded(copy):
    craft(copy, lambda fields: None)
    assert serving.load(copy).predict(rows(3))["click"].shape == (3,)
