"""Lets `python -m duly` stand for the command `duly`."""

from duly.cli import main

if __name__ == "__main__":
    main()
