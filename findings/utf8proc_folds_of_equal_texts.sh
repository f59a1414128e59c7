#!/bin/bash
# utf8proc 2.8.0 (libutf8proc2 of Debian 12), with Unicode 15.0: folds of canonically equivalent texts.
#
#   1. utf8proc_NFKC_Casefold, the key by which many compare texts without case, gives two texts that NFC makes equal
#      different keys if the iota below (U+0345) is followed by an accent: it is folded to a letter before the marks
#      are put in order, and the accent lands on the iota. So U+1FB3 U+0301 and U+1FB4, the same letter, differ.
#   2. Decomposed first (NFD), as definition D145 of the Unicode standard asks for, both have one key.
#   3. Folding a key again changes nothing, so a test for that does not find it.
# hako decomposes words before it folds them: include/hako/table/words.h.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
download() { apt-get -o APT::Sandbox::User=root download -qq libutf8proc2; }
download 2>/dev/null || { apt-get update -qq && download; } || exit 2
dpkg -x libutf8proc2_*.deb root || exit 2
LD_LIBRARY_PATH=$dir/root/usr/lib/$(uname -m)-linux-gnu exec python3 - <<'PYTHON'
import ctypes
import sys

library = ctypes.CDLL("libutf8proc.so.2")
library.utf8proc_version.restype = library.utf8proc_unicode_version.restype = ctypes.c_char_p
versions = library.utf8proc_version().decode(), library.utf8proc_unicode_version().decode()
if versions != ("2.8.0", "15.0.0"):
    print("another version of utf8proc:", *versions)
    sys.exit(2)


def call(name, text):
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_char_p
    return function(text.encode()).decode()


def shown(text):
    return " ".join(f"{ord(c):04X}" for c in text)


changed = 0


def expect(what, found, expected):
    global changed
    print(f"{what}: {found}" + ("" if found == expected else f"  CHANGED, was {expected}"))
    changed |= found != expected


for first, second, key, other in [("\u1fb3\u0301", "\u1fb4", "03B1 03AF", "03AC 03B9"),
                                  ("\u03b1\u0345\u0301", "\u03b1\u0301\u0345", "03B1 03AF", "03AC 03B9")]:
    expect(f"{shown(first)} and {shown(second)} are equal by NFC", call("utf8proc_NFC", first) == call("utf8proc_NFC", second), True)
    for text, fold in ((first, key), (second, other)):
        folded = call("utf8proc_NFKC_Casefold", text)
        expect(f"  NFKC_Casefold of {shown(text)}", shown(folded), fold)
        expect("    folded again", shown(call("utf8proc_NFKC_Casefold", folded)), fold)
        expect("    of its NFD", shown(call("utf8proc_NFKC_Casefold", call("utf8proc_NFD", text))), other)
sys.exit(changed)
PYTHON
