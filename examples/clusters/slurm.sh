#!/bin/bash
# sbatch examples/clusters/slurm.sh pipeline.yaml /shared/runs/first [FIELD=VALUE ...]
#
# One process for each task, found by JAX; train.mesh.data is the number of all GPUs. If a task is lost, all of them end, and
# the job returns to the queue, up to 20 times, to continue from the newest checkpoint. After a mistake (exit code 2) it is
# not queued again. Ten minutes before the time limit SLURM sends SIGTERM: the run saves, and ends with 143.
#SBATCH --job-name=sparrow
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
config=$1 folder=$2
shift 2

srun --kill-on-bad-exit=1 sparrow train "$config" --model-dir "$folder" --resume "train.mesh.data=$((SLURM_NNODES * 8))" "$@"
code=$?
if ((code != 0 && code != 2 && ${SLURM_RESTART_COUNT:-0} < 20)); then
  echo "ended with code $code: back to the queue, time $((${SLURM_RESTART_COUNT:-0} + 1)) of 20"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
