#!/usr/bin/env bash
# Runs the tests with the official Python client against a built binary.
# usage: run.sh PATH-OF-TENURE [test name ...]
# Python: $PYTHON, else the virtual environment .venv beside this script or one folder up, else python3.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:?usage: run.sh PATH-OF-TENURE [test name ...]}
shift
if [[ ! -x $binary ]]; then
    echo "error: $binary is no program; build it with: cargo build -p tenure" >&2
    exit 2
fi
python=${PYTHON:-}
if [[ -z $python ]]; then
    python=python3
    for candidate in "$here/.venv/bin/python" "$here/../.venv/bin/python"; do
        [[ -x $candidate ]] && python=$candidate && break
    done
fi
if ! "$python" -c 'import anthropic' 2>/dev/null; then
    echo "error: $python has no package anthropic; install it with: pip install -r $here/requirements.txt" >&2
    exit 2
fi
TENURE_BINARY=$(realpath "$binary") PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/suite.py" "$@"
