# Sourced by packaging/quickstart and tests/run from the root of the tree: what comes from
# Debian's packages, how it is installed, and how a build folder is made.
# shellcheck shell=bash

# To build postern: a compiler and libraries.
PACKAGES_BUILD=(gcc libc6-dev meson ninja-build pkgconf
    libevent-dev libc-ares-dev libconfuse-dev libhiredis-dev libjansson-dev libnghttp2-dev libpcre2-dev libssl-dev)

# To send requests through it.
PACKAGES_ASK=(curl ca-certificates)

# To build it by a profile: what sends requests for that, and how.
PACKAGES_PROFILE=(python3 openssl nghttp2-client util-linux)

# To test it.
PACKAGES_TEST=(binutils clang-14 clang-format-14 clang-tidy-14 groff-base libclang-rt-14-dev
    libcmocka-dev nghttp2-client openssl python3 python3-cryptography python3-grpcio python3-h11 python3-h2 python3-pytest python3-pytest-xdist python3-websockets strace
    testssl.sh util-linux wrk)

# What the tests put before and behind it. They are services too, which nobody asked for.
PACKAGES_PEERS=(apache2-utils h2o haproxy nghttp2-proxy nginx-light nodejs redis-server)

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "Installing packages needs root or sudo. By hand: apt-get install ${missing[*]}" >&2
        return 1
    fi
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# packages_install WHAT PACKAGE...: says what is missing and installs only that; says nothing
# and asks nobody when everything is there.
packages_install() {
    local what=$1 package missing=()
    shift
    for package; do
        is_installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return 0
    fi
    echo "Installing for $what, from Debian's packages: ${missing[*]}"
    as_root apt-get -q update </dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install "${missing[@]}" </dev/null
}

# packages_install_idle WHAT PACKAGE...: the same, and what is a service starts neither now nor
# with the machine. What was there before is left as it is.
packages_install_idle() {
    local what=$1 package policy=/usr/sbin/policy-rc.d missing=()
    shift
    for package; do
        is_installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return 0
    fi
    (
        if [ ! -e "$policy" ]; then
            as_root install -m 755 /dev/stdin "$policy" <<<$'#!/bin/sh\nexit 101'
            trap 'as_root rm -f "$policy"' EXIT
        fi
        packages_install "$what" "${missing[@]}"
    ) || return
    if [ -d /run/systemd/system ]; then
        for package in "${missing[@]}"; do
            case $package in
            nginx-light) as_root systemctl --quiet disable nginx ;;
            nghttp2-proxy) as_root systemctl --quiet disable nghttpx ;;
            h2o | haproxy | redis-server) as_root systemctl --quiet disable "$package" ;;
            esac || return
        done
    fi
}

# build_in FOLDER OPTION...: sets the folder up, anew when the options changed, and compiles.
# Quiet unless something fails.
build_in() {
    local build=$1 log=$1.log
    shift
    if [ ! -f "$build/build.ninja" ] || [ "$(cat "$build/options" 2>/dev/null)" != "$*" ]; then
        rm -rf "$build"
        if ! meson setup "$build" "$@" >"$log" 2>&1; then
            cat "$log"
            rm -rf "$build" "$log"
            return 1
        fi
        echo "$*" >"$build/options"
    fi
    if ! meson compile -C "$build" >"$log" 2>&1; then
        tail -n 100 "$log"
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# The release build, in build-release, which quickstart, the tests and perf/ share.
build_release() {
    build_in build-release -Dbuildtype=release -Db_ndebug=if-release -Dtests=false
}
