#!/usr/bin/env bash
# Run the usual tests on the other Python versions that Duly supports, as far as this machine has them. The newest one
# measures which lines the tests run, against the floor in pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
export DULY_TEST_MATRIX=usual

# The first one that runs: pyenv has commands for versions that are not switched on, and they fail.
find_python() {
  local python
  for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1."*/bin/python; do
    if "$python" -c '' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
}

for version in 3.12 3.13; do
  python=$(find_python "$version")
  if [ -z "$python" ]; then
    echo "!!! WARNING: Python $version is not on this machine. Its tests did not run."
    continue
  fi
  home=".venv-$version"
  "$python" -m venv "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
  tests=(-m pytest -n 4 --dist worksteal -m 'not fault and not quiet and not measure and not long')
  if [ "$version" = 3.13 ]; then
    "$home/bin/coverage" erase
    "$home/bin/coverage" run "${tests[@]}"
    "$home/bin/coverage" combine --quiet
    "$home/bin/coverage" report
  else
    "$home/bin/python" "${tests[@]}"
  fi
done
