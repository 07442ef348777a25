#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1            # one torchrun on each node; it starts the ranks
#SBATCH --cpus-per-task=6              # per node: ranks × (1 + workers)
#SBATCH --time=00:01:00
#SBATCH --partition=cpu
#SBATCH --output=/runs/.logs/20261121-142233-ddp-4f2a.out # in a folder that every node sees already
#SBATCH --error=/runs/.logs/20261121-142233-ddp-4f2a.err
#SBATCH --open-mode=append             # a requeued run appends to the same logs
# Recipe ddp, run 20261121-142233-ddp-4f2a, written by coach 0.1.0.
set -euo pipefail
umask 077

# The run directory, and trainers and node code as they were at launch: both on the shared file system.
RUN_DIR=/runs/20261121-142233-ddp-4f2a
CODE=/runs/.code/0123456789abcdef

# A node may see the run directory late: looking into its parent makes it ask the file server again.
for _ in {1..20}; do
  if [[ -d $RUN_DIR ]]; then break; fi
  ls -- "${RUN_DIR%/*}" > /dev/null 2>&1 || true
  sleep 0.5
done
mkdir -p -m 700 "$RUN_DIR"
ln -s ../.logs/20261121-142233-ddp-4f2a.out "$RUN_DIR/stdout.log" 2> /dev/null || true
ln -s ../.logs/20261121-142233-ddp-4f2a.err "$RUN_DIR/stderr.log" 2> /dev/null || true

# The record of this run, unless coach has written it already.
if [[ ! -e $RUN_DIR/run.json ]]; then
  cat > "$RUN_DIR/.run.json.new" <<'COACH_RUN_JSON'
{
  "schema": 1,
  "run_id": "20261121-142233-ddp-4f2a",
  "recipe": "ddp",
  "trainer": "ddp.py",
  "parameters": {
    "lr": 0.05,
    "batch_size": 64,
    "num_workers": 2,
    "optimizer": "sgd",
    "log_metrics": true
  },
  "parameter_info": {
    "lr": {
      "default": 0.05,
      "usual": [
        0.0001,
        1.0
      ]
    },
    "batch_size": {
      "default": 64,
      "usual": [
        8.0,
        4096.0
      ]
    },
    "num_workers": {
      "default": 2,
      "usual": null
    },
    "optimizer": {
      "default": "sgd",
      "usual": null
    },
    "log_metrics": {
      "default": true,
      "usual": null
    }
  },
  "resources": {
    "num_nodes": 1,
    "gpus_per_node": 0,
    "nproc_per_node": 2,
    "cpus_per_task": 6,
    "time_limit_s": 60,
    "mem": null,
    "partition": "cpu",
    "account": null,
    "qos": null,
    "reservation": null,
    "constraint": null,
    "gpu_type": null,
    "gpu_request": "gpus-per-node",
    "cpus_per_gpu": null,
    "exclude": null,
    "signal": null
  },
  "launch": {
    "recipe": "ddp",
    "backend": "auto",
    "time_limit_s": 60,
    "partition": "cpu"
  },
  "backend": "slurm",
  "cluster": null,
  "job_id": null,
  "user": "anna",
  "created_time_s": 1795271000.0,
  "submitted_time_s": null,
  "started_time_s": null,
  "ended_time_s": null,
  "state": null,
  "environment": {
    "kind": "none",
    "name": null,
    "path": null,
    "modules": [],
    "image": null,
    "binds": [],
    "python": "/env/bin/python",
    "setup": [],
    "torch": null
  },
  "requires": {},
  "versions": {
    "coach": "0.1.0",
    "python": null,
    "torch": null
  },
  "device": {
    "type": null,
    "name": null
  },
  "dataset": {
    "name": null,
    "path": null,
    "is_synthetic": null
  },
  "git": {
    "commit": "c0ffee",
    "is_dirty": false
  },
  "parent_run_id": null,
  "fix": null,
  "resume_from": null,
  "uneven_by_design": false,
  "remedies": {}
}
COACH_RUN_JSON
  mv "$RUN_DIR/.run.json.new" "$RUN_DIR/run.json"
fi
if [[ ! -e $RUN_DIR/job.sh && -f $0 ]]; then cp -- "$0" "$RUN_DIR/job.sh"; fi

# A requeued job starts here again: remove the record of its earlier end.
rm -f "$RUN_DIR/exit.json" "$RUN_DIR/exit_status" "$RUN_DIR/verdict.json"

# A requeued job appends to its logs: lines above this one belong to an earlier attempt.
if ((${SLURM_RESTART_COUNT:-0})); then
  ATTEMPT="coach: this is attempt $((SLURM_RESTART_COUNT + 1)) of job $SLURM_JOB_ID"
  echo "$ATTEMPT"; echo "$ATTEMPT" >&2
fi

# coach's own interpreter prints at the end why the job ended, if this node can run it.
OWN_PYTHON=python3 OWN_LIBRARIES=${LD_LIBRARY_PATH-}
if ! "$OWN_PYTHON" -E -P -c 'import coach.cli' > /dev/null 2>&1; then OWN_PYTHON=''; fi

# Something that the training needs is missing: record it here and in the run directory, and end.
stop() {
  local cause=$1 text=${2//[[:cntrl:]\"\\]/ } node=${SLURMD_NODENAME:-$HOSTNAME}
  echo "coach: $cause: $text on $node" >&2
  {
    echo "{\"schema\": 1, \"state\": \"FAILED\", \"exit_code\": 78, \"ended_time_s\": $(date +%s),"
    echo " \"refused\": {\"cause\": \"$cause\", \"text\": \"$text\", \"node\": \"$node\"}}"
  } > "$RUN_DIR/exit.json" || true
  exit 78
}

# The interpreter of the training environment; it need not be the one that coach runs under.
PYTHON=/env/bin/python
if ! command -v "$PYTHON" > /dev/null; then stop file_not_found "$PYTHON: no such interpreter"; fi

# Output appears at once: Python does not buffer it.
export PYTHONUNBUFFERED=1
# srun does not inherit --cpus-per-task in every version of Slurm.
export SRUN_CPUS_PER_TASK=6
# Compute threads of each rank: more than its share of the CPUs makes every rank slower.
export OMP_NUM_THREADS=3
# torchrun hands the checkpoint signal on to the ranks, and gives them time to write (torch 2.9 and newer).
export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 PET_SHUTDOWN_TIMEOUT=100
# No GPU was requested: hide the GPUs that the site leaves visible.
export CUDA_VISIBLE_DEVICES=""

# Signals come to this shell: USR1 when the time limit is near, TERM when the job is ended from outside.
TRAINING='' SIGNALLED=0 TERMINATED=0 INTERRUPTED=0
trap 'TERMINATED=1 INTERRUPTED=1' TERM

# The training: coach's node code starts it with the sampler beside it, torchrun starts the ranks.
# When one node has ended, the others have 60 s to end as well and to record how.
srun --kill-on-bad-exit=0 --wait=60 \
  "$PYTHON" -E "$CODE/coach/node" run --run-dir "$RUN_DIR" -- \
  "$PYTHON" -m torch.distributed.run --nnodes=1 --nproc-per-node=2 \
  --standalone \
  "$CODE/trainers/"ddp.py --run_dir="$RUN_DIR" \
  --cache_dir='/home/a user/.cache/coach' \
  --gpus_per_node=0 \
  --lr=0.05 \
  --batch_size=64 \
  --num_workers=2 \
  --optimizer=sgd \
  --log_metrics=true &
TRAINING=$!

# A signal ends `wait`, not the training: wait again.
STATUS=0 INTERRUPTED=1
while ((INTERRUPTED)); do
  STATUS=0 INTERRUPTED=0
  wait "$TRAINING" || STATUS=$?
done

# Record how the job ended, for readers of the run directory after Slurm has forgotten the job.
STATE=COMPLETED
if ((STATUS)); then STATE=FAILED; fi
if ((TERMINATED)); then STATE=CANCELLED; if ((SECONDS >= 30)) || tail -c 4096 "$RUN_DIR/stderr.log" 2> /dev/null | grep -a "DUE TO TIME LIMIT" > /dev/null; then STATE=TIMEOUT; fi; fi
"$PYTHON" -E "$CODE/coach/node" ended --run-dir "$RUN_DIR" --exit-code "$STATUS" --state "$STATE" || true
# Print why the job ended, at the end of the log. A job that Slurm is ending has no time for it.
if [[ $OWN_PYTHON ]] && ((TERMINATED == 0)); then
  LD_LIBRARY_PATH=$OWN_LIBRARIES "$OWN_PYTHON" -E -P "$CODE/coach/node" judge --run-dir "$RUN_DIR" >&2 2> /dev/null || true
fi
exit "$STATUS"
