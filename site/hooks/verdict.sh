# What coach-mail and coach-epilog have in common: sourced by both, never run. POSIX shell.
#
# The site's own choices stand in /etc/coach/hooks.conf, which is sourced, so only root may be able to write it:
#   MAILER=/usr/bin/mail                           the program that sends the mail
#   VERDICTS=/var/spool/coach                      where the epilog leaves its lines, for coach-mail and the user;
#                                                  root's, writable by nobody else, seen by nodes and controller
#   READERS=slurm                                  the group that may read them beside the user: SlurmUser's
#   PATIENCE=8                                     seconds that coach may take
#   COACH=/shared/apps/coach/VERSION/bin/coach     default: the version that this file belongs to
#   CLIENTS=/opt/slurm/bin                         where Slurm's clients are, unless in /usr/bin
#   USER_ENV="SCRATCH=/scratch/$SLURM_JOB_USER"    what coach needs to find a user's runs: words NAME=VALUE

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 077
MAILER=/usr/bin/mail VERDICTS= READERS= PATIENCE=8 CLIENTS= USER_ENV=
COACH=${HERE%/share/coach/hooks}/bin/coach
CONF=${COACH_HOOKS_CONF:-/etc/coach/hooks.conf}
if [ -r "$CONF" ]; then . "$CONF"; fi

MAX_LINES=6
MAX_BYTES=4000

# job_of SUBJECT: the id by which coach knows the job; empty where nothing that looks like one was told.
job_of() {
	found=${SLURM_JOB_ID:-}
	if [ -n "${SLURM_ARRAY_JOB_ID:-}" ] && [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
		found=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
	fi
	if [ -z "$found" ]; then
		found=$(printf '%s\n' "$1" | sed -n 's/^[^=]*Job_id=\([0-9_]*\).*/\1/p')
	fi
	case $found in
	'' | *[!0-9_]*) ;;
	*) printf '%s\n' "$found" ;;
	esac
}

# why JOB STATE: the lines of `coach why`, asked as the job's own user, where something is wrong; else nothing.
# What is run is the user's (his settings, his files), so it never runs as root, and root's jobs are left out.
why() {
	uid=${SLURM_JOB_UID:-0} gid=${SLURM_JOB_GID:-}
	if [ "$(id -u)" != 0 ] || [ "$uid" = 0 ] || [ ! -x "$COACH" ]; then return 0; fi
	entry=$(getent passwd "$uid") || return 0
	home=$(printf '%s\n' "$entry" | cut -d: -f6)
	user=${entry%%:*}
	case $2 in
	COMPLETED | FAILED | TIMEOUT | OUT_OF_MEMORY | NODE_FAIL | CANCELLED | PREEMPTED | DEADLINE) ended=$2 ;;
	*) ended= ;;
	esac
	# shellcheck disable=SC2086  # words NAME=VALUE
	said=$({
		cd / && ulimit -t 5 && ulimit -c 0 &&
			timeout -k 1 "$PATIENCE" setpriv --reuid="$uid" --regid="${gid:-$(id -g "$uid")}" --init-groups \
				env -i HOME="$home" USER="$user" LOGNAME="$user" LC_ALL=C.UTF-8 PATH="${CLIENTS:+$CLIENTS:}$PATH" \
				${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} $USER_ENV "$COACH" why ${ended:+--ended "$ended"} "$1" < /dev/null 2> /dev/null
		echo "=$?"
	} | head -c "$MAX_BYTES")
	# 1: something is wrong. Whatever ends otherwise, a flood of text also, is not told.
	case $said in
	*"
=1") printf '%s' "${said%=1}" | head -n "$MAX_LINES" ;;
	esac
}
