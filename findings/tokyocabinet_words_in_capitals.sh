#!/bin/bash
# Tokyo Cabinet 1.4.48 (tokyocabinet-bin and libtokyocabinet9 1.4.48-15 of Debian 12): searches of texts.
#
#   1. The full-text operators fold texts: case, accents, wide letters and repeated blanks do not count. FTSPH folds what is
#      sought, too. FTSAND and FTSOR do not: a word with a capital or an accent is in no row, not even in a row that has it.
#   2. A column with an index of q-grams is scanned for STRINC, the condition that compares bytes. Only the full-text operators use
#      the index, so no condition finds the rows with these very bytes by an index.
#   3. The rows are the same with the index and without it.
# In hako words are folded in texts and in queries, and an index of q-grams serves substrings of bytes: include/hako/table/condition.h.
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
search() { tctmgr search t.tct text "$@" | sort | tr '\n' ' '; }
way() { tctmgr search -ph t.tct text "$@" | grep -c 'using an index: "text"'; }
for index in none qgram; do
  echo "index: $index"
  rm -f t.tct*
  tctmgr create t.tct
  [ $index = none ] || tctmgr setindex -it $index t.tct text
  tctmgr put t.tct capitals text "PAGE CACHE"
  tctmgr put t.tct accent text "pàge cache"
  tctmgr put t.tct blanks text "page  cache"
  tctmgr put t.tct small text "page cache"
  for word in page PAGE pàge; do show "FTSPH $word" "accent blanks capitals small " "$(search FTSPH "$word")"; done
  for op in FTSAND FTSOR; do
    show "$op page" "accent blanks capitals small " "$(search $op page)"
    for word in PAGE pàge; do show "$op $word" "" "$(search $op "$word")"; done
  done
  show "FTSPH 'page cache'" "accent blanks capitals small " "$(search FTSPH "page cache")"
  show "STRINC 'page cache'" "small " "$(search STRINC "page cache")"
  show "FTSPH uses the index" $([ $index = none ] && echo 0 || echo 1) "$(way FTSPH page)"
  show "STRINC uses the index" 0 "$(way STRINC page)"
done
exit $changed
