#!/usr/bin/env python3
"""Makes the corpora of texts.py from packages of Debian 12, with the queries and their expected counts.

    texts_corpora.py --out /on/a/disk/corpora [packages documents paths japanese]

    packages   the short descriptions of Debian 12 main, with six other columns, from apt's index of packages
    documents  manual pages and the kernel's documentation, from the packages below, which `apt-get download` gets
    paths      the files of the root file system, without those below /tmp: it differs between machines
    japanese   the lines of manpages-ja and manpages-ja-dev that have Japanese characters

Each corpus is three files. NAME.rows: the number of columns, their names, then the cells of all rows in the order of their keys, which are
the first column; the text is the last one. A number is 4 bytes, little-endian; a name or cell is its size and its bytes. NAME.words: in the
same form, the words of each text as hako has them (include/hako/table/words.h), joined by blanks. NAME.queries: lines of a kind, an
argument, the number of rows, and that number by SQLite's words. The queries depend on the corpus only:

    rare_word, frequent_word  words of letters that 2 to 9 rows have, evenly spaced; those of ranks 2, 3, 5, 8 ... 55 by rows
    two_words, not_word       both of two frequent words next to each other by rank; the first but not the second
    phrase                    three words in a row, of ranks 1, 2, 4 ... 128 in a sample
    rare_substring            10 characters that 1 to 9 rows have (5 of Japanese)
    frequent_substring        5 characters (3 of Japanese), of ranks 2, 3, 5, 8 ... 55 in a sample
    two_characters            of ranks 8, 13, 21 ... 233 in a sample
"""
import argparse
import collections
import glob
import gzip
import itertools
import os
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import unicodedata

MANUALS = ["manpages", "manpages-dev", "libssl-doc", "perl-doc", "erlang-manpages", "libx11-doc", "ncurses-doc", "tcl8.6-doc", "tk8.6-doc",
           "git-man", "libcurl4-doc", "postgresql-doc-15"]
KERNEL, JAPANESE = "linux-doc-6.1", ["manpages-ja", "manpages-ja-dev"]
RANKS = [2, 3, 5, 8, 13, 21, 34, 55]
DOCUMENT_MAX = 100_000  # characters; longer texts have more q-grams than TableLimits::kEntriesOfRow

# Default_Ignorable_Code_Point of DerivedCoreProperties.txt without the zero-width space, which ends a word.
IGNORED = [(0xad, 0xad), (0x34f, 0x34f), (0x61c, 0x61c), (0x115f, 0x1160), (0x17b4, 0x17b5), (0x180b, 0x180f), (0x200c, 0x200f),
           (0x202a, 0x202e), (0x2060, 0x206f), (0x3164, 0x3164), (0xfe00, 0xfe0f), (0xfeff, 0xfeff), (0xffa0, 0xffa0), (0xfff0, 0xfff8),
           (0x1bca0, 0x1bca3), (0x1d173, 0x1d17a), (0xe0000, 0xe0fff)]


def character_class(points):
    runs = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in runs)


class Words:
    """The words of a text, with a blank before, between and after them: those of hako, and those of FTS5's unicode61 with the categories of
    hako's words. The latter folds characters one by one, and characters that Unicode ignores end a word."""

    def __init__(self):
        ignored = {point for low, high in IGNORED for point in range(low, high + 1)}
        letters, marks = [], []
        for point in itertools.chain(range(0xd800), range(0xe000, 0x110000)):
            category = unicodedata.category(chr(point))
            if category[0] in "LN" or category in ("Pc", "Co", "Cn"):
                letters.append(point)
            elif category[0] == "M":
                marks.append(point)
        every = character_class(letters + marks)
        letters_of_hako = character_class(point for point in letters if point not in ignored)
        self.hako_run = re.compile(f"[{letters_of_hako}][{every}{character_class(sorted(ignored))}]*")
        self.sqlite_run = re.compile(f"[{every}]+")
        self.ascii_run = re.compile("[0-9A-Za-z_]+")
        self.ignored = re.compile(f"[{character_class(sorted(ignored))}]")
        self.folds = {}

    def fold(self, run):
        word = self.folds.get(run)
        if word is None:
            text = self.ignored.sub("", unicodedata.normalize("NFD", run))
            for _ in range(3):
                text = self.ignored.sub("", unicodedata.normalize("NFKC", text.casefold()))
            word = self.folds[run] = text.encode()[:200].decode(errors="ignore")
        return word

    def of_hako(self, text):
        if text.isascii():
            return f" {' '.join(self.ascii_run.findall(text.lower()))} "
        return f" {' '.join(run.lower() if run.isascii() else self.fold(run) for run in self.hako_run.findall(text))} "

    def of_sqlite(self, text):
        return f" {' '.join(run.lower() for run in self.sqlite_run.findall(text))} "


def output_of(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, **options).stdout


def package_files(names):
    """(package, path, bytes) of the regular files of packages, which are downloaded but not installed."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "-o", "APT::Sandbox::User=root", "download", "-qq", *names], cwd=folder, check=True)
        for file in sorted(glob.glob(f"{folder}/*.deb")):
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as archive:
                members = tarfile.open(fileobj=archive.stdout, mode="r|")
                for member in members:
                    if member.isfile():
                        yield os.path.basename(file).split("_")[0], member.name.removeprefix("./"), members.extractfile(member).read()


def packages():
    lines = output_of("apt-get", "indextargets", "--format", "$(FILENAME)", "Created-By: Packages", "Codename: bookworm", "Component: main",
                      "Label: Debian", text=True).split()
    if not lines:
        sys.exit("packages: apt has no index of Debian 12 main; run apt-get update")
    rows = {}
    for stanza in output_of("/usr/lib/apt/apt-helper", "cat-file", lines[0], text=True, encoding="utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.split("\n") if not line.startswith(" ") and ": " in line)
        if "Package" in fields:
            rows[fields["Package"]] = fields
    names = ["Package", "Version", "Architecture", "Section", "Maintainer", "Installed-Size", "Description"]
    return (["name", "version", "architecture", "section", "maintainer", "size", "text"],
            [[fields.get(name, "") for name in names] for fields in rows.values()])


def plain(manual):
    """A manual page without comments, names of requests and changes of font."""
    lines = [re.sub(r"^[.'][ \t]*[A-Za-z]+", "", line) for line in manual.split("\n") if not line.startswith(('.\\"', "'\\\""))]
    text = re.sub(r"\\f(\[[^]]*\]|\(..|.)|\\[&|^/,%]|\\s[-+]?\d", "", "\n".join(lines))
    return re.sub(r"\\\((..)|\\(.)", lambda escape: {"e": "\\", "aq": "'", "bu": "*"}.get(escape[1] or escape[2], escape[2] or " "), text)


def manual_pages(names, pattern):
    for package, path, data in package_files(names):
        if re.match(pattern, path):
            text = (gzip.decompress(data) if path.endswith(".gz") else data).decode("utf-8", "replace")
            if not text.startswith(".so "):
                yield package, path, plain(text)


def documents():
    rows = [[path.removeprefix("usr/share/man/"), package, text]
            for package, path, text in manual_pages(MANUALS, r"usr/share/man/man\w+/")]
    for package, path, data in package_files([KERNEL]):
        if re.search(r"/Documentation/.*\.(rst|txt)(\.gz)?$", path):
            rows.append([path.removeprefix("usr/share/doc/"), package,
                         (gzip.decompress(data) if path.endswith(".gz") else data).decode("utf-8", "replace")])
    return ["path", "package", "text"], [row for row in rows if len(row[-1]) <= DOCUMENT_MAX]


def paths():
    names, device = [], os.stat("/").st_dev
    for folder, folders, files in os.walk("/"):
        names += [os.path.join(folder, name) for name in folders + files]
        if folder == "/":
            folders.remove("tmp")
        folders[:] = [name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == device]
    valid = sorted(name for name in names if name.isprintable())
    return ["key", "text"], [[f"{number:08}", name] for number, name in enumerate(valid)]


def japanese():
    rows = []
    for _, path, text in manual_pages(JAPANESE, r"usr/share/man/ja/"):
        rows += [[path.removeprefix("usr/share/man/ja/"), str(number + 1), line.strip()] for number, line in enumerate(text.split("\n"))
                 if re.search("[\u3040-\u30ff\u4e00-\u9fff]", line)]
    return ["key", "page", "line", "text"], [[f"{number:08}", *row] for number, row in enumerate(rows)]


def write(file, columns, rows):
    with open(file, "wb") as out:
        out.write(struct.pack("<I", len(columns)))
        for row in [columns, *rows]:
            for cell in row:
                data = cell.encode()
                out.write(struct.pack("<I", len(data)) + data)


def ranked(counter, ranks, eligible):
    """Those of the ranks by count, then by themselves."""
    order = sorted((item for item in counter.items() if eligible(item[0])), key=lambda item: (-item[1], item[0]))
    return [order[rank - 1][0] for rank in ranks if rank <= len(order)]


def sample(texts, characters):
    """Every k-th text, so that they have about so many characters together."""
    return texts[::max(1, sum(map(len, texts)) // characters)]


def queries(texts, hako, sqlite, is_cjk):
    """(kind, argument, rows, rows by SQLite's words)"""
    counts = collections.Counter()
    for words in hako:
        counts.update(set(words.split()))
    is_word = str.isalpha if is_cjk else re.compile("[a-z]{2,30}").fullmatch
    frequent = ranked(counts, RANKS, is_word)
    next_ones = ranked(counts, [rank + 1 for rank in RANKS], is_word)
    rare = sorted(word for word, count in counts.items() if 2 <= count <= 9 and is_word(word) and 2 <= len(word) <= 30)
    rare = [rare[len(rare) * (2 * i + 1) // 16] for i in range(8)] if rare else []
    threes = collections.Counter()
    for words in sample(hako, 10_000_000):
        split = words.split()
        threes.update(set(zip(split, split[1:], split[2:])))
    phrases = [" ".join(three) for three in ranked(threes, [1 << i for i in range(8)], lambda three: all(map(is_word, three)))]

    def is_substring(text):
        return text.isprintable() and text.strip() == text and '"' not in text and not (is_cjk and re.search("[\0-\x7f]", text))

    def of_length(length, ranks):
        found = collections.Counter()
        for text in sample(texts, 2_000_000):
            found.update({text[i:i + length] for i in range(len(text) - length + 1)})
        return ranked(found, ranks, is_substring)

    def in_rows(piece, rows):
        return sum(piece in row for row in rows)

    rare_substrings, length = [], 5 if is_cjk else 10
    for i in range(1000):
        text = texts[len(texts) * (2 * i + 1) // 2000]
        piece = text[len(text) // 3:][:length]
        if len(rare_substrings) < 8 and len(piece) == length and is_substring(piece) and 1 <= in_rows(piece, texts) <= 9:
            rare_substrings.append(piece)

    for kind, words in [("rare_word", rare), ("frequent_word", frequent), ("phrase", phrases)]:
        for word in words:
            yield kind, word, in_rows(f" {word} ", hako), in_rows(f" {word} ", sqlite)
    for first, second in zip(frequent, next_ones):
        a, b = f" {first} ", f" {second} "
        yield "two_words", f"{first} {second}", *(sum(a in row and b in row for row in rows) for rows in (hako, sqlite))
        yield "not_word", f"{first} {second}", *(sum(a in row and b not in row for row in rows) for rows in (hako, sqlite))
    for kind, pieces in [("rare_substring", rare_substrings), ("frequent_substring", of_length(3 if is_cjk else 5, RANKS)),
                         ("two_characters", of_length(2, [8, 13, 21, 34, 55, 89, 144, 233]))]:
        for piece in pieces:
            yield kind, piece, in_rows(piece, texts), in_rows(piece, texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("corpora", nargs="*", default=["packages", "documents", "paths", "japanese"])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    words = Words()
    for name in args.corpora:
        columns, rows = {"packages": packages, "documents": documents, "paths": paths, "japanese": japanese}[name]()
        rows = sorted({row[0].encode(): row for row in rows}.items())  # by the bytes of their keys, each once
        rows = [row for _, row in rows]
        texts = [row[-1] for row in rows]
        hako, sqlite = [words.of_hako(text) for text in texts], [words.of_sqlite(text) for text in texts]
        write(args.out / f"{name}.rows", columns, rows)
        write(args.out / f"{name}.words", ["words"], ([text.strip()] for text in hako))
        asked = sorted(queries(texts, hako, sqlite, name == "japanese"), key=lambda query: query[0])
        (args.out / f"{name}.queries").write_text("".join("\t".join(map(str, query)) + "\n" for query in asked))
        num_bytes, num_words = sum(len(text.encode()) for text in texts), sum(len(text.split()) for text in hako)
        num_others = sum(a != b for a, b in zip(hako, sqlite))
        print(f"{name}: {len(rows):,} rows, {len(columns)} columns, {num_bytes:,} bytes of text, {num_words:,} words; "
              f"{num_others:,} texts have other words in SQLite")


if __name__ == "__main__":
    main()
