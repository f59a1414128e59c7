#!/bin/bash
# SQLite 3.46.0 (apsw 3.46.0.1 of PyPI): whether an integer equals the literal '36' depends on the expression around it.
#
# A column has an affinity, which converts the other side of a comparison; an expression has none, except some. So
# with one row whose column i, an INTEGER, is 36:
#   1. i = '36' and '36' = i hold, also for (select i ...), i collate nocase and cast. +i = '36', coalesce(i, 0) = '36',
#      min(i) = '36' and iif(1, i, 0) = '36' do not.
#   2. i in ('36') holds, '36' in (i) does not, and '36' in (select i from t) holds again.
#   3. In a view or subquery of i it holds. Once that is a union, even of integers only, it does not: the integer 36 is
#      no longer equal to '36', whichever part is written first.
# hako converts only a literal beside a column, or beside numeric(column): include/hako/table/value.h.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$dir" apsw==3.46.0.1 || exit 2
PYTHONPATH=$dir python3 - <<'PYTHON'
import sys
import apsw

print("SQLite", apsw.sqlite_lib_version())
db = apsw.Connection(":memory:")
db.execute("create table t (i integer, s text)")
db.execute("insert into t values (36, '36')")
expected = [
    ("i = '36'", "t", [1]),
    ("'36' = i", "t", [1]),
    ("(select i from t) = '36'", "t", [1]),
    ("+i = '36'", "t", [0]),
    ("coalesce(i, 0) = '36'", "t", [0]),
    ("iif(1, i, 0) = '36'", "t", [0]),
    ("min(i) = '36'", "t", [0]),
    ("i in ('36')", "t", [1]),
    ("'36' in (i)", "t", [0]),
    ("'36' in (select i from t)", "t", [1]),
    ("i = '36'", "(select i from t)", [1]),
    ("i = '36'", "(select i from t union select 5)", [0, 1]),
    ("i = '36'", "(select i from t union all select s from t)", [0, 1]),
    ("i = '36'", "(select s as i from t union all select i from t)", [1, 0]),
]
changed = 0
for expression, source, result in expected:
    found = [row[0] for row in db.execute(f"select {expression} from {source}")]
    changed += found != result
    print(f"select {expression} from {source}: {found}", "" if found == result else f"  CHANGED, was {result}")
sys.exit(1 if changed else 0)
PYTHON
