#!/bin/bash
# SQLite 3.46.0 (apsw 3.46.0.1 of PyPI): what a column of type INTEGER makes of texts.
#
#   1. '9007199254740993' is stored exactly; '9007199254740993.0' is stored as the integer 9007199254740992, and
#      '9223372036854775808' as a real. No error tells that a digit was lost.
#   2. '1e400' is stored as infinity.
#   3. 'old' stays a text, and as such is above all numbers: it is found by x >= 20, and is the maximum.
#   4. ' 12 ' is 12, '12 a' a text, and '0x10' a text although 0x10 without quotes is 16.
# hako refuses all of these in a column of int64 but the first: include/hako/table/schema.h.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$dir" apsw==3.46.0.1 || exit 2
PYTHONPATH=$dir python3 - <<'PYTHON'
import sys
import apsw

print("SQLite", apsw.sqlite_lib_version())
db = apsw.Connection(":memory:")
changed = 0


def show(what, found, expected):
    global changed
    changed += repr(found) != repr(expected)
    print(f"{what}: {found!r}", "" if repr(found) == repr(expected) else f"  CHANGED, was {expected!r}")


for text, expected in [
    ("'9007199254740993'", 9007199254740993),
    ("'9007199254740993.0'", 9007199254740992),
    ("'9223372036854775808'", 9.223372036854776e18),
    ("'1e400'", float("inf")),
    ("' 12 '", 12),
    ("'12 a'", "12 a"),
    ("'0x10'", "0x10"),
    ("0x10", 16),
]:
    db.execute("drop table if exists t")
    db.execute("create table t (x integer)")
    db.execute(f"insert into t values ({text})")
    show(f"{text} is stored as", db.execute("select x from t").fetchall()[0][0], expected)
db.execute("delete from t")
db.execute("insert into t values (100), ('old'), (9)")
show("x >= 20 of 100, 'old', 9", [row[0] for row in db.execute("select x from t where x >= 20 order by x")], [100, "old"])
show("max(x), sum(x)", db.execute("select max(x), sum(x) from t").fetchall()[0], ("old", 109.0))
sys.exit(1 if changed else 0)
PYTHON
