#!/usr/bin/env bash
# Find a Java runtime that Spark can use (17 or newer) and print its home, for JAVA_HOME.
# Uses the one that is there; else, as root on Debian, installs the headless one; else says what to install.
# usage: export JAVA_HOME=$(tools/java.sh)
set -euo pipefail
need=17

# Print the home of the java binary $1 and succeed, if it runs and is new enough. It is asked itself, so that
# wrappers and links do not mislead ("java.version = 17.0.15", or "1.8.0_392" for Java 8).
usable() {
  local settings version
  settings=$("$1" -XshowSettings:properties -version 2>&1) || return 1
  version=$(sed -nE 's/^ *java\.version = (1\.)?([0-9]+).*/\2/p' <<<"$settings")
  [ -n "$version" ] && [ "$version" -ge $need ] || return 1
  sed -nE 's/^ *java\.home = //p' <<<"$settings"
}

find_java() {
  local java
  if [ -n "${JAVA_HOME:-}" ] && usable "$JAVA_HOME/bin/java"; then return; fi
  if java=$(command -v java) && usable "$java"; then return; fi
  for java in "${JVM_DIR:-/usr/lib/jvm}"/*/bin/java; do
    if usable "$java"; then return; fi
  done
  return 1
}

if find_java; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: no Java $need or newer here; installing Debian's default-jre-headless (apt)" >&2
  log=$(mktemp)
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jre-headless; } \
    >"$log" 2>&1 || tail -n 5 "$log" >&2
  rm -f "$log"
  if find_java; then exit 0; fi
fi
{
  echo "setup: Spark needs a Java runtime, version $need or newer, and none was found. Install one and try again:"
  echo "       apt install default-jre-headless"
  echo "       or set JAVA_HOME to one that is there"
} >&2
exit 1
