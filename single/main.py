"""The start of coach.pyz: it checks that this Python is new enough. Any Python can read it."""

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
    import one_file

    return one_file.start(__file__.rpartition("/")[0], __loader__.get_data)


if __name__ == "__main__":
    sys.exit(main())
