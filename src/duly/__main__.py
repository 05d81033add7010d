"""Lets `python -m duly` stand for the command `duly`."""

import sys

if __name__ == "__main__":
    try:
        from duly.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()
