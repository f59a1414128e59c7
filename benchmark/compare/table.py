#!/usr/bin/env python3
"""Runs the programs of table.h in turn and compares their times. hako_typed is hako with a column of integers.

    table.py --bin build/compare/benchmark/compare --dir /on/a/disk --rounds 3 --n 1000000

A line a phase: microseconds a row or query of each engine, the median of the rounds, and how much faster hako is. An engine whose results
differ from hako's ends the comparison.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ENGINES = ["hako", "hako_typed", "tokyo", "sqlite"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--ops", type=int, default=200_000)
    args = parser.parse_args()
    engines = [name for name in ENGINES if (args.bin / f"table_{name}").exists()]
    times, sums, phases = {}, {}, []
    for number in range(args.rounds):
        for engine in engines[number % len(engines):] + engines[:number % len(engines)]:
            command = [args.bin / f"table_{engine}", f"--n={args.n}", f"--ops={args.ops}", f"--dir={args.dir}"]
            for line in subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines():
                result = json.loads(line)
                phase = result["phase"]
                if phase not in phases:
                    phases.append(phase)
                times.setdefault((phase, engine), []).append(result["ns_per_op"] / 1000)
                if sums.setdefault(phase, result["sum"]) != result["sum"]:
                    sys.exit(f"{engine}: {phase} has other results")
    print(f"{'us':10}" + "".join(f"{engine:>12}" for engine in engines) + "   hako is faster by")
    for phase in phases:
        medians = [statistics.median(times[phase, engine]) for engine in engines]
        row = "".join(f"{median:12.2f}" for median in medians)
        print(f"{phase:10}{row}   " + "  ".join(f"{median / medians[0]:.2f}x" for median in medians[1:]))


if __name__ == "__main__":
    main()
