#!/bin/bash
# Runs the tests of redis-py, a client library, on a server: by hand, with the unpacked source of redis-py (apt-get source python-redis, or
# the source distribution of redis 5.0.8) and with python3-pytest, python3-pytest-asyncio, python3-pytest-timeout and what redis-py needs.
#
#   test/server/redis_py.sh build/package/bin/hako-server redis-5.0.8 [data.hkt [file of tests ...]]
#
# Port 6379 must be free: some of the tests know no other. Prints the tests that fail for another reason than a command that the server
# does not have, and the summary. Expected of redis 5.0.8 are those of ACL, SELECT and COPY of another database, of the replies to COMMAND,
# and of settings of Redis alone.
set -e
server=$(realpath "$1")
source=$(realpath "$2")
files=("${@:4}")
[ ${#files[@]} -gt 0 ] || files=(tests/test_commands.py tests/test_pipeline.py tests/test_encoding.py tests/test_connection.py)
folder=$(mktemp -d)
"$server" --port 6379 --db "$folder/${3:-data.hkh}" 2> "$folder/log" &
pid=$!
trap 'kill $pid; wait $pid; rm -r "$folder"' EXIT
until grep -q " ready" "$folder/log"; do
  kill -0 $pid
  sleep 0.1
done
cd "$source"
${PYTHON:-python3} -m pytest -q -p no:cacheprovider --timeout 20 --tb=line -rfE --redis-url redis://127.0.0.1:6379/0 "${files[@]}" \
  > "$folder/out" 2>&1 || true
# A line of each failure, in the order of their names in the summary.
paste -d' ' <(grep -E '^(FAILED|ERROR) ' "$folder/out" | sed 's/ - .*//') <(grep -E '^(E  |/).*: ' "$folder/out" | grep '^/' | grep -v Warning) |
  grep -v -e "unknown command" -e "unknown subcommand" || true
tail -1 "$folder/out"
