#!/usr/bin/env python3
"""Runs every engine of one class of guarantees on the same workloads, and prints a table for each workload.

    field.py memory  --bin build/compare/benchmark/compare                    engines in memory
    field.py file    --bin ... --dir /on/a/real/disk                          files; nothing is durable before Close
    field.py process --bin ... --dir /on/a/real/disk --json field.json        files; a Set that has returned survives a kill
    field.py seed    --bin ... --dir /on/a/real/disk                          the table of Tokyo Cabinet's article of 2008
    field.py killed  --bin ... --dir /on/a/real/disk                          what is left after kill -9, with the libraries' defaults

Classes are never mixed in a table, because they do not do the same work. One process an engine and workload; the engines take turns, and who
goes first changes from round to round; medians. A Set of `file` includes its share of Close. An engine that fails, hangs or returns wrong
bytes has a row that says so. Times of engines that are not built are missing, and said so.

seed: a million keys of 8 digits, the value is the key; a process writes them, from Open to the end of Close, and another one reads them.
killed: 50,000 records, then Close; in a second process as many again as come before it has acknowledged 100,000 more and is killed with
SIGKILL; a third one opens the file. Engines with transactions commit, and acknowledge, every 1,000 records.
"""
import argparse
import json
import mmap
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import compare

# By class: hako's engines, with which the others are compared, then these.
FIELD = {
    "memory": (["hako_tiny", "hako_baby"], ["tkrzw_tiny", "tkrzw_baby", "tc_mdb", "kc_stash", "kc_cache", "kc_grass", "kc_prototree",
                                           "flat_hash_map", "std_unordered_map", "btree_map", "std_map", "cuckoo", "tbb"]),
    "file": (["hako_hash_none", "hako_tree_none"],
             ["tkrzw_hash", "tkrzw_tree", "tc_hash", "tc_tree", "kc_hash", "kc_tree", "qdbm_depot", "qdbm_villa", "bdb_hash", "bdb_tree", "gdbm",
              "ndbm", "tdb", "cdb", "lmdb", "sqlite", "rocksdb", "wiredtiger"]),
    "process": (["hako_hash", "hako_tree"], ["leveldb", "rocksdb", "lmdb", "sqlite", "bdb_hash", "bdb_tree", "wiredtiger"]),
}
IN_ORDER = {"hako_baby", "hako_tree", "hako_tree_none", "tkrzw_baby", "tkrzw_tree", "kc_grass", "kc_prototree", "kc_tree", "btree_map", "std_map",
            "tc_tree", "qdbm_villa", "bdb_tree", "lmdb", "sqlite", "leveldb", "rocksdb", "wiredtiger"}
SETTINGS = {"memory": "fast", "file": "fast", "process": "process"}
PACKAGES = ["libtkrzw1", "libtokyocabinet9", "libkyotocabinet16v5", "libqdbm14", "libdb5.3", "libgdbm6", "libgdbm-compat4", "libtdb1", "libcdb1",
            "liblmdb0", "libleveldb1d", "librocksdb7.8", "libsqlite3-0", "libwiredtiger0", "libtbb12", "libcuckoo-dev", "libabsl20220623"]
SEED = {"hash": ["hako_hash_none", "tc_hash", "qdbm_depot", "bdb_hash", "ndbm", "tdb", "cdb", "gdbm"],
        "B+ tree": ["hako_tree_none", "tc_tree", "qdbm_villa", "bdb_tree"]}
KILLED = ["hako_hash", "hako_tree", "tkrzw_hash", "tkrzw_tree", "tc_hash", "tc_tree", "kc_hash", "kc_tree", "qdbm_depot", "qdbm_villa", "bdb_hash",
          "bdb_tree", "gdbm", "ndbm", "tdb", "lmdb", "leveldb", "rocksdb", "sqlite", "wiredtiger"]
BEFORE, MORE, LIMIT_S = 50_000, 100_000, 60


def program(args, engine):
    return os.path.join(args.bin, engine)


def built(args, engines):
    missing = [engine for engine in engines if not os.access(program(args, engine), os.X_OK)]
    if missing:
        print("not built: " + ", ".join(missing), file=sys.stderr)
    return [engine for engine in engines if engine not in missing]


def execute(command):
    """The lines of a process; or what went wrong, as a text."""
    compare.settle()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S * 10)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode < 0:
        return f"ends with {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0][:80]


def session(args, directory, engine, kind, settings, first, end, *more):
    return [program(args, engine), f"--session={kind}", f"--from={first}", f"--to={end}", f"--dir={directory}", f"--settings={settings}", *more]


def clear(directory):
    for entry in os.scandir(directory):
        shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)


def run_class(args, directory):
    ours, peers = FIELD[args.what]
    engines = built(args, ours + peers)
    results = {}
    for number in range(args.rounds):
        for workload in args.workloads.split(","):
            shift = number % len(engines)
            for engine in engines[shift:] + engines[:shift]:
                command = [program(args, engine), f"--workload={workload}", f"--n={args.n}", f"--dir={directory}", f"--seed={args.seed}",
                           f"--settings={SETTINGS[args.what]}"]
                lines = execute(command)
                clear(directory)
                if args.what != "memory":
                    lines = with_load(lines, execute(command + ["--phase=none"]))
                    clear(directory)
                results.setdefault((workload, engine), []).append(lines)
        print(f"round {number + 1} of {args.rounds}, load {os.getloadavg()[0]:.2f}", file=sys.stderr)
    for workload in args.workloads.split(","):
        base = {}
        print(f"\n{workload}, {args.what}: ns an operation; in brackets how much faster hako is, {ours[1]} than engines in order, {ours[0]} than "
              f"the others\n\n| engine | {' | '.join(compare.PHASE_NAMES[phase] for phase in compare.PHASES)} | bytes a record |\n"
              f"|---|{'---|' * (len(compare.PHASES) + 1)}")
        for engine in engines:
            rounds = results[workload, engine]
            failures = [one for one in rounds if isinstance(one, str)]
            if failures:
                print(f"| {engine} | {failures[0]} ({len(failures)} of {len(rounds)}) |" + " |" * len(compare.PHASES))
                continue
            cells = []
            for phase in compare.PHASES:
                times = [time_of(one, phase, args.what) for one in rounds]
                if None in times:
                    cells.append("-")
                    continue
                middle = statistics.median(times)
                base.setdefault((phase, engine in IN_ORDER), middle)
                cells.append(f"{middle:,.0f}" + ("" if engine in ours else f" ({middle / base[phase, engine in IN_ORDER]:.1f})"))
            filled = next(line for line in rounds[0] if line["phase"] == ("fill" if args.what == "memory" else "load"))
            size = filled["anon_bytes" if args.what == "memory" else "file_bytes"]
            print(f"| {engine} | {' | '.join(cells)} | {size / filled['records']:.0f} |")
    return {f"{workload} {engine}": rounds for (workload, engine), rounds in results.items()}


def with_load(lines, loaded):
    """Adds the line `load`, of a process that only sets new records and closes: their time with Close, and the bytes of the file."""
    if isinstance(lines, str) or isinstance(loaded, str):
        return lines if isinstance(lines, str) else loaded
    of = {line["phase"]: line for line in loaded}
    fill, close = of["fill"], of["close"]
    return lines + [dict(fill, phase="load", ns_per_op=fill["ns_per_op"] + close["ns_per_op"] / fill["n"], file_bytes=close["file_bytes"])]


def time_of(lines, phase, what):
    """Of a Set of a new record with its share of Close where nothing is durable before that."""
    of = {line["phase"]: line for line in lines}
    return of.get("load" if what == "file" and phase == "fill" else phase, {}).get("ns_per_op")


def run_seed(args, directory):
    rows = [("hash", False), ("B+ tree", False), ("B+ tree", True)]
    results = {}
    for _ in range(args.rounds):
        for kind, is_random in rows:
            for engine in built(args, SEED[kind]):
                settings, more = ("seed_random", ["--random"]) if is_random else ("seed", [])
                pair = [execute(session(args, directory, engine, how, settings, 1, args.n + 1, f"--n={args.n}", *more)) for how in ("set", "get")]
                clear(directory)
                if not isinstance(pair[1], str) and pair[1][0]["found"] != args.n:
                    pair[1] = f"{args.n - pair[1][0]['found']} records are wrong or missing"
                results.setdefault((kind, is_random, engine), []).append(pair)
    print(f"\nSeconds for {args.n:,} records of 8 + 8 bytes, with Open and Close; medians of {args.rounds}\n\n| | engine | write | read |\n|---|---|---|---|")
    for (kind, is_random, engine), pairs in results.items():
        cells = [next((one for one in column if isinstance(one, str)), None) or f"{statistics.median(one[0]['ns'] for one in column) / 1e9:.3f}"
                 for column in zip(*pairs)]
        print(f"| {kind}, {'random' if is_random else 'ascending'} | {engine} | {cells[0]} | {cells[1]} |")
    return {" ".join(map(str, key)): pairs for key, pairs in results.items()}


def kill_one(args, directory, engine):
    """The outcome of one round: the JSON line of the process that opens the file, with `acknowledged`; or a text."""
    before = execute(session(args, directory, engine, "set", "default", 0, BEFORE, f"--n={BEFORE}"))
    if isinstance(before, str):
        return "the first session fails: " + before
    counter = os.path.join(directory, "counter")
    with open(counter, "wb") as file:
        file.write(bytes(4096))
    end = 40_000_000
    victim = subprocess.Popen(session(args, directory, engine, "set", "default", BEFORE, end, f"--n={BEFORE}", f"--counter={counter}"),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + LIMIT_S
    with open(counter, "r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
        def acknowledged():
            return int.from_bytes(memory[:8], "little")
        while acknowledged() < MORE and victim.poll() is None and time.time() < deadline:
            time.sleep(.002)
        victim.send_signal(signal.SIGKILL)
        if victim.wait() != -signal.SIGKILL:
            return "the process ends before it is killed"
        count = acknowledged()
    try:
        done = subprocess.run(session(args, directory, engine, "get", "default", 0, BEFORE + count, f"--n={BEFORE}", f"--split={BEFORE}"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"opening and reading take more than {LIMIT_S} s"
    if done.returncode < 0:
        return f"opening or reading ends with {signal.Signals(-done.returncode).name}"
    if not done.stdout:
        return "does not open: " + (done.stderr.strip().splitlines() or ["no text"])[0][:80]
    return dict(json.loads(done.stdout), acknowledged=count)


def run_killed(args, directory):
    results = {}
    for engine in built(args, KILLED):
        for _ in range(args.rounds):
            results.setdefault(engine, []).append(kill_one(args, directory, engine))
            clear(directory)
        print(f"{engine}: {results[engine][-1]}", file=sys.stderr)
    print(f"\nAfter kill -9, with the libraries' defaults, least to greatest of {args.rounds} rounds: percent of the records that were acknowledged in "
          f"the killed process, and of the {BEFORE:,} of a session that had been closed before\n\n"
          "| engine | acknowledged ones found | older ones found | wrong values | otherwise |\n|---|---|---|---|---|")
    for engine, rounds in results.items():
        good = [one for one in rounds if not isinstance(one, str)]
        texts = sorted({one for one in rounds if isinstance(one, str)})

        def between(shares):
            shares = [f"{100 * share:.1f}" for share in sorted(shares)]
            return "-" if not shares else shares[0] if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}"
        acknowledged = between([one["found"] / max(one["acknowledged"], 1) for one in good])
        older = between([one["found_before"] / BEFORE for one in good])
        wrong = sum(one["wrong"] + one["wrong_before"] for one in good)
        others = "; ".join(f"{text} ({sum(one == text for one in rounds)} of {len(rounds)})" for text in texts)
        print(f"| {engine} | {acknowledged} | {older} | {wrong} | {others} |")
    return results


def versions():
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*FIELD, "seed", "killed"])
    parser.add_argument("--bin", required=True, help="where the engines' programs are")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="the files go to a new folder here (%(default)s)")
    parser.add_argument("--n", type=int, default=1_000_000, help="operations a phase (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workloads", default=",".join(compare.WORKLOADS), help="(%(default)s)")
    parser.add_argument("--touch-gb", type=int, default=4, help="memory to touch and release first (%(default)s)")
    parser.add_argument("--json", help="everything measured goes here, too")
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="hako-field-", dir=args.dir)
    try:
        facts = dict(compare.host_facts(directory), packages=versions())
        compare.touch_memory(args.touch_gb)
        print(f"{facts['cpu']}, {facts['cpus']} CPUs, kernel {facts['kernel']}, {facts['file_system']}; commit {facts['commit']}, {facts['date']}")
        results = {"seed": run_seed, "killed": run_killed}.get(args.what, run_class)(args, directory)
    finally:
        shutil.rmtree(directory)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"host": facts, "arguments": vars(args), "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
