#!/usr/bin/env bash
# Set up the project's virtual environment in .venv, once; again when pyproject.toml or constraints.txt change.
# usage: tools/venv.sh        PYTHON=python3.12 tools/venv.sh   (a Python of your choice, >= 3.11)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv
stamp=$venv/.ready

# A moved project needs a new editable install, so its place is part of the key.
key=$({ pwd; cat pyproject.toml constraints.txt tools/venv.sh; } | sha256sum | cut -d' ' -f1)

# Is the Python in .venv the one asked for, if one is?
right_python() { [ -z "${PYTHON:-}" ] || [ "$($venv/bin/python --version)" = "$("$PYTHON" --version 2>&1)" ]; }

if [ -x $venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$key" ] && right_python; then exit 0; fi

say() { echo "setup: $*"; }
fail() { echo "setup: $1" >&2; shift; for line in "$@"; do echo "       $line" >&2; done; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer." "Unset it, or name another: make PYTHON=/path/to/python3.11 ..."
    echo "$PYTHON"; return
  fi
  for candidate in python3.11 python3; do
    if new_enough "$candidate"; then echo "$candidate"; return; fi
  done
  fail "Python 3.11 or newer is needed, and neither python3.11 nor python3 is one." "On Debian 12 or newer: apt install python3 python3-venv" "Elsewhere, name it:     make PYTHON=/path/to/python3.11 ..."
}

# Debian ships venv without ensurepip, in a package of its own.
have_venv() { "$1" -c 'import venv, ensurepip; ensurepip.version()' 2>/dev/null; }

install_venv() {
  local package
  package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "$1 has no ensurepip; installing $package (apt)"
    local log
    log=$(mktemp)
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"; } \
      >"$log" 2>&1 || { tail -n 5 "$log" >&2; }
    rm -f "$log"
  fi
  have_venv "$1" || fail "$("$1" --version) here cannot make virtual environments. Install what is missing and try again:" "apt install $package"
}

python=$(find_python)
have_venv "$python" || install_venv "$python"

rm -f $stamp
if ! $venv/bin/python -m pip --version >/dev/null 2>&1 || ! right_python; then
  say "virtual environment in $venv ($("$python" --version))"
  rm -rf $venv
  "$python" -m venv $venv
fi
say "installing watersmeet and its tools (a few hundred MB, once)"
pip() { $venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$@"; }
# Our own pinned setuptools builds the package: nothing outside constraints.txt is used.
pip setuptools
# The standard way to build PySpark, too: newer pips warn of the one that its setup.py alone would ask for.
pip --no-build-isolation --use-pep517 --editable '.[dev]'
echo "$key" >$stamp
say "done"
