#!/usr/bin/env python3
"""Runs the programs of transactions.h in turn, and compares hako's transactions with its own single operations and with the best peer.

    transactions.py --bin build/compare/benchmark/compare --dir /on/a/real/disk [--durability power]

Each program is started once. A round gives each command to each program in turn; who goes first changes from round to round. A ratio is
taken within a round, and reported as the median, least and greatest over the rounds.
"""
import argparse
import os
import statistics
import sys
import tempfile

from durable import Program, spread

HAKO = ["hako_hash", "hako_tree"]
PEERS = ["rocksdb_optimistic", "rocksdb_pessimistic", "lmdb", "sqlite"]
COMMANDS = ["single 1", "transact 1", "single 2", "transact 2", "zipf 8"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the databases are (%(default)s)")
    parser.add_argument("--engines", default=",".join(HAKO + PEERS), help="(%(default)s)")
    parser.add_argument("--durability", default="none", choices=["none", "power"], help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=1, help="of each command (%(default)s)")
    parser.add_argument("--n", type=int, default=1000000, help="records of a database (%(default)s)")
    args = parser.parse_args()
    engines = [engine for engine in args.engines.split(",") if os.access(os.path.join(args.bin, "transactions_" + engine), os.X_OK)]
    programs = [Program(engine, args, "transactions_", [f"--durability={args.durability}"]) for engine in engines]
    results = {(command, engine): [] for command in COMMANDS for engine in engines}
    for number in range(args.rounds):
        shift = number % len(programs)
        for command in COMMANDS:
            for program in programs[shift:] + programs[:shift]:
                results[command, program.name].append(program.obey(command))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    failed = [program.name for program in programs if program.end() != 0]

    def field(command, engine, name):
        return [line[name] for line in results[command, engine]]

    print(f"durability {args.durability}, {args.rounds} rounds of {args.seconds} s, {args.n} records; medians")
    for command in COMMANDS:
        print(f"{command}: a second (least - most), tries, longest run of aborts, longest time of one in us")
        peers = [field(command, peer, "per_s") for peer in PEERS if peer in engines]
        best = [max(by_round) for by_round in zip(*peers)] if peers else []
        for engine in engines:
            rates = field(command, engine, "per_s")
            line = f"  {engine:20} {statistics.median(rates):10.0f} ({min(rates):.0f} - {max(rates):.0f})  {statistics.median(field(command, engine, 'tries')):.3f}" \
                   f"  {max(field(command, engine, 'longest_run'))}  {statistics.median(field(command, engine, 'longest_us')):.0f}"
            if engine in HAKO and best:
                line += f"  best peer x {spread([a / b for a, b in zip(rates, best)])}"
            if engine in HAKO and command.startswith("transact"):
                alone = field(command.replace("transact", "single"), engine, "per_s")
                line += f"  four operations x {spread([a / b for a, b in zip(rates, alone)])}"
            print(line)
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
