#!/usr/bin/env bash
# An OpenCL device for the tests. The PoCL that pip brings is one, but on processors newer than its LLVM; there, as root on
# Debian, Debian's is installed beside it. Without one those tests are skipped, and say so: nothing fails here.
# usage: tools/opencl.sh
set -euo pipefail
cd "$(dirname "$0")/.."

there() { .venv/bin/python -c 'from watersmeet.device import opencl; opencl.check_device(None, None)' 2>/dev/null; }

if there; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: no OpenCL device here that builds programs; installing Debian's PoCL (apt)" >&2
  log=$(mktemp)
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pocl-opencl-icd; } \
    >"$log" 2>&1 || tail -n 5 "$log" >&2
  rm -f "$log"
fi
there || echo "setup: no OpenCL device: tests that need one are skipped (apt install pocl-opencl-icd)" >&2
