"""Train a config on a Ray cluster: one process of the run in each worker; Ray restarts all of them if one is lost.

    pip install "sparrow-rec[ray]"
    python examples/ray_train.py pipeline.yaml /shared/runs/first --workers 2 [--gpus 1] [FIELD=VALUE ...]

Ray starts the workers, watches them, and starts all of them again up to ``--restarts`` times, each time with --resume.
The config and the folder are on a file system that all machines see; train.mesh.data is the number of all devices.
"""

import argparse
import socket
import tempfile

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig, get_context
from ray.train.collective import broadcast_from_rank_zero
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train(arguments: list[str]) -> None:
    """Run in each worker, a process of its own."""
    from sparrow.cli import main

    context = get_context()
    with socket.socket() as free:  # the first worker chooses the address, and the others learn it
        free.bind(("", 0))
        address = broadcast_from_rank_zero(f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}")
    group = {"coordinator": address, "num-processes": context.get_world_size(), "process-id": context.get_world_rank()}
    code = main(["train", *arguments, "--resume", *(f"--{name}={value}" for name, value in group.items())])
    if code:
        raise RuntimeError(f"the run ended with code {code}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("model_dir")
    parser.add_argument("overrides", nargs="*", metavar="FIELD=VALUE")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each worker")
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--ray-dir", default=tempfile.gettempdir(), help="where Ray keeps its own notes of the run")
    options = parser.parse_args()
    resources = {"CPU": 1, **({"GPU": options.gpus} if options.gpus else {})}
    trainer = DataParallelTrainer(
        train,
        train_loop_config=[options.config, "--model-dir", options.model_dir, *options.overrides],
        scaling_config=ScalingConfig(
            num_workers=options.workers, use_gpu=options.gpus > 0, resources_per_worker=resources
        ),
        run_config=RunConfig(storage_path=options.ray_dir, failure_config=FailureConfig(max_failures=options.restarts)),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
