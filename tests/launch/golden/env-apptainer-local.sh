#!/bin/bash
# Recipe ddp, run 20261121-142233-ddp-4f2a, written by coach 0.1.0.
# coach's local supervisor runs this script and enforces the limits of time and memory.
set -euo pipefail
umask 077

# The run directory, and trainers and node code as they were at launch: both on the shared file system.
RUN_DIR=/runs/20261121-142233-ddp-4f2a
CODE=/runs/.code/0123456789abcdef

mkdir -p -m 700 "$RUN_DIR"

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
    "cpus_per_task": 2,
    "time_limit_s": 1800,
    "mem": null,
    "partition": null,
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
    "backend": "auto"
  },
  "backend": "local",
  "cluster": null,
  "job_id": "20261121-142233-ddp-4f2a",
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
    "image": "/images/torch.sif",
    "binds": [],
    "python": "/opt/conda/bin/python",
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

IMAGE=/images/torch.sif
# Singularity is Apptainer under its older name.
CONTAINER=apptainer
if ! type -P apptainer > /dev/null; then CONTAINER=singularity; fi
if ! type -P "$CONTAINER" > /dev/null; then stop module_not_found "no apptainer on the PATH"; fi
if [[ ! -e $IMAGE ]]; then stop file_not_found "$IMAGE: no such image"; fi
# Packages that Python would find through these variables lie outside the image.
unset PYTHONHOME PYTHONPATH
export PYTHONNOUSERSITE=1
# The interpreter inside the image.
PYTHON=/opt/conda/bin/python

# Output appears at once: Python does not buffer it.
export PYTHONUNBUFFERED=1
# Compute threads of each rank: more than its share of the CPUs makes every rank slower.
export OMP_NUM_THREADS=1
# torchrun hands the checkpoint signal on to the ranks, and gives them time to write (torch 2.9 and newer).
export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 PET_SHUTDOWN_TIMEOUT=100
# No GPU was requested: hide the GPUs that the site leaves visible.
export CUDA_VISIBLE_DEVICES=""

# The container sees the image, runs, code, data and cache, and the requested binds. The cache may be new.
mkdir -p '/home/a user/.cache/coach'
INSIDE=("$CONTAINER" exec
  --bind /runs
  --bind '/home/a user/.cache/coach'
  --bind '/sw/data sets'
  "$IMAGE")
# Variables of this script win over the image's own.
for NAME in PYTHONNOUSERSITE PYTHONUNBUFFERED OMP_NUM_THREADS PET_SIGNALS_TO_HANDLE PET_SHUTDOWN_TIMEOUT CUDA_VISIBLE_DEVICES; do
  export "${CONTAINER^^}ENV_$NAME=${!NAME-}"
done

# Signals come to this shell: USR1 when the time limit is near, TERM when the job is ended from outside.
TRAINING='' SIGNALLED=0 TERMINATED=0 INTERRUPTED=0
trap 'SIGNALLED=1 INTERRUPTED=1; kill -USR1 "$TRAINING" || true' USR1
trap 'TERMINATED=1 INTERRUPTED=1; kill -TERM "$TRAINING" || true' TERM

# The training: coach's node code starts it with the sampler beside it, torchrun starts the ranks.
"${INSIDE[@]}" "$PYTHON" -E "$CODE/coach/node" run --run-dir "$RUN_DIR" -- \
  "$PYTHON" -m torch.distributed.run --nnodes=1 --nproc-per-node=2 \
  --standalone \
  "$CODE/trainers/"ddp.py --run_dir="$RUN_DIR" \
  --cache_dir='/home/a user/.cache/coach' \
  --data_dir='/sw/data sets' \
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

# A single write comes first: it keeps the exit status even if the supervisor is killed now.
echo "$STATUS" > "$RUN_DIR/exit_status" || true
# The supervisor records how the run ended. Without one (started by hand, or dead), the script does.
if ! kill -0 "${COACH_SUPERVISOR_PID:-none}" 2> /dev/null; then
  STATE=COMPLETED
  if ((STATUS)); then STATE=FAILED; fi
  "${INSIDE[@]}" "$PYTHON" -E "$CODE/coach/node" ended --run-dir "$RUN_DIR" --exit-code "$STATUS" --state "$STATE" || true
  # Print why the job ended, at the end of the log. A job that Slurm is ending has no time for it.
  if [[ $OWN_PYTHON ]] && ((TERMINATED == 0)); then
    LD_LIBRARY_PATH=$OWN_LIBRARIES "$OWN_PYTHON" -E -P "$CODE/coach/node" judge --run-dir "$RUN_DIR" >&2 2> /dev/null || true
  fi
fi
exit "$STATUS"
