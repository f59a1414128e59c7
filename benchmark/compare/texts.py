#!/usr/bin/env python3
"""Runs the programs of texts.h in turn on the corpora of texts_corpora.py, and compares hako with SQLite's FTS5, Xapian and Tokyo Cabinet.

    texts_corpora.py --out /on/a/disk/corpora
    texts.py --bin build/compare/benchmark/compare --dir /on/a/disk --corpora /on/a/disk/corpora --rounds 5 [packages ...]

Prints a table for each corpus: the medians of the rounds, and the median of the rounds' ratios. For bytes the ratio is hako's divided by
SQLite's. For times it is how much faster hako is than SQLite or, for queries, than the fastest other engine. FTS5 merges its segments
('optimize') before its bytes are counted; that time has a separate line. An engine whose counts or first rows differ ends the comparison.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

POSITIONS = "positions"  # hako with the positions of words and substrings
ENGINES = ["hako", POSITIONS, "sqlite", "xapian", "tokyo"]
QUERIES = ["rare_word", "frequent_word", "two_words", "phrase", "not_word", "rare_substring", "frequent_substring", "two_characters"]
IN_ORDER = {"hako", POSITIONS, "sqlite", "xapian"}  # their first rows are the same


def program(args, engine):
    return args.bin / f"texts_{'hako' if engine == POSITIONS else engine}"


def run(args, engine, corpus, lines):
    """The lines of one run by (phase, kind)."""
    command = [program(args, engine), f"--corpus={args.corpora / corpus}", f"--dir={args.dir}", f"--batch={args.batch}",
               f"--singles={args.singles}", f"--seconds={args.seconds}", f"--budget={args.budget}"]
    if engine == POSITIONS:
        command.append("--positions=1")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{corpus}: {engine} ended with {done.returncode}")
    if lines:
        lines.write(done.stdout)
        lines.flush()
    return {(line["phase"], line.get("kind")): line for line in map(json.loads, done.stdout.splitlines())}


def check_first_rows(corpus, one_round, own_words):
    for kind in QUERIES:
        sums = {engine: one_round[engine]["first", kind]["sum"] for engine in IN_ORDER & one_round.keys()
                if ("first", kind) in one_round[engine] and (engine != "sqlite" or kind not in own_words)}
        if len(set(sums.values())) > 1:
            sys.exit(f"{corpus}: the first rows of {kind} differ: {sums}")


def field(phase, kind, name, unit=1.0):
    return lambda lines: lines[phase, kind][name] / unit if (phase, kind) in lines else None


def added(phase, kind, name, base):
    def of(lines):
        if (phase, kind) not in lines or base not in [key[:2] for key in lines]:
            return None
        before = lines[base]["compact_bytes" if name == "compact_bytes" or phase == "build" and base[0] == "import" else "bytes"]
        return (lines[phase, kind][name] - before) / 1e6
    return of


def figures():
    """(name, digits, value of an engine's lines, peers, at most or at least, need). Without peers the need is of hako's value."""
    none, words = ("import", "none"), ("build", "words")
    for kind, index in (("words", "word index"), ("grams", "substring index")):
        yield f"MB added by a {index}, import", 2, added("import", kind, "bytes", none), ["sqlite"], "<=", 1.0
        yield f"MB added by a {index}, import, rebuilt", 2, added("import", kind, "compact_bytes", none), ["sqlite"], "<=", 1.0
        yield f"MB added by a {index}, build", 2, added("build", kind, "bytes", none if kind == "words" else words), ["sqlite"], "<=", 1.0
    yield "MB of the rows", 2, field(*none, "bytes", 1e6), [], None, None
    yield "import of the rows, s", 3, field(*none, "seconds"), ["sqlite"], ">=", None
    for kind, index in (("words", "word index"), ("grams", "substring index")):
        yield f"import with a {index}, s", 3, field("import", kind, "seconds"), ["sqlite"], ">=", 1.5
        yield "  merging, s", 3, field("import", kind, "merge_seconds"), [], None, None
        yield "  closing, s", 3, field("import", kind, "close_seconds"), [], None, None
        yield "  peak memory, MB", 0, field("import", kind, "peak_kb", 1e3), [], None, None
    for kind, index in (("words", "word index"), ("grams", "substring index")):
        yield f"build of a {index}, s", 3, field("build", kind, "seconds"), ["sqlite"], ">=", 2.0
        yield "  merging, s", 3, field("build", kind, "merge_seconds"), [], None, None
        yield "  peak memory, MB", 0, field("build", kind, "peak_kb", 1e3), [], None, None
    for phase in ("put", "update", "remove"):
        yield f"{phase} one row, both indices, us, median", 1, field(phase, "both", "ns", 1e3), ["sqlite"], ">=", 2.0
        yield "  mean, us", 1, field(phase, "both", "mean_ns", 1e3), ["sqlite"], ">=", None
        yield "  longest, ms", 2, field(phase, "both", "longest_ns", 1e6), [], "<=", 20.0
        yield "  operations", 0, field(phase, "both", "ops"), [], None, None
    for kind in QUERIES:
        for phase in ("count", "first"):
            name = f"{kind.replace('_', ' ')}, {'first 10' if phase == 'first' else 'count'}, us"
            yield name, 1, field(phase, kind, "ns", 1e3), ENGINES[2:], ">=", 2.0


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def report(corpus, engines, rounds):
    first = rounds[0][engines[0]]["corpus", None]
    print(f"\n{corpus}: {first['rows']:,} rows of {first['columns']} columns, {len(rounds)} round{'s' * (len(rounds) > 1)}")
    print(f"{'':46}" + "".join(f"{engine:>12}" for engine in engines) + f"{'ratio':>9}  aim")
    num_met = num_aims = 0
    for name, digits, value, peers, sign, need in figures():
        values = {engine: [value(one_round[engine]) for one_round in rounds] for engine in engines}
        middles = [median(values[engine]) for engine in engines]
        row = "".join(f"{'-' if middle is None else f'{middle:,.{digits}f}':>12}" for middle in middles)
        ratios = []
        for number, ours in enumerate(values["hako"]):
            others = [values[peer][number] for peer in peers if peer in engines and values[peer][number] is not None]
            if others and ours:
                ratios.append(ours / others[0] if sign == "<=" else min(others) / ours)
        ratio = median(ratios)
        verdict = " " * 9 if ratio is None else f"{ratio:8.2f}x" if ratio >= .1 else f"{ratio:8.1g}x"
        judged = ratio if peers else max(values["hako"]) if sign else None
        if need and judged is not None:
            is_met = judged <= need if sign == "<=" else judged >= need
            num_met, num_aims = num_met + is_met, num_aims + 1
            verdict += f"  {sign} {need:g} {'met' if is_met else 'MISSED'}"
        print(f"{name:46}{row}{verdict}")
    print(f"{corpus}: {num_met} of {num_aims} aims met")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--dir", required=True, type=pathlib.Path, help="where the tables are")
    parser.add_argument("--corpora", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default=",".join(ENGINES), help="%(default)s")
    parser.add_argument("--batch", type=int, default=8000, help="most rows in one step of an import, which has 2 MiB at most (%(default)s)")
    parser.add_argument("--singles", type=int, default=100_000, help="single rows put, updated and removed (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="at most for the single rows put, and for those updated (%(default)s)")
    parser.add_argument("--budget", type=float, default=.2, help="seconds for each kind of query (%(default)s)")
    parser.add_argument("--lines", type=argparse.FileType("a"), help="a file for the lines of the programs")
    parser.add_argument("names", nargs="*", metavar="corpus", help="(all)")
    args = parser.parse_args()
    engines = [engine for engine in ENGINES if engine in args.engines.split(",") and program(args, engine).exists()]
    if "hako" not in engines:
        sys.exit(f"{args.bin} has no texts_hako")
    for corpus in args.names or sorted(file.stem for file in args.corpora.glob("*.queries")):
        asked = [line.split("\t") for line in (args.corpora / f"{corpus}.queries").read_text().splitlines()]
        own_words = {kind for kind, _, count, own_count in asked if count != own_count}
        for kind, argument, count, own_count in asked:
            if count != own_count:
                print(f"{corpus}: {kind} '{argument}': {count} rows, but {own_count} by SQLite's words")
        rounds = []
        for number in range(args.rounds):
            shift = number % len(engines)
            rounds.append({engine: run(args, engine, corpus, args.lines) for engine in engines[shift:] + engines[:shift]})
            check_first_rows(corpus, rounds[-1], own_words)
        report(corpus, engines, rounds)


if __name__ == "__main__":
    main()
