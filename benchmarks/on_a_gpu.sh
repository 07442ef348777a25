#!/usr/bin/env bash
# All that a first lent GPU should answer within ten minutes, each question with its own time limit:
#
#   benchmarks/on_a_gpu.sh [FILE]            the answers are added to FILE, by default on_a_gpu.txt
#   SMALL=1 benchmarks/on_a_gpu.sh [FILE]    the same questions at small size, to try the script on CPUs
#
# A line is `DEVICE <tab> question <tab> answer`. PYTHON names an interpreter with torch, torchvision and
# coach's own requirements, by default .venv/bin/python. A question that fails or takes too long has a line that
# says so, and the next one follows. The runs lie in a folder of their own, which is removed at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
FILE=${1:-on_a_gpu.txt}
PYTHON=${PYTHON:-.venv/bin/python}
SMALL=${SMALL:-}
COACH_HOME=$(mktemp -d)
export COACH_HOME COACH_AS_ROOT=1 PYTHONUNBUFFERED=1
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$COACH_HOME"' EXIT
DEVICE=$("$PYTHON" -c 'import torch
name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPUs"
print(name, "torch", torch.__version__)') || exit 2

answer() { # QUESTION: each line of standard input is an answer
  while IFS= read -r line; do
    [[ -z $line ]] || printf '%s\t%s\t%s\n' "$DEVICE" "$1" "$line" | tee -a "$FILE"
  done
}

ask() { # QUESTION SECONDS COMMAND …
  local question=$1 limit=$2 status
  shift 2
  [[ -z $SMALL ]] || limit=$((4 * limit)) # two busy cores are no GPU
  timeout --kill-after=5 "$limit" "$@" 2> "$COACH_HOME/stderr" | answer "$question"
  status=${PIPESTATUS[0]}
  case $status in
    0) ;;
    124 | 137) echo "no answer within $limit s" | answer "$question" ;;
    *) echo "exit status $status: $(tail -n 1 "$COACH_HOME/stderr")" | answer "$question" ;;
  esac
}

ladder() { # NAME SECONDS [OPTIONS …]: its table as CSV; what is left of it is cancelled
  local name=$1 limit=$2
  shift 2
  ask "ladder $(basename "$name" .toml)" "$limit" \
    "$PYTHON" -m coach ladder "$name" --backend local --python "$PYTHON" --wait --format csv "$@"
  local run
  for run in "$COACH_HOME"/runs/*/; do
    [[ -e $run/exit.json ]] || "$PYTHON" -m coach cancel "$(basename "$run")" --yes > /dev/null 2>&1
  done
}

if [[ -n $SMALL ]]; then
  SETS=(--set width=8 --set max_steps=20 --set num_workers=0 --set world_size=2)
  MODEL=(--set model=simplecnn --set rung=fp32,amp)
  FAST='width = 8, batch_size = 64, max_steps = 20, compile = false'
  TABLES=(--tiny)
else
  SETS=() MODEL=() TABLES=()
  FAST='max_steps = 400, eval_every_epoch = false'
fi

# The sampler beside nvidia-smi, while the device is busy.
"$PYTHON" - << 'LOAD' &
import time

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
a = torch.randn(8192 if device == "cuda" else 128, 8192 if device == "cuda" else 128, device=device)
end_s = time.monotonic() + 20
while time.monotonic() < end_s:
    a = (a @ a).tanh()
    if device == "cuda":
        torch.cuda.synchronize()
LOAD
LOAD_PID=$!
sleep 8
ask "sampler: coach sample --once" 10 bash -c \
  '"$0" -m coach sample --once | grep -E "^.\"kind\":\"(gpu|gap)"' "$PYTHON"
ask "sampler: nvidia-smi" 10 nvidia-smi --format=csv \
  --query-gpu=utilization.gpu,memory.used,power.draw,clocks.sm,temperature.gpu,clocks_event_reasons.active
kill "$LOAD_PID" 2> /dev/null
wait "$LOAD_PID" 2> /dev/null

# samples/s of `fast`: a ladder of one rung.
FAST_LADDER=$COACH_HOME/fast.toml
cat > "$FAST_LADDER" << TOML
schema = 1
title = "fast"
on_gpus = true
[rungs.fast]
recipe = "fast"
samples_per_s = [100000, 1000000]
source = "calculated for an H200"
set = { $FAST }
TOML
ladder "$FAST_LADDER" 120
ask "optimizer: fused, foreach, one by one" 40 "$PYTHON" benchmarks/optimizer_paths.py ${SMALL:+--small}
ladder demos 150 "${SETS[@]}"
ask "MFU of gpt" 90 "$PYTHON" benchmarks/training.py --gpu --tables gpt "${TABLES[@]}"
ladder precision 150 "${SETS[@]}" "${MODEL[@]}"
