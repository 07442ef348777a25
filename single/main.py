"""The start of coach.pyz: it checks that this Python is new enough. Any Python can read it."""

import os
import sys

NEEDED = (3, 11)


def main():
    if sys.version_info < NEEDED:
        found = ".".join(str(part) for part in sys.version_info[:3])
        sys.stderr.write(
            "coach needs Python %d.%d or newer; %s is Python %s: start it as `python3.11 %s`, "
            "or load a newer Python (module load python)\n"
            % (NEEDED[0], NEEDED[1], sys.executable, found, sys.argv[0])
        )
        return 2
    # As in coach/__init__.py: nothing comes from the current directory, which an empty entry of PYTHONPATH names.
    if not all(map(os.path.isabs, os.environ.get("PYTHONPATH", "/").split(os.pathsep))):
        sys.path[:] = [place for place in sys.path if place != os.getcwd()]
    import one_file

    return one_file.start(__file__.rpartition("/")[0], __loader__.get_data)


if __name__ == "__main__":
    sys.exit(main())
