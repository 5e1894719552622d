#!/usr/bin/env bash
# A Chromium for the tests that open pages. Uses the one that is there; else, as root on Debian, installs Debian's.
# Without one those tests are skipped, and say so: nothing fails here.
# usage: tools/chromium.sh
set -euo pipefail

there() {
  [ -n "${WATERSMEET_CHROMIUM:-}" ] && return
  for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then return; fi
  done
  return 1
}

if there; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: no Chromium here; installing Debian's (apt)" >&2
  log=$(mktemp)
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } \
    >"$log" 2>&1 || tail -n 5 "$log" >&2
  rm -f "$log"
fi
there || echo "setup: no Chromium: tests that open pages in one are skipped (apt install chromium)" >&2
