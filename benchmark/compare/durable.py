#!/usr/bin/env python3
"""Runs the programs of durable.h in turn and says whether hako's figures of durable commits are met.

    durable.py --bin build/compare/benchmark/compare --dir /on/a/real/disk
    durable.py ... --engines raw,hako_tree,rocksdb --rounds 3 'commit 1 1' 'commit 16 1'

Each program is started once. A round gives each command to each program in turn; who goes first changes from round to round. A ratio is
taken within a round, and reported as the median, least and greatest over the rounds. `raw` is the device, the others of PEERS are compared
with hako by the best of them in the round. Let nothing else run: a thread that waits for a processor is late for its device.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HAKO = ["hako_tree", "hako_hash"]
PEERS = ["rocksdb", "lmdb", "sqlite"]
COMMANDS = ["commit 1 1", "commit 4 1", "commit 16 1", "commit 1 10", "commit 1 100", "commit 1 1000"]


class Program:
    def __init__(self, name, args, prefix="durable_", more=()):
        self.name = name
        command = [os.path.join(args.bin, prefix + name), f"--dir={args.dir}", f"--seconds={args.seconds}", f"--n={args.n}", *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def obey(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else sys.exit(f"{self.name}: no answer to {command}")

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def spread(numbers):
    return f"{statistics.median(numbers):.2f} ({min(numbers):.2f} - {max(numbers):.2f})"


class Figures:
    """Ratios by round of what was measured: results[command, engine] = [line, ...]."""

    def __init__(self, results, engines):
        self.results, self.engines = results, engines
        self.num_missed = 0

    def field(self, command, engine, field="commits_per_s"):
        return [line[field] for line in self.results[command, engine]] if (command, engine) in self.results else None

    def best_peer(self, command):
        peers = [self.field(command, peer) for peer in PEERS if peer in self.engines]
        return [max(by_round) for by_round in zip(*peers)] if peers else None

    def judge(self, name, ours, base, need, at_most=False):
        if not ours or not base:
            return
        ratios = [a / b for a, b in zip(ours, base)]
        middle = statistics.median(ratios)
        met = middle <= need if at_most else middle >= need
        self.num_missed += not met
        print(f"  {name:58} {'<=' if at_most else '>='} {need:<5} {spread(ratios):24} {'met' if met else 'MISSED'}")

    def judge_all(self, commands):
        for engine in [engine for engine in HAKO if engine in self.engines]:
            alone = "commit 1 1"
            for command in commands:
                _, threads, batch = command.split()
                ours, what = self.field(command, engine), f"{engine}, threads {threads}, batch {batch}"
                if threads == "1":
                    self.judge(f"{what} / overwrites of 4 KiB", ours, self.field(alone, "raw"), .9)
                self.judge(f"{what} / best peer", ours, self.best_peer(command), 1 if command == alone else 1.5)
                self.judge(f"{what}: p99 / rocksdb's", self.field(command, engine, "p99_us"), self.field(command, "rocksdb", "p99_us"), 1, True)
                if threads == "16":
                    self.judge(f"{what} / 1 thread", ours, self.field(alone, engine), 6)
            for field in ("written", "device_written"):
                written = self.field(alone, engine, field)
                self.judge(f"{engine}: KB a lone commit, {field}", written, [1000] * len(written or []), 8, True)


def print_table(results, commands, engines):
    for command in commands:
        print(f"{command}: medians; commits a second (least - most), microseconds, bytes a commit")
        for engine in engines:
            lines = results[command, engine]
            median = {field: statistics.median(line[field] for line in lines) for field in lines[0] if field != "engine"}
            rates = [line["commits_per_s"] for line in lines]
            print(f"  {engine:10} {median['commits_per_s']:10.0f} ({min(rates):.0f} - {max(rates):.0f})  p50 {median['p50_us']:.0f}  p99 {median['p99_us']:.0f}  "
                  f"longest {max(line['max_us'] for line in lines):.0f}  processor {median['cpu_us']:.1f}  written {median['written']:.0f}  "
                  f"device {median['device_written']:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the databases are (%(default)s)")
    parser.add_argument("--engines", default=",".join(["raw"] + HAKO + PEERS), help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=1, help="of each command (%(default)s)")
    parser.add_argument("--n", type=int, default=100000, help="records of a database (%(default)s)")
    parser.add_argument("commands", nargs="*", default=COMMANDS)
    args = parser.parse_args()
    engines = [engine for engine in args.engines.split(",") if os.access(os.path.join(args.bin, "durable_" + engine), os.X_OK)]
    programs = [Program(engine, args) for engine in engines]
    os.sync()  # what making the databases has left behind
    results = {(command, engine): [] for command in args.commands for engine in engines}
    for number in range(args.rounds):
        shift = number % len(programs)
        for command in args.commands:
            for program in programs[shift:] + programs[:shift]:
                results[command, program.name].append(program.obey(command))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    failed = [program.name for program in programs if program.end() != 0]
    mount = subprocess.run(["findmnt", "-no", "FSTYPE,SOURCE", "-T", args.dir], stdout=subprocess.PIPE, text=True)
    print(f"file system: {mount.stdout.strip()}; {args.rounds} rounds of {args.seconds} s, {args.n} records")
    print_table(results, args.commands, engines)
    figures = Figures(results, engines)
    figures.judge_all(args.commands)
    if failed:
        sys.exit("failed: " + ", ".join(failed))
    return 1 if figures.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
