#!/bin/bash
# Tokyo Cabinet 1.4.48 (tokyocabinet-bin and libtokyocabinet9 1.4.48-15 of Debian 12): the numbers of texts in a table.
#
# Cells have no type; numeric conditions, orders and decimal indices read a number from the text of each.
#   1. The number is read up to the first byte that is no digit or point: 36x is equal to 36, and 1e3 is 1.
#   2. A text without one is 0: "old" and "0x10" are equal to 0, below 1, and between -5 and 9 in the order.
#   3. Rows that lack the column come last, ascending as well as descending: the one order is not the other reversed.
#   4. All of this is the same without an index, with a lexical and with a decimal one; only the order of the results
#      of a search without an order differs.
# In hako a text is no number: include/hako/table/value.h. Of its cast `numeric`, other texts are null.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
download() { apt-get -o APT::Sandbox::User=root download -qq tokyocabinet-bin=1.4.48-15 libtokyocabinet9=1.4.48-15; }
download 2>/dev/null || { apt-get update -qq && download; } || exit 2
for package in *.deb; do dpkg -x "$package" root || exit 2; done
export PATH=$dir/root/usr/bin:$PATH LC_ALL=C
export LD_LIBRARY_PATH=$dir/root/usr/lib/$(uname -m)-linux-gnu
tctmgr version | head -1 || exit 2

changed=0
show() {  # WHAT EXPECTED FOUND
  if [ "$2" = "$3" ]; then echo "$1: $3"; else echo "$1: $3  CHANGED, was $2"; changed=1; fi
}
in_order() { tctmgr search -ord age "$1" t.tct | tr '\n' ' '; }
sorted() { tctmgr search t.tct age "$@" | sort | tr '\n' ' '; }
for index in none lexical decimal; do
  echo "index: $index"
  rm -f t.tct*
  tctmgr create t.tct
  [ $index = none ] || tctmgr setindex -it $index t.tct age
  for text in 100 36 9 old 36.5 36x -5 1e3 0x10; do tctmgr put t.tct "$text" age "$text"; done
  tctmgr put t.tct lacks name x
  show "ascending" "-5 old 0x10 1e3 9 36 36x 36.5 100 lacks " "$(in_order NUMASC)"
  show "descending" "100 36.5 36 36x 9 1e3 old 0x10 -5 lacks " "$(in_order NUMDESC)"
  show "equal to 36" "36 36x " "$(sorted NUMEQ 36)"
  show "equal to 0" "0x10 old " "$(sorted NUMEQ 0)"
  show "below 1" "-5 0x10 old " "$(sorted NUMLT 1)"
done
exit $changed
