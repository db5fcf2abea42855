"""Run the command line: ``oodzoo``, or ``python -m oodzoo``."""

import sys


def main() -> None:
    """Run the command; Ctrl-C while it is being imported is a line, not a traceback."""
    try:
        from oodzoo.cli import main as run
    except KeyboardInterrupt:
        print("oodzoo: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
