#!/bin/bash
# Redis 7.0.15 (redis-server of Debian 12, of any revision of that version): orders of mixed values.
#
#   1. SORT of a list with one text among numbers is an error, whatever the limit; by weights of other keys, a key
#      that is missing weighs 0, and one that has a text is that error again.
#   2. SORT takes hexadecimal numbers and inf, and refuses a number with a blank behind it, but not before it.
#   3. Weights are doubles: 9007199254740993 and ...992 weigh the same, and so does a score in a sorted set, which
#      is shown as another number than the one that was given.
#   4. ZRANGEBYLEX of members with different scores is no error: [c to [d has b, and [a to [b lacks b.
# hako orders numbers exactly and before all texts: include/hako/table/value.h.
set -u
dir=$(mktemp -d) && trap 'kill "${server:-}" 2>/dev/null; rm -rf "$dir"' EXIT
cd "$dir" || exit 2
packages="redis-server redis-tools libjemalloc2 liblua5.1-0 liblzf1 libhiredis0.14 lua-cjson lua-bitop libatomic1"
download() { apt-get -o APT::Sandbox::User=root download -qq $packages; }
download 2>/dev/null || { apt-get update -qq && download; } || exit 2
for package in *.deb; do dpkg -x "$package" root || exit 2; done
export PATH=$dir/root/usr/bin:$PATH
export LD_LIBRARY_PATH=$dir/root/usr/lib/$(uname -m)-linux-gnu
redis-server --version | grep -q 'v=7\.0\.15 ' || { echo "another version of Redis: $(redis-server --version)"; exit 2; }
redis-server --version
redis-server --port 0 --unixsocket "$dir/socket" --save '' --dir "$dir" >/dev/null &
server=$!
for _ in $(seq 100); do redis-cli -s "$dir/socket" ping >/dev/null 2>&1 && break; sleep 0.05; done

changed=0
ask() { redis-cli -s "$dir/socket" "$@" | tr '\n' ' '; }
show() {  # EXPECTED COMMAND...
  local expected=$1 found
  shift
  found=$(ask "$@")
  if [ "$found" = "$expected" ]; then echo "$*: $found"; else echo "$*: $found  CHANGED, was $expected"; changed=1; fi
}
error="ERR One or more scores can't be converted into double  "
show "4 " rpush ages 100 36 9 old
show "$error" sort ages
show "$error" sort ages limit 0 1
show "100 36 9 old " sort ages alpha
show "3 " rpush names a b c
show "OK " set weight_a 5
show "OK " set weight_b 7
show "c a b " sort names by 'weight_*'
show "OK " set weight_c old
show "$error" sort names by 'weight_*'
show "4 " rpush odd 20 inf 0x10 ' 5'
show " 5 0x10 20 inf " sort odd
show "5 " rpush odd '7 '
show "$error" sort odd
show "1 " zadd scores 9007199254740993 a
show "9007199254740992 " zscore scores a
show "4 " zadd letters 1 a 2 b 1 c 2 d
show "c b d " zrangebylex letters '[c' '[d'
show "a " zrangebylex letters '[a' '[b'
exit $changed
