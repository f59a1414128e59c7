#!/bin/bash
# Xapian 1.4.22 (python3-xapian and libxapian30 1.4.22-1 of Debian 12): long words of a text.
#
#   1. TermGenerator leaves out a word of more than 64 bytes without an error. QueryParser does not, so a text is not found
#      by its own word. In Japanese the text up to the next punctuation is a word unless a flag says otherwise: a clause of
#      22 characters is lost.
#   2. The word has no position either, so the words around it are neighbours: the phrase "page cache" is in a text that has
#      such a word between the two, and the phrase of the three words is not.
# hako cuts a word after 200 bytes, in texts and in queries, and it keeps its place: include/hako/table/words.h.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
download() { apt-get -o APT::Sandbox::User=root download -qq python3-xapian=1.4.22-1 libxapian30=1.4.22-1; }
download 2>/dev/null || { apt-get update -qq && download; } || exit 2
for package in *.deb; do dpkg -x "$package" root || exit 2; done
export PYTHONPATH=$dir/root/usr/lib/python3/dist-packages LD_LIBRARY_PATH=$dir/root/usr/lib/$(uname -m)-linux-gnu
/usr/bin/python3 -c 'import xapian' || exit 2
exec /usr/bin/python3 - <<'PYTHON'
import sys
import xapian

changed = 0


def expect(what, text, query, expected):
    """Whether the text is found."""
    global changed
    database = xapian.WritableDatabase("", xapian.DB_BACKEND_INMEMORY)
    document, generator, parser = xapian.Document(), xapian.TermGenerator(), xapian.QueryParser()
    generator.set_document(document)
    generator.index_text(text)
    database.add_document(document)
    enquire = xapian.Enquire(database)
    enquire.set_query(parser.parse_query(query))
    found = enquire.get_mset(0, 10).size()
    print(f"{what}: {found}" + ("" if found == expected else f"  CHANGED, was {expected}"))
    changed |= found != expected


print("Xapian", xapian.version_string())
for size, is_there in ((64, 1), (65, 0)):
    word = "x" * size
    text = f"page {word} cache"
    expect(f"a word of {size} bytes between two", text, word, is_there)
    expect("  the phrase of the two", text, '"page cache"', 1 - is_there)
    expect("  the phrase of the three", text, f'"{text}"', is_there)
for size, is_there in ((21, 1), (22, 0)):
    expect(f"a clause of {size} Japanese characters", "\u3042" * size + "。", "\u3042" * size, is_there)
sys.exit(changed)
PYTHON
