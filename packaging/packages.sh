# Sourced: what comes from Debian's packages, and how it is installed.
# shellcheck shell=bash

# To build postern. Compilers and libraries, nothing from elsewhere.
PACKAGES_BUILD=(gcc libc6-dev meson ninja-build pkgconf
    libevent-dev libconfuse-dev libjansson-dev)

# To run postern/quickstart and show what comes back.
PACKAGES_RUN=(curl)

# To test it.
PACKAGES_TEST=(binutils clang-14 clang-format-14 clang-tidy-14 curl libclang-rt-14-dev
    libcmocka-dev python3 python3-h11 python3-pytest python3-pytest-xdist strace util-linux)

# One release build, shared by quickstart, the tests and perf.
RELEASE_OPTIONS=(-Dbuildtype=release -Doptimization=2 -Db_ndebug=if-release -Db_lto=true -Dtests=false)

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "installing packages needs root or sudo; by hand: apt-get install ${missing[*]}" >&2
        return 1
    fi
}

# packages_install WHAT PACKAGE...: says what is missing and installs only that; says nothing
# and asks nobody when everything is there.
packages_install() {
    local what=$1 package missing=()
    shift
    for package; do
        if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
            missing+=("$package")
        fi
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return 0
    fi
    echo "Installing for $what, from Debian's packages: ${missing[*]}"
    as_root apt-get -q update </dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install "${missing[@]}" </dev/null
}
