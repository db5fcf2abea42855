"""Run the command line as ``python -m oodzoo``."""

from oodzoo.cli import main

if __name__ == "__main__":
    main()
