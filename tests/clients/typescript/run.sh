#!/usr/bin/env bash
# Runs the tests with the official TypeScript client against a built binary.
# usage: run.sh PATH-OF-TENURE
# Needs what `npm ci` puts into node_modules beside this script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "${1:?usage: run.sh PATH-OF-TENURE}")
if [[ ! -x $binary ]]; then
    echo "error: $binary is no program; build it with: cargo build -p tenure" >&2
    exit 2
fi
cd "$here"
if [[ ! -d node_modules/@anthropic-ai/sdk ]]; then
    echo "error: the client is not installed; run in $here: npm ci" >&2
    exit 2
fi
rm -rf build
node node_modules/typescript/bin/tsc --project .
status=0
TENURE_BINARY=$binary node --test --test-reporter=tap build/*.test.js | tee build/report.tap || status=$?
count() { sed -n "s/^# $1 \([0-9]*\)$/\1/p" build/report.tap | tail -n 1; }
passed=$(count pass) failed=$(count fail)
echo "${passed:-0} passed, ${failed:-0} failed"
[[ $status -eq 0 && ${failed:-1} -eq 0 && ${passed:-0} -gt 0 ]]
