"""Every config of a folder of TorchEasyRec's: import, sample, train 20 steps, evaluate, predict, export, serve.

    python -m benchmarks.torcheasyrec_configs FOLDER [--only PART] [--out FILE]

The configs are TorchEasyRec's own (a checkout of its repository); none is kept here. Their numbers are as they are, but
for sizes: tables have at most `ROWS` rows, batches at most `BATCH` rows, histories at most `LENGTH` elements, and the
files are samples. A loss falls where the mean of the last third of the steps is below that of the first third; without
the hint of rocket_launching, which grows while its booster learns faster than the other network. Each row is a line of
JSON: the stage reached, counts of the report's lines, losses, seconds of processor time. Each config has a process of
its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sparrow import config, exports, runs, samples, serving
from sparrow.config.torcheasyrec import Edit, Outcome, path_fields, read_config, text

ROWS, BATCH, LENGTH, STEPS, LONGEST = 20_000, 64, 256, 20, 900
_SIZES = re.compile(
    r"\b(num_buckets|hash_bucket_size|zch_size|max_capacity|init_capacity_per_rank|num_sample|num_hard_sample|"
    r"num_eval_sample|sequence_length|max_seq_len)\s*:\s*(\d+)"
)


def smaller(source: str) -> str:
    """Return the config with smaller tables, shorter histories and fewer negatives."""

    def cut(match: re.Match[str]) -> str:
        most = LENGTH if "seq" in match[1] else BATCH if "sample" in match[1] else ROWS
        return f"{match[1]}: {min(int(match[2]), most)}"

    return _SIZES.sub(cut, source)


def edits(source: str) -> list[Edit]:
    """Return the edits for a short run."""
    made = [Edit(field, "rows.parquet") for field in path_fields(source)]
    epochs = re.search(r"^\s*num_epochs\s*:\s*\d+", source, re.MULTILINE)
    made += [Edit("train_config.num_epochs", "0")] if epochs else []
    made += [Edit("train_config.num_steps", str(STEPS)), Edit("train_config.log_step_count_steps", "1")]
    size = re.search(r"\bbatch_size\s*:\s*(\d+)", source)
    if re.search(r"wukong\s*\{\s*dense_mlp\s*\{[^}]*128\s*\}", source):  # TorchEasyRec refuses it, too: tables have 16
        made.append(Edit("model_config.wukong.dense_mlp.hidden_units", "[512, 256, 16]"))
    return [*made, Edit("data_config.batch_size", str(min(int(size[1]) if size else 1024, BATCH)))]


def silent(source: str, outcomes: list[Outcome]) -> list[tuple[str, ...]]:
    """Return the fields of a config without a line in the report, or with one that says nothing."""
    told = {outcome.path for outcome in outcomes if "sets nothing" not in outcome.text}

    def fields(message: text.Message, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for field in message.fields:
            here = (*path, field.name)
            for value in field.values:
                inner = list(fields(value, here)) if isinstance(value, text.Message) else []
                yield from inner or [here]

    return sorted({path for path in fields(text.parse(source), ()) if path not in told})


def judged(path: Path, folder: Path) -> dict[str, Any]:
    """Return the row of one config."""
    began = time.process_time()
    source = path.read_text(encoding="utf-8")
    plain = read_config(source, path.name, [Edit(field, "rows.parquet") for field in path_fields(source)])
    if plain.error is not None:
        return {"stage": "import", "error": str(plain.error)}
    row: dict[str, Any] = {
        "fields": len(plain.outcomes),
        "no effect": sum(outcome.is_note for outcome in plain.outcomes),
        "differ": sum("; differs: " in outcome.text for outcome in plain.outcomes),
        "silent": len(silent(source, plain.outcomes)),
    }
    stage = "sample"
    try:
        source = smaller(source)
        made = config.import_config(source, path.name, edits(source))
        loaded = samples.write(made, folder / "data", rows=BATCH * STEPS)
        stage = "train"
        runs.train(loaded, folder / "run")
        lines = map(json.loads, (folder / "run" / "metrics.jsonl").open())
        losses = [line["loss"] - line.get("loss/hint", 0) for line in lines if line["kind"] == "train"]
        third = max(len(losses) // 3, 1)
        row |= {"first": float(np.mean(losses[:third])), "last": float(np.mean(losses[-third:]))}
        row |= {"steps": len(losses), "falls": bool(np.isfinite(losses).all() and row["last"] < row["first"])}
        stage = "eval"
        program, state = runs.load(folder / "run")
        row["eval"] = float(runs.Evaluator(program)(state)["loss"])
        stage = "predict"
        files = str(folder / "data" / "evaluate.parquet")
        count = runs.predict(program, state, files, folder / "predicted.parquet")
        stage = "export"
        exports.export(program, state, folder / "exported")
        stage = "serve"
        row["served"] = serving.predict(serving.load(folder / "exported"), files, folder / "served.parquet") == count
        stage = "all"
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    return {"stage": stage, **row, "seconds": round(time.process_time() - began, 1)}


def main() -> None:
    """Write a row of JSON for each config, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of the names of the configs to run")
    parser.add_argument(
        "--out", type=Path, default=Path("torcheasyrec_configs.jsonl"), help="the table; rows in it stay"
    )
    options = parser.parse_args()
    if options.folder.is_file():
        with tempfile.TemporaryDirectory() as folder:
            print("\n" + json.dumps(judged(options.folder, Path(folder))))
        return
    rows = [json.loads(line) for line in options.out.open()] if options.out.exists() else []
    paths = [path for path in sorted(options.folder.rglob("*.config")) if options.only in str(path)]
    for path in paths:
        name = str(path.relative_to(options.folder))
        if name in [row["config"] for row in rows]:
            continue
        try:
            one = [sys.executable, "-m", "benchmarks.torcheasyrec_configs", str(path)]
            ran = subprocess.run(one, capture_output=True, text=True, timeout=LONGEST, check=False)
            row = (
                json.loads(ran.stdout.strip().splitlines()[-1])
                if ran.returncode == 0
                else {"stage": f"rc {ran.returncode}"}
            )
        except subprocess.TimeoutExpired:
            row = {"stage": f"{LONGEST} s"}
        rows.append({"config": name, **row})
        with options.out.open("a", encoding="utf-8") as out:
            print(json.dumps(rows[-1]), file=out)
    print(dict(Counter(f"{row['stage']}{'' if row.get('falls') else ', does not fall'}" for row in rows)))


if __name__ == "__main__":
    main()
