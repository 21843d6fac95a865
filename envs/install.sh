#!/bin/sh
# Prepares .venv from the locked requirements. Silent when there is nothing to do; a failure is reported in one line.
#
#   envs/install.sh                what this machine measures with: CUDA 12 where an NVIDIA driver answers, else the CPU
#   envs/install.sh any            the lock that is installed, whichever it is; the CPU's if none is
#   envs/install.sh development    what it measures with, and the tools of `make test` and `make lint`
#   envs/install.sh tool NAME      as any, and tools/NAME/requirements.txt into .venv/tools/NAME
#
# CUDA=12, CUDA=13 or CUDA=none chooses the lock, PYTHON the interpreter. Where no Python fits, uv brings one.
set -eu
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT
purpose=${1:-measure} tool=${2:-}
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
stop() {
    say "$@"
    exit 1
}

# A stamp is named for its lock's content and written once that lock is installed whole. It holds Python's version and
# the folder, so that a .venv that was moved, or whose Python was upgraded, does not pass for a good one.
stamp() { echo ".venv/installed/$1-$(cat envs/build.txt "$(lock_file "$1")" | sha256sum | cut -c 1-12)"; }
lock_file() { case $1 in tool-*) echo "tools/${1#tool-}/requirements.txt" ;; *) echo "envs/$1.txt" ;; esac }
pinned() { sed -n 's/^\([A-Za-z0-9._-]*==[^ ;\\]*\).*/\1/p' "$1"; }
installed() { [ -n "$environment" ] && [ "$(cat "$(stamp "$1")" 2>/dev/null)" = "$environment" ]; }
inspect() { .venv/bin/python -I -c 'import sys; print(*sys.version_info[:2], sys.prefix)' 2>/dev/null || :; }

# The interpreters on PATH, as lines 'ready 3.12 /usr/bin/python3.12'. Each is run, because some only print an error
# (pyenv's). 3.12 and 3.11 come first: CUDA 12's cupti-python, which names kernels, has wheels for these alone.
interpreters() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON"
    else
        which -a python3.12 python3.11 python3.13 python3.14 python3
    fi | while IFS= read -r path; do
        [ ! "$(dirname "$path")" -ef .venv/bin ] || continue # it is active, and perhaps about to be made anew
        "$path" -I -c '
import sys
state = "ready"
try:
    import ensurepip, venv
except ImportError:
    state = "without-venv"
if not (3, 11) <= sys.version_info < (3, 15):
    state = "unfit"
print(state, "%d.%d" % sys.version_info[:2], sys.argv[1])
' "$path" 2>/dev/null </dev/null || :
    done
}
first() { printf '%s\n' "$interpreters" | sed -n "s/^$1 //p" | head -n 1; }

# The newest CUDA that the NVIDIA driver serves (12, 13); 'unknown' if only nvidia-smi answers; nothing without a driver
# that can be loaded: no package would find a GPU by it.
driver_cuda() {
    python=.venv/bin/python
    [ -n "$environment" ] || python=$(printf '%s\n' "$interpreters" | sed -n '1s/^[^ ]* [^ ]* //p')
    "$python" -I -c '
import ctypes
try:
    cuda, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
except OSError:
    raise SystemExit
assert cuda.cuInit(0) == 0 and cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
print(version.value // 1000)
' 2>/dev/null || { nvidia-smi -L >/dev/null 2>&1 && echo unknown; } || :
}

choose_lock() {
    case ${CUDA:-} in
    none) lock=cpu ;;
    12 | 13) lock=cuda$CUDA ;;
    '')
        lock=cpu
        for chosen in .venv/installed/cuda1?-*; do
            if [ -e "$chosen" ]; then
                lock=$(basename "${chosen%-*}")
            elif [ "$purpose" != any ] && [ "$purpose" != tool ] && [ -n "$(driver_cuda)" ]; then
                lock=cuda12
            fi
        done
        ;;
    *) stop "CUDA=$CUDA is no choice: CUDA=12, CUDA=13 or CUDA=none." ;;
    esac
}

check_driver() {
    newest=$(driver_cuda)
    case $newest in
    '' | unknown) ;;
    *) [ "$newest" -ge "${lock#cuda}" ] || stop "The NVIDIA driver serves CUDA $newest, not CUDA ${lock#cuda}:" \
        "update it (CUDA 12 needs 525 or newer, CUDA 13 needs 580), or choose CUDA=12 or CUDA=none." ;;
    esac
}

disk_is_full() { grep -q -i -E 'no space left|quota exceeded' "$log"; }
explain() {
    if disk_is_full; then
        stop "The disk is full: $(df -Ph . | awk 'NR == 2 {print $4}') free in $PWD, and the packages take $size," \
            "as much again while they install. Make room, then make again."
    elif grep -q -i -E 'establish a new connection|name resolution|NewConnectionError|ConnectTimeout|timed out|unreachable|refused|ProxyError|dns error|error sending request|failed to fetch' "$log"; then
        stop "The packages cannot be fetched: is there a network?" \
            "(HTTPS_PROXY names a proxy, PIP_INDEX_URL another index.) Then make again."
    elif grep -q -i -E 'do not match the hashes|hash mismatch' "$log"; then
        stop "A package is not the one that was locked: a damaged download, or an index that alters files." \
            "Make again, or name another index by PIP_INDEX_URL."
    fi
    mkdir -p .venv && cp "$log" .venv/install.log
    stop "The install failed: $({ grep -i error "$log" || cat "$log"; } | tail -n 1) (all of it: .venv/install.log)"
}
try() { "$@" >"$log" 2>&1 || explain; }

# Sets `found` to the interpreter that the environment is made from, or to 'any 3.12' for uv to bring.
find_python() {
    interpreters=$(interpreters)
    found=$(first ready) without_venv=$(first without-venv) unfit=$(first unfit)
    if [ -n "$found" ]; then
        return
    elif command -v uv >/dev/null || fetch_uv; then
        found=${without_venv:-any 3.12}
    elif disk_is_full; then
        explain
    elif [ -n "$without_venv" ]; then
        without_venv=${without_venv%% *}
        stop "Python $without_venv lacks its venv module: sudo apt install python$without_venv-venv, then make again."
    else
        stop "Python 3.11 to 3.14 is needed, and there is ${unfit:-none}${PYTHON:+ (PYTHON=$PYTHON)}:" \
            "sudo apt install python3.11 python3.11-venv, or install uv, then make again."
    fi
}

# The wheel of uv into .uv, by the pip of a Python that does not fit: `pip_of`. Then, by uv, a Python that does.
fetch_uv() {
    [ -z "${PYTHON:-}" ] || return 1
    pip_of=$(printf '%s\n' "$interpreters" | sed 's/^[^ ]* [^ ]* //' | while IFS= read -r path; do
        ! "$path" -m pip --version >/dev/null 2>&1 </dev/null || { echo "$path" && break; }
    done)
    [ -n "$pip_of" ] || return 1
    say "Fetching uv into .uv, since there is no Python from 3.11 to 3.14 with venv here..."
    export UV_CACHE_DIR="$PWD/.uv/cache" UV_PYTHON_INSTALL_DIR="$PWD/.uv/python"
    .uv/bin/uv --version >/dev/null 2>&1 || seed .uv envs/uv.txt || return 1
    [ -n "$without_venv" ] || .uv/bin/uv python install --no-bin 3.12 >"$log" 2>&1
}
# Installs wheels into a folder by the pip of another Python, whose settings name the index.
seed() {
    "$pip_of" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --require-hashes --upgrade \
        --only-binary :all: --python-version 3.12 --target "$1" --requirement "$2" >"$log" 2>&1
}
make_environment() {
    [ ! -L .venv ] || stop ".venv is a link, and what it leads to would be emptied: remove the link, then make again."
    if [ -n "$(first ready)" ]; then
        try "${found#* }" -m venv --clear .venv
    elif [ -z "$pip_of" ]; then
        try uv venv --clear --no-project --python "${found#* }" .venv
    else
        try .uv/bin/uv venv --clear --no-project --python "${found#* }" .venv
        seed "$(.venv/bin/python -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" envs/build.txt || explain
    fi
}

# uv is faster, but does not know the index, proxy, certificates or wheels that pip is set up with.
install() {
    if command -v uv >/dev/null && ! pip config list 2>/dev/null | grep -q -E 'index|find-links|proxy|cert'; then
        try uv pip install --python .venv/bin/python --no-deps --require-hashes "$@"
    else
        try pip install --quiet --disable-pip-version-check --no-input --use-pep517 --no-compile \
            --no-deps --require-hashes "$@"
    fi
}
pip() { .venv/bin/python -m pip "$@"; }

install_lock() {
    # A tool's apart: Snakemake would import a plugin, the Slurm executor with pandas say, at the start of every job.
    case $1 in
    tool-*) target=.venv/tools/${1#tool-} ;;
    *) target= ;;
    esac
    [ -z "$target" ] || rm -rf "$target" # pip keeps what is there
    # Every package but two comes as a wheel.
    # shellcheck disable=SC2046,SC2086
    install --no-build-isolation --requirement "$(lock_file "$1")" ${target:+--target $target} \
        $(sed -n '/^connection-pool=/d; /^immutables=/d; s/^\([a-z0-9-]*\)==.*/--only-binary=\1/p' "$(lock_file "$1")")
    # On all cores, and whatever PYTHONDONTWRITEBYTECODE says: every job would compile its imports again.
    .venv/bin/python -m compileall -q -j 0 .venv/lib ${target:-} >/dev/null 2>&1 || :
    environment=$(inspect)
    mkdir -p .venv/installed
    echo "$environment" >"$(stamp "$1")"
}

prepare_to_install() {
    # Downloads are unpacked beside .venv: /tmp may be small, in memory even.
    mkdir -p .venv/tmp
    export TMPDIR="${TMPDIR:-$PWD/.venv/tmp}"
    # The two without a wheel need no compiler: see envs/no-compiler.
    headers=$(.venv/bin/python -I -c 'import sysconfig; print(sysconfig.get_path("include"))')
    { command -v cc && [ -e "$headers/Python.h" ]; } >/dev/null || export CC="sh '$PWD/envs/no-compiler'"
}

# Two at once wait for each other.
if command -v flock >/dev/null; then
    exec 9<envs
    flock -n 9 || { say 'Waiting for another make that installs here...' && flock 9; } || :
fi

environment=$(inspect)
interpreters= pip_of=
[ -n "$environment" ] || interpreters=$(interpreters)
choose_lock
# What is installed over the lock.
case $purpose-$lock in
development-cuda13) more=development-cuda13 ;;
development-*) more=development ;;
tool-*)
    [ -r "tools/$tool/requirements.txt" ] || stop "tools/$tool/requirements.txt: no such file"
    # What the lock has already is not installed again.
    missing=$(pinned "tools/$tool/requirements.txt" | while read -r one; do grep -q "^$one " "envs/$lock.txt" || echo "$one"; done)
    more=${missing:+tool-$tool}
    ;;
*) more= ;;
esac
# NCCL, for the all-reduces of several GPUs, where the driver lists more than one.
case $purpose-$lock in
measure-cuda* | development-cuda*)
    set -- "${ROOFLINE_HOST:-}"/proc/driver/nvidia/gpus/*
    [ $# -lt 2 ] || more="nccl-$lock $more"
    ;;
esac
all_installed() {
    for part in "$lock" $more; do installed "$part" || return; done
}
if all_installed; then
    exit
fi

[ -w .venv ] || { [ ! -e .venv ] && [ -w . ]; } ||
    stop "The packages belong in $PWD/.venv, which you may not write: clone the project where you may."
log=$(mktemp)
trap 'rm -rf "$log" .venv/tmp' EXIT
trap 'exit 130' INT TERM

if ! installed "$lock"; then
    case $lock in
    cpu) name='the CPU' size='0.4 GB' time='half a minute' ;;
    cuda12) name='CUDA 12' size='2 GB' time='a minute or two' ;;
    cuda13) name='CUDA 13' size='1.4 GB' time='a minute or two' ;;
    esac
    [ "$lock" = cpu ] || check_driver
    installed cpu || find_python
    [ "$lock${CUDA:-}" != cpu ] || ! nvidia-smi -L >/dev/null 2>&1 ||
        say "nvidia-smi answers, but libcuda.so.1 cannot be loaded: no GPU will be measured" \
            "(in a container, NVIDIA_DRIVER_CAPABILITIES needs compute)."
    say "Installing the locked packages for $name into .venv (about $size, $time)..."
    if installed cpu; then
        rm -r .venv/installed # a CUDA lock is the CPU's and more: what is there stays
    else
        make_environment
    fi
    prepare_to_install
    install --requirement envs/build.txt
    install_lock "$lock"
fi
for part in $more; do
    ! installed "$part" || continue
    case $part in
    tool-*) what="what \`make ${part#tool-}\` needs" size='0.1 GB' ;;
    nccl-*) what='NCCL, for several GPUs,' size='0.3 GB' ;;
    *) what='the tools of tests and style' size='0.3 GB' ;;
    esac
    say "Installing $what into .venv..."
    prepare_to_install
    install_lock "$part"
done
