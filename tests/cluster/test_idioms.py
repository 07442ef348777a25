"""What a batch file finds out about itself is the same by `coach launch FILE` as by `sbatch FILE`.

Each file of the table is submitted both ways, all side by side on the real Slurm, and each line of output is
compared. Only what the docs name may differ.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from coach.runs import SAID_OF_END
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster-trainings")]

COMMAND = "awk -F= '/Command=/{print $2}'"
FINDS_ITS_FOLDER = f"dirname $(scontrol show job $SLURM_JOB_ID | {COMMAND} | cut -d' ' -f1)"
SHELL = f"""#!/bin/bash
#SBATCH -o logs/%x-%j.out -e logs/%x-%j.err --mem=100M --comment="two words"
set -u
print() {{ local name=$1; shift; echo "$name: $("$@" 2>&1 | tr '\\n' '|')"; }}
me=$SLURM_JOB_ID
print folder {FINDS_ITS_FOLDER}
print argument eval "scontrol show jobid $me | grep Command"
print detailed eval "scontrol -d show job=$me | grep -oP 'Command=\\K\\S+'"
print "one line" eval "scontrol show job $me -o | sed 's/.*Command=\\([^ ]*\\) .*/\\1/'"
print places eval "scontrol show job $me | grep -E 'WorkDir|StdErr|StdOut|JobName|Requeue='"
print squeue squeue -h -j $me -o '%o|%Z|%j|%k|%m'
print columns eval "squeue -h -j $me -O command:300,workdir:100 | tr -s ' '"
print others squeue -h -j $me,99999 -o '%i %o'
print json eval "squeue --json | python3 -c 'import json, sys
print([(job[\\"command\\"], job[\\"current_working_directory\\"])
       for job in json.load(sys.stdin)[\\"jobs\\"] if job[\\"job_id\\"] == $me])'"
print python python3 -c "import os; print(os.popen('scontrol show job $me | grep Command').read())"
print timeout eval "timeout 9 scontrol show job $me | grep Command"
print "other shell" sh -c "scontrol show job $me | grep Command"
print xargs eval "echo $me | xargs scontrol show job | grep Command"
print text scontrol write batch_script $me -
print status eval "scontrol show job 99999; echo \\$?"
print "in a step" srun -n1 bash -c "scontrol show job $me | grep Command"
print hosts scontrol show hostnames "$SLURM_JOB_NODELIST"
source "$({FINDS_ITS_FOLDER})/env.sh"; print sourced echo "$FROM_FILE"
source "$(dirname "$0")/env.sh"; print "beside \\$0" echo $?
cd jobs; cd "$SLURM_SUBMIT_DIR"; print "submit dir" pwd
print arguments echo "$#" "$1" "${{@:2}}"
print unset eval 'echo ${{MISSING-unset}}'
print flags echo "$-"
print "own name" echo "$SLURM_JOB_NAME"
print mask umask
print limits ulimit -a
print nice nice
print stdin eval 'readlink /proc/self/fd/0; cat'
print outputs readlink /proc/$$/fd/1 /proc/$$/fd/2
print terminal eval '[ -t 1 ] || echo no terminal'
print signals grep -E 'Sig(Blk|Ign)' /proc/$$/status
print "in steps" srun -n1 bash -c 'pwd; umask; echo "$SLURM_JOB_NAME $MINE"'
print slurm eval "env | grep -E '^(SLURM|SBATCH)' | grep -vE 'TASK_PID|LAUNCHER_PORT|ADDR' | sort"
print mine echo "$MINE"
print "own functions" bash -c 'type -t print || echo none'
echo "to the error file" >&2
exit 3
"""
LOGIN = f"""#!/bin/bash -l
#SBATCH -o logs/%x-%j.out
shopt login_shell
PATH=/usr/bin:/bin  # as a module may set it
{FINDS_ITS_FOLDER}
"""
PLAIN_SH = f"""#!/bin/sh
#SBATCH -o logs/%x-%j.out
DIR=$({FINDS_ITS_FOLDER})
. "$DIR/env.sh"; echo "$DIR $FROM_FILE"
"""
PYTHON = """#!/usr/bin/env python3
#SBATCH -o logs/%x-%j.out
import os, subprocess, sys
told = subprocess.check_output(["scontrol", "show", "job", os.environ["SLURM_JOB_ID"]], text=True)
print([line for line in told.split("\\n") if "Command" in line], sys.argv[1:], os.getcwd())
print(sys.path[0] == os.path.dirname(__file__), sys.stdin.read())
"""
CSH = f"""#!/bin/csh -f
#SBATCH -o logs/%x-%j.out
set file = `scontrol show job $SLURM_JOB_ID | {COMMAND}`
echo $file:h $cwd
"""
NO_EXPORT = f"""#!/bin/bash
#SBATCH -o logs/%x-%j.out --export=NONE
echo "${{MINE-unset}} $SLURM_EXPORT_ENV $HOME"; {FINDS_ITS_FOLDER}
srun -n1 /bin/bash -c 'echo "${{MINE-unset}} ${{COACH_RUN_DIR-unset}}"'
"""
SOME_EXPORTED = f"""#!/bin/bash
#SBATCH -o logs/%x-%j.out --export=MINE,MORE=2,PATH
echo "$MINE $MORE $SLURM_EXPORT_ENV ${{HOME-unset}} ${{LANG-unset}}"; {FINDS_ITS_FOLDER}
"""
ELSEWHERE = f"""#!/bin/bash
#SBATCH --chdir=work
#SBATCH -o relative-%j.out -J "a name"
echo "$PWD $SLURM_SUBMIT_DIR $SLURM_JOB_NAME"; {FINDS_ITS_FOLDER}
scontrol show job $SLURM_JOB_ID | grep -E "WorkDir|Std|JobName"
"""
ARRAY = f"""#!/bin/bash
#SBATCH --array=1-2 -o logs/%x-%A_%a.out --open-mode=append
echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX"
{FINDS_ITS_FOLDER}
scontrol show job ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID | grep -E "Command|StdOut"
squeue -h -j ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID -o %o
"""
WARNED = """#!/bin/bash
#SBATCH -o logs/%x-%j.out -t 1 --signal=B:USR1@60
trap 'echo warned; kill $child; exit 5' USR1
sleep 300 & child=$!
wait
"""
KILLED = "#!/bin/bash\n#SBATCH -o logs/%x-%j.out\ntrap 'echo ended; exit 4' TERM\nkill 0\nsleep 300 & wait\n"
CRASHED = "#!/bin/bash\n#SBATCH -o logs/%x-%j.out\necho here\nkill -SEGV $$\n"
AGAIN = f"""#!/bin/bash
#SBATCH -o logs/%x-%j.out
{FINDS_ITS_FOLDER}
FILE=$(scontrol show job $SLURM_JOB_ID | {COMMAND})
[ -n "${{SECOND-}}" ] || SECOND=1 sbatch --wait -J again.second "$FILE"
"""
FILES = {
    "shell.sbatch": SHELL,
    "login.sbatch": LOGIN,
    "sh.sbatch": PLAIN_SH,
    "python.sbatch": PYTHON,
    "csh.sbatch": CSH,
    "none.sbatch": NO_EXPORT,
    "some.sbatch": SOME_EXPORTED,
    "elsewhere.sbatch": ELSEWHERE,
    "array.sbatch": ARRAY,
    "warned.sbatch": WARNED,
    "killed.sbatch": KILLED,
    "crashed.sbatch": CRASHED,
    "again.sbatch": AGAIN,
}
ARGUMENTS = {"shell.sbatch": ("a b", "c&d\\e#", 'f"'), "python.sbatch": ("--lr", "0.1")}
SETTLED = ("COMPLETED", "FAILED", "TIMEOUT")
NOT_ITS_OWN = (SAID_OF_END, "slurmstepd-")
"""How the lines begin that the job did not print."""
OWN_FOLDER = re.compile(r"[^ :(]*/(?:job\d+|2\d{7}-\d{6}-[\w.-]+)/(?:slurm_)?")
"""The one path that differs: the file that runs is Slurm's copy, or the copy in the run's directory."""


def test_a_batch_file_is_told_the_same_by_coach_as_by_sbatch(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    (home / "jobs").mkdir()
    for folder in (home / "logs", home / "work"):
        folder.mkdir()
        folder.chmod(0o777)
    (home / "jobs" / "env.sh").write_text("FROM_FILE=sourced\n")
    for name, text in FILES.items():
        (home / "jobs" / name).write_text(text)
    job_ids = {name: (_by_sbatch(user_coach, name), _by_coach(user_coach, name)) for name in FILES}
    for name, (plain, ours) in job_ids.items():
        assert _told(slurm, home, ours) == _told(slurm, home, plain), name
    assert f"{home}/jobs sourced" in _told(slurm, home, job_ids["sh.sbatch"][1])


def test_a_launch_names_the_lines_that_would_find_a_difference(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    lines = (
        "#!/bin/bash",
        "#SBATCH -t 1  # of slurm_script",
        "[[ $0 == *slurm_script ]] && cd $HOME",
        "trap 'kill -- -$$' EXIT",
        "/usr/bin/scontrol show job $SLURM_JOB_ID | grep Command",
        "kill $$; kill -9 $child; /usr/bin/squeue --me; ./my_slurm_script.sh",
    )
    (user_coach.user.home / "own.sbatch").write_text("\n".join(lines))
    told = user_coach("launch", "--dry-run", "own.sbatch").stderr
    assert re.findall(r"warning: own\.sbatch:(\d+): .*--as-is", told) == ["3", "4", "5"]


def _by_sbatch(coach: InstalledCoach, name: str) -> str:
    argv = coach.user.argv(("sbatch", "--parsable", f"jobs/{name}", *ARGUMENTS.get(name, ())))
    done = subprocess.run(
        argv, env=coach.env({"MINE": "own"}), cwd=coach.user.home, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _by_coach(coach: InstalledCoach, name: str) -> str:
    words = ("launch", "--format", "json", f"jobs/{name}", "--", *ARGUMENTS.get(name, ()))
    done = coach(*words, env={"MINE": "own"})
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["job_id"]).partition("_")[0]


def _told(slurm: SlurmCluster, home: Path, job_id: str) -> list[str]:
    """The output of a job and how it ended, with J for its own number and HERE/script for its own file."""
    asked = ["squeue", "-h", "-r", "-t", "all", "-j", job_id, "-o", "%A %T %i"]

    def ended() -> list[list[str]]:
        tasks = [line.split() for line in slurm.run(asked, as_root=True).stdout.splitlines()]
        return tasks if tasks and all(state in SETTLED for _, state, _ in tasks) else []

    lines: list[str] = []
    for raw_id, state, _ in sorted(wait_until(ended, 60, f"job {job_id} ends"), key=lambda task: task[2]):
        record = slurm.run(("scontrol", "show", "job", raw_id, "-o"), as_root=True).stdout
        lines.append(f"{state} {re.findall(r'ExitCode=[0-9:]+', record)}")
    for path in sorted(home.glob(f"*/*-{job_id}*")):
        lines.append(str(path))
        lines += [line for line in path.read_text().splitlines() if not line.startswith(NOT_ITS_OWN)]
    own = re.compile(rf"(?<!\d)(?:{job_id}|{'|'.join(_numbers(lines))})(?!\d)")
    return [own.sub("J", OWN_FOLDER.sub("HERE/", line)) for line in lines]


def _numbers(lines: list[str]) -> list[str]:
    """The job ids that a job itself printed, for example of the job that it submitted."""
    return [job_id for line in lines for job_id in re.findall(r"Submitted batch job (\d+)", line)] or ["J"]
