#!/bin/sh
# Installs the Debian packages of the given sections of packages.txt (default: build) that are missing.
# Usage: scripts/setup.sh [build] [test] [dev]
set -eu
here=$(dirname "$0")
sections=${*:-build}

missing=
for section in $sections; do
    for package in $(sed -n "/^\[$section\]/,/^\[/{/^[[#]/d;p}" "$here/packages.txt"); do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
    done
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "These packages are needed and apt-get is not here to install them:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Missing packages; install them as root: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "Installing:$missing"
# shellcheck disable=SC2086
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
