#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1            # one torchrun on each node; it starts the ranks
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=6              # per node: ranks × (1 + workers)
#SBATCH --time=00:30:00
#SBATCH --partition=gpu
#SBATCH --output=/runs/.logs/20261121-142233-ddp-4f2a.out # in a folder that every node sees already
#SBATCH --error=/runs/.logs/20261121-142233-ddp-4f2a.err
#SBATCH --open-mode=append             # a requeued run appends to the same logs
#SBATCH --signal=B:USR1@120            # this many seconds before the limit: time for a checkpoint
#SBATCH --requeue                      # and then requeue, to resume from it
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
    "num_nodes": 2,
    "gpus_per_node": 2,
    "nproc_per_node": 2,
    "cpus_per_task": 6,
    "time_limit_s": 1800,
    "mem": null,
    "partition": "gpu",
    "account": null,
    "qos": null,
    "reservation": null,
    "constraint": null,
    "gpu_type": null,
    "gpu_request": "gpus-per-node",
    "cpus_per_gpu": null,
    "exclude": null,
    "signal": "USR1@120"
  },
  "launch": {
    "recipe": "ddp",
    "backend": "auto",
    "num_nodes": 2,
    "partition": "gpu"
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
    "kind": "apptainer",
    "name": null,
    "path": null,
    "modules": [],
    "image": "/sw/images/py torch.sif",
    "binds": [
      "/scratch",
      "/sw/data:/data:ro"
    ],
    "python": "python3",
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

IMAGE='/sw/images/py torch.sif'
# Singularity is Apptainer under its older name.
CONTAINER=apptainer
if ! type -P apptainer > /dev/null; then CONTAINER=singularity; fi
if ! type -P "$CONTAINER" > /dev/null; then stop module_not_found "no apptainer on the PATH"; fi
if [[ ! -e $IMAGE ]]; then stop file_not_found "$IMAGE: no such image"; fi
# Packages that Python would find through these variables lie outside the image.
unset PYTHONHOME PYTHONPATH
export PYTHONNOUSERSITE=1
# The interpreter inside the image.
PYTHON=python3

# Output appears at once: Python does not buffer it.
export PYTHONUNBUFFERED=1
# srun does not inherit --cpus-per-task in every version of Slurm.
export SRUN_CPUS_PER_TASK=6
# Compute threads of each rank: more than its share of the CPUs makes every rank slower.
export OMP_NUM_THREADS=1
# torchrun hands the checkpoint signal on to the ranks, and gives them time to write (torch 2.9 and newer).
export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 PET_SHUTDOWN_TIMEOUT=100
# NCCL: a lost peer ends the job instead of hanging it, and a hang leaves its last collectives behind.
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1 TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_BUFFER_SIZE=2000
# The environment's own variables.
export NCCL_DEBUG=WARN
export GREETING='it'"'"'s $HOME'

# The nodes meet on the first node. The job's number gives the first port to try; the
# first free port is taken, because another job's number may give the same one.
HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${HOSTS%%$'\n'*}
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
while grep -qs ":$(printf %04X "$MASTER_PORT") " /proc/net/tcp /proc/net/tcp6; do
  MASTER_PORT=$((20000 + (MASTER_PORT + 1) % 10000))
done

# The container sees the image, runs, code, data and cache, and the requested binds. The cache may be new.
mkdir -p '/home/a user/.cache/coach'
INSIDE=("$CONTAINER" exec --nv
  --bind /runs
  --bind '/home/a user/.cache/coach'
  --bind '/sw/data sets'
  --bind /scratch
  --bind /sw/data:/data:ro
  "$IMAGE")
# Variables of this script win over the image's own.
for NAME in PYTHONNOUSERSITE PYTHONUNBUFFERED SRUN_CPUS_PER_TASK OMP_NUM_THREADS PET_SIGNALS_TO_HANDLE PET_SHUTDOWN_TIMEOUT TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_DUMP_ON_TIMEOUT TORCH_FR_BUFFER_SIZE NCCL_DEBUG GREETING MASTER_ADDR MASTER_PORT; do
  export "${CONTAINER^^}ENV_$NAME=${!NAME-}"
done

# The newest checkpoint, a file or a folder; one is complete as soon as it is visible, and the names sort by step.
newest_checkpoint() {
  local newest='' file
  for file in "$RUN_DIR"/checkpoints/step-*; do
    if [[ -e $file ]]; then newest=$file; fi
  done
  echo "$newest"
}
FIRST_CHECKPOINT=$(newest_checkpoint)

# Signals come to this shell: USR1 when the time limit is near, TERM when the job is ended from outside.
TRAINING='' SIGNALLED=0 TERMINATED=0 INTERRUPTED=0
trap 'SIGNALLED=1 INTERRUPTED=1; scancel --signal=USR1 "$SLURM_JOB_ID.0" || true' USR1
trap 'TERMINATED=1 INTERRUPTED=1' TERM

# The training: coach's node code starts it with the sampler beside it, torchrun starts the ranks.
# When one node has ended, the others have 60 s to end as well and to record how.
srun --kill-on-bad-exit=0 --wait=60 \
  "${INSIDE[@]}" "$PYTHON" -E "$CODE/coach/node" run --run-dir "$RUN_DIR" -- \
  "$PYTHON" -m torch.distributed.run --nnodes=2 --nproc-per-node=2 \
  --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \
  --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" \
  "$CODE/trainers/"ddp.py --run_dir="$RUN_DIR" \
  --cache_dir='/home/a user/.cache/coach' \
  --data_dir='/sw/data sets' \
  --gpus_per_node=2 \
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

# Signalled before the limit, with a newer checkpoint than at this start: resume from it.
if ((SIGNALLED && STATUS)) && [[ $(newest_checkpoint) != "$FIRST_CHECKPOINT" ]]; then
  echo "coach: the time limit is near; requeuing to go on from $(newest_checkpoint)"
  if scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"; then exit "$STATUS"; fi
  echo "coach: Slurm refused the requeue: the run ends here, its checkpoint stays"
fi

# Record how the job ended, for readers of the run directory after Slurm has forgotten the job.
STATE=COMPLETED
if ((STATUS)); then STATE=FAILED; fi
if ((TERMINATED)); then STATE=CANCELLED; if ((SECONDS >= 1770)) || tail -c 4096 "$RUN_DIR/stderr.log" 2> /dev/null | grep -a "DUE TO TIME LIMIT" > /dev/null; then STATE=TIMEOUT; fi; fi
if ((SIGNALLED && STATUS && !TERMINATED)); then STATE=TIMEOUT; fi
"${INSIDE[@]}" "$PYTHON" -E "$CODE/coach/node" ended --run-dir "$RUN_DIR" --exit-code "$STATUS" --state "$STATE" || true
# Print why the job ended, at the end of the log. A job that Slurm is ending has no time for it.
if [[ $OWN_PYTHON ]] && ((TERMINATED == 0)); then
  LD_LIBRARY_PATH=$OWN_LIBRARIES "$OWN_PYTHON" -E -P "$CODE/coach/node" judge --run-dir "$RUN_DIR" >&2 2> /dev/null || true
fi
exit "$STATUS"
