#!/usr/bin/env python3
"""Runs the programs of snapshots.h in turn, and compares hako's snapshots with its own plain calls and with the best peer.

    snapshots.py --bin build/compare/benchmark/compare --dir /on/a/real/disk
    snapshots.py ... --seconds 60 --n 10000000 --rounds 3 'beside 4'

Each program is started once. A round gives each command to each program in turn; who goes first changes from round to round. A ratio is
taken within a round, and reported as the median, least and greatest over the rounds. An engine that cannot obey a command is left out.
"""
import argparse
import os
import statistics
import sys
import tempfile

from durable import Program, spread

HAKO = ["hako_tree", "hako_baby"]
PEERS = ["lmdb", "rocksdb"]
COMMANDS = ["take x", "get plain", "get snapshot", "set plain", "set snapshot", "scan plain", "scan snapshot", "captured x"]
# Without processes beside, or past the 32 GiB of the map: each of a million transactions copies the pages that the reader keeps.
LEFT_OUT = [("beside", "hako_baby"), ("beside", "rocksdb"), ("captured", "lmdb")]
BASES = {"get snapshot": "get plain", "set snapshot": "set plain", "scan snapshot": "scan plain", "captured x": "get plain"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the databases are (%(default)s)")
    parser.add_argument("--engines", default=",".join(HAKO + PEERS), help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=1, help="of each command (%(default)s)")
    parser.add_argument("--n", type=int, default=1000000, help="records of a database (%(default)s)")
    parser.add_argument("commands", nargs="*", default=COMMANDS)
    args = parser.parse_args()
    engines = [engine for engine in args.engines.split(",") if os.access(os.path.join(args.bin, "snapshots_" + engine), os.X_OK)]
    if not engines:
        sys.exit(f"no programs in {args.bin}")
    programs = [Program(engine, args, "snapshots_") for engine in engines]
    results = {}
    for number in range(args.rounds):
        shift = number % len(programs)
        for command in args.commands:
            for program in programs[shift:] + programs[:shift]:
                if (command.split()[0], program.name) in LEFT_OUT:
                    continue
                results.setdefault((command, program.name), []).append(program.obey(command))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    failed = [program.name for program in programs if program.end() != 0]

    def field(command, engine, name):
        return [line[name] for line in results.get((command, engine), []) if name in line]

    print(f"{args.rounds} rounds of {args.seconds} s, {args.n} records; medians (least - most)")
    for command in args.commands:
        print(command)
        for name in ("writes_per_s", "reads_per_s") if command.startswith("beside") else ("per_s",):
            best = [max(by_round) for by_round in zip(*(field(command, peer, name) for peer in PEERS if field(command, peer, name)))]
            for engine in engines:
                rates = field(command, engine, name)
                if not rates:
                    continue
                line = f"  {engine:10} {name:12} {statistics.median(rates):12.0f} ({min(rates):.0f} - {max(rates):.0f})"
                for other in ("ns", "open_us", "refresh_us", "file_bytes", "rss_bytes"):
                    if field(command, engine, other):
                        line += f"  {other} {statistics.median(field(command, engine, other)):.0f}"
                if engine in HAKO and best:
                    line += f"  best peer x {spread([a / b for a, b in zip(rates, best)])}"
                if command in BASES and field(BASES[command], engine, name):
                    line += f"  plain x {spread([a / b for a, b in zip(rates, field(BASES[command], engine, name))])}"
                print(line)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    sys.exit(main())
