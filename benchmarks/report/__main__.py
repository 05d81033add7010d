"""Write the figures of all pages from the kept results: `python -m benchmarks.report`. With --check, only compare."""

import sys

from benchmarks.report.pages import ROOT, stale, written
from benchmarks.report.results import Results


def main(args: list[str]) -> int:
    """Write or compare."""
    results = Results()
    different = stale(results)
    if args == ["--check"]:
        for path in different:
            print(f"{path.relative_to(ROOT)} differs from benchmarks/results: run `make figures`", file=sys.stderr)
        return 1 if different else 0
    for path, text in written(results):
        if path in different:
            path.write_text(text)
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
