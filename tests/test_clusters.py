"""The scripts for schedulers: their fields agree with each other, and their commands are ones that Sparrow takes."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from sparrow.cli.parsing import parsed

CLUSTERS = Path(__file__).parent.parent / "examples" / "clusters"


def test_the_jobset_begins_again_together_and_ends_after_a_mistake():
    given = yaml.safe_load((CLUSTERS / "jobset.yaml").read_text())
    assert (given["apiVersion"], given["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    [workers] = given["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    [container] = job["template"]["spec"]["containers"]
    arguments = [argument.replace("$(INDEX)", "1") for argument in container["args"]]
    options = parsed(arguments)
    assert options.resume
    assert options.num_processes == job["parallelism"] == job["completions"]
    host, port = options.coordinator.split(":")
    name = given["metadata"]["name"]
    assert host == f"{name}-{workers['name']}-0-0.{given['spec']['network']['subdomain']}"
    assert int(port) in [entry["containerPort"] for entry in container["ports"]]
    gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
    assert f"train.mesh.data={gpus * job['parallelism']}" in options.overrides
    assert job["backoffLimit"] == 0  # a lost pod fails the job, and the JobSet begins all again
    [rule] = job["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2])
    assert rule["onExitCodes"]["containerName"] == container["name"]
    [final] = given["spec"]["failurePolicy"]["rules"]
    assert (final["action"], final["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"), [(0, 0, False), (2, 0, False), (3, 0, True), (137, 19, True), (137, 20, False)]
)
def test_the_script_of_slurm(tmp_path, code, restarts, requeued):
    """With a stand-in of srun, which ends with a code, and of scontrol."""
    for name, body in {
        "srun": f'echo "$@" > {tmp_path}/ran; exit {code}',
        "scontrol": f'echo "$@" > {tmp_path}/queued',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_NNODES": "2",
        "SLURM_JOB_ID": "7",
        "SLURM_RESTART_COUNT": str(restarts),
    }
    command = ["bash", CLUSTERS / "slurm.sh", "pipeline.yaml", "/shared/runs/first", "train.steps=5"]
    assert subprocess.run(command, env=environment, capture_output=True).returncode == code
    assert (tmp_path / "queued").exists() == requeued
    words = shlex.split((tmp_path / "ran").read_text())
    options = parsed(words[words.index("sparrow") + 1 :])
    assert options.resume
    gpus = int(re.search(r"--gpus-per-node=(\d+)", (CLUSTERS / "slurm.sh").read_text())[1])
    assert options.overrides == [f"train.mesh.data={2 * gpus}", "train.steps=5"]
    assert "--kill-on-bad-exit=1" in words
