#!/usr/bin/env bash
# Install what the tests need beside Python packages: Debian's redis-server (7.x), a C compiler
# for the clock shim, luacheck, openssl for a certificate, and a browser for the pages. Valkey and Redis 6.2 come as
# Python packages.
set -euo pipefail

missing=()
[ -x /usr/bin/redis-server ] || missing+=(redis-server)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v luacheck >/dev/null || missing+=(lua-check)
command -v openssl >/dev/null || missing+=(openssl)
[ -x /usr/bin/chromium ] || missing+=(chromium)
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "!!! install_servers: cannot install ${missing[*]} (needs root and apt-get);" \
    "tests that need them will be skipped, or fail in CI" >&2
  exit 0
fi

echo "install_servers: installing ${missing[*]}"
# RUNLEVEL=1 keeps the package from starting its daemon.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null

# Where RUNLEVEL had no effect the daemon runs now, and it is ours: the package was not here before.
if [[ " ${missing[*]} " == *" redis-server "* ]]; then
  service redis-server stop >/dev/null 2>&1 || true
  update-rc.d redis-server disable >/dev/null 2>&1 || true
fi
