"""A stand-in for Apptainer: the kernel ensures that the program sees only the image and the bound paths.

The real one cannot be installed from Debian. The stand-in makes an empty root in its own namespaces, as an
ordinary user may, mounts the paths of the image and of `--bind` into it, and starts the program there. As
with the real one, an unknown option is an error, a missing source of a bind is an error, and the image is
read-only. It is stricter than most real sites: home and /tmp are absent unless they are bound. Its image is a
text file: PATH inside, then a path of this machine on each line.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.installed import REPOSITORY
from tests.ordinary_user import NOBODY

_SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

PROGRAM = r"""#!/bin/bash
set -euo pipefail
fatal() { echo "FATAL:   $*" >&2; exit 255; }
if [[ ${1:-} != exec ]]; then fatal "unknown command ${1:-}"; fi
shift
binds=()
while [[ ${1:-} == -* ]]; do
  case $1 in
    --nv) shift ;;
    --bind) binds+=("$2"); shift 2 ;;
    *) fatal "unknown flag: $1" ;;
  esac
done
image=$1
shift
exec unshare --user --map-root-user --mount bash -c '
  set -euo pipefail
  image=$1 num_binds=$2
  binds=("${@:3:num_binds}")
  shift $((2 + num_binds))
  inside=/mnt
  mount -t tmpfs tmpfs "$inside"
  see() {
    if [[ ! -e $1 ]]; then echo "FATAL:   mount source $1 does not exist" >&2; exit 255; fi
    if [[ -L $1 ]]; then cp -P "$1" "$inside$2"; return; fi
    if [[ -d $1 ]]; then mkdir -p "$inside$2"; else mkdir -p "$inside${2%/*}"; touch "$inside$2"; fi
    mount --rbind "$1" "$inside$2"
    if [[ $3 == ro ]]; then mount -o remount,bind,ro "$inside$2"; fi
  }
  { read -r path_inside; while read -r path; do see "$path" "$path" rw; done; } < "$image"
  for bind in ${binds[@]+"${binds[@]}"}; do
    IFS=: read -r source target options <<< "$bind:::"
    see "$source" "${target:-$source}" "${options%%:*}"
  done
  for path in /proc /sys /dev; do see "$path" "$path" rw; done
  mkdir -p "$inside/tmp" "$inside/var/tmp"
  mount -t tmpfs tmpfs "$inside/var/tmp"
  mount -o remount,bind,ro "$inside"
  for name in $(compgen -e APPTAINERENV_); do export "${name#APPTAINERENV_}=${!name}"; done
  exec /usr/sbin/chroot "$inside" /usr/bin/env "PATH=$path_inside" "$@"
' apptainer "$image" "${#binds[@]}" ${binds[@]+"${binds[@]}"} "$@"
"""


def why_not() -> str | None:
    """The reason why the stand-in cannot work here, or None."""
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    probe = subprocess.run(
        [*drop, "unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
    )
    return f"an ordinary user has no namespaces here: {probe.stderr.strip()}" if probe.returncode else None


def install(folder: Path) -> Path:
    """Put the program into `folder/bin`, which is to come first on the PATH."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "apptainer"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return program.parent


def make_image(image: Path, python: Path) -> None:
    """An image that holds the system's programs, and the environment of this interpreter."""
    asked = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, *sys.path]))"
    printed = subprocess.run([python, "-P", "-c", asked], capture_output=True, text=True, check=True).stdout
    own = [path for path in json.loads(printed) if path and Path(path).is_dir() and Path(path) != REPOSITORY]
    system = [path for path in _SYSTEM if Path(path).exists()]
    # Outer paths first, because a later mount covers an earlier one.
    paths = sorted({*own}, key=lambda path: (path.count("/"), path))
    own = [path for path in paths if not any(Path(path).is_relative_to(outer) for outer in system)]
    image.write_text("\n".join([f"{python.parent}:/usr/bin:/bin", *system, *own]) + "\n")
