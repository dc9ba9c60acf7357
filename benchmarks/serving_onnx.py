"""The DeepFM of benchmarks/serving.py in ONNX Runtime, behind a plain server of aiohttp: a peer of ``sparrow serve``.

python -m benchmarks.serving_onnx EXPORT [--batch-ms 2]

Needs onnx and onnxruntime. Rows are read as a person would write it: ``json.loads``, one CRC-32 for each string (not
the hash of the export, so predictions of strings differ; `check` compares those of the same ids), one call of the
session for each request, or with --batch-ms for all requests that came within that time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

COUNTS, CATEGORIES = [f"count_{i}" for i in range(1, 14)], [f"category_{i}" for i in range(1, 27)]


def session_of(export: Path) -> Any:
    """Return a session with the tables and parameters of an export: ids (rows, 26) and numbers (rows, 13) to clicks."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load_file

    tables, parameters = load_file(export / "tables.safetensors"), load_file(export / "parameters.safetensors")
    nodes, arrays = [], {}

    def put(kind: str, inputs: list[str], **fields: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"t{len(nodes)}"], **fields))
        return f"t{len(nodes) - 1}"

    def held(name: str, array: Any) -> str:
        arrays[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    # Tables side by side, so that one Gather reads the rows of all features: quicker than 52 of them.
    starts = np.arange(26, dtype=np.int64) * len(tables[CATEGORIES[0]])
    ids = put("Add", ["ids", held("starts", starts)])
    vectors = put("Gather", [held("vectors", np.concatenate([tables[n] for n in CATEGORIES])), ids])
    wide = put("Gather", [held("wide", np.concatenate([tables[f"{n}_wide"] for n in CATEGORIES])[:, 0]), ids])
    axis = held("axis", np.array([1]))
    wide = put("ReduceSum", [wide, axis], keepdims=0)
    summed = put("ReduceSum", [vectors, axis], keepdims=0)
    squares = put("ReduceSum", [put("Mul", [vectors, vectors]), axis], keepdims=0)
    pairs = put("ReduceSum", [put("Sub", [put("Mul", [summed, summed]), squares]), axis], keepdims=0)
    pairs = put("Mul", [pairs, held("half", np.float32(0.5))])
    flat = put("Reshape", [vectors, held("flat", np.array([0, -1]))])
    deep = put("Concat", ["numbers", flat], axis=1)
    for layer in ("deep/layers/0", "deep/layers/1", "logits"):
        kernel, bias = (held(f"{layer}/{n}", parameters[f"params/{layer}/linear/{n}"]) for n in ("kernel", "bias"))
        deep = put("Gemm", [deep, kernel, bias])
        deep = put("Relu", [deep]) if layer != "logits" else put("Squeeze", [deep, axis])
    nodes.append(helper.make_node("Sigmoid", [put("Add", [put("Add", [wide, pairs]), deep])], ["click"]))
    inputs = [("ids", TensorProto.INT64, 26), ("numbers", TensorProto.FLOAT, 13)]
    graph = helper.make_graph(
        nodes,
        "deepfm",
        [helper.make_tensor_value_info(name, kind, ["rows", width]) for name, kind, width in inputs],
        [helper.make_tensor_value_info("click", TensorProto.FLOAT, ["rows"])],
        list(arrays.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(export: Path, session: Any) -> float:
    """Return the largest difference between the session's and the export's predictions of the same ids and numbers."""
    from benchmarks.serving import rows
    from sparrow import serving

    model = serving.load(export)
    table = rows(100)
    batch = model.function("predict").read(table)
    ids = np.stack([np.asarray(batch.ids[name]) for name in CATEGORIES], 1).astype(np.int64)
    numbers = np.concatenate([np.asarray(batch.numbers[name]).reshape(-1, 1) for name in COUNTS], 1)
    made = session.run(None, {"ids": ids, "numbers": numbers})[0]
    return float(np.abs(made - model.predict(table)["click"]).max())


def app_of(session: Any, buckets: int, batch_seconds: float) -> Any:
    """Return the application."""
    from aiohttp import web

    waiting: list[tuple[Any, Any, asyncio.Future[Any]]] = []

    def run(ids: Any, numbers: Any) -> Any:
        inputs = {"ids": np.asarray(ids, np.int64), "numbers": np.log1p(np.asarray(numbers, np.float32))}
        return session.run(None, inputs)[0]

    def flush() -> None:
        ids = [row for own, _, _ in waiting for row in own]
        numbers = [row for _, own, _ in waiting for row in own]
        made, start = run(ids, numbers), 0
        for own, _, future in waiting:
            future.set_result(made[start : start + len(own)])
            start += len(own)
        waiting.clear()

    async def predict(request: web.Request) -> web.Response:
        rows = json.loads(await request.read())["rows"]
        ids = [[zlib.crc32(row[name].encode()) % buckets for name in CATEGORIES] for row in rows]
        numbers = [[row[name] or 0.0 for name in COUNTS] for row in rows]
        if batch_seconds:
            future = asyncio.get_running_loop().create_future()
            waiting.append((ids, numbers, future))
            if len(waiting) == 1:
                asyncio.get_running_loop().call_later(batch_seconds, flush)
            made = await future
        else:
            made = run(ids, numbers)
        return web.json_response({"predictions": {"click": made.tolist()}})

    app = web.Application()
    app.router.add_post("/predict", predict)
    return app


async def serve(app: Any) -> None:
    """Serve until the process is ended."""
    from aiohttp import web

    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"serving by ONNX Runtime on http://127.0.0.1:{runner.addresses[0][1]} (ready)", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Check the session against the export, and serve it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("export", type=Path)
    parser.add_argument("--batch-ms", type=float, default=0.0)
    options = parser.parse_args()
    session, began = session_of(options.export), time.perf_counter()
    difference = check(options.export, session)
    print(f"largest difference to the export: {difference:.2e} ({time.perf_counter() - began:.1f} s)", file=sys.stderr)
    assert difference < 1e-5
    asyncio.run(serve(app_of(session, 100_000, options.batch_ms / 1000)))


if __name__ == "__main__":
    main()
