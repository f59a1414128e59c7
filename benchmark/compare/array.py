#!/usr/bin/env python3
"""Runs the programs of array.h in turn and prints medians: nanoseconds an operation, and bytes of the file a record.

    array.py --bin build/compare/benchmark/compare --width 8 --width 100 --rounds 5
    array.py --bin ... --engine array_hako --engine array_tcfdb_mutex --option=--threads=2

A round runs each program once; who goes first changes from round to round.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ENGINES = ["array_mapped", "array_hako_memory", "array_hako_none", "array_hako", "array_tcfdb", "array_tcfdb_mutex"]
PHASES = ["fill", "set", "get", "scan", "append"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the folder of the programs")
    parser.add_argument("--width", type=int, action="append", help="bytes of a record; default 8 and 100")
    parser.add_argument("--engine", action="append", help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--dir", default="/tmp")
    parser.add_argument("--option", action="append", default=[], help="for the programs, as --option=--threads=2")
    args = parser.parse_args()
    engines = [e for e in args.engine or ENGINES if os.path.exists(os.path.join(args.bin, e))]
    for width in args.width or [8, 100]:
        times = {}
        for number in range(args.rounds):
            shift = number % len(engines)
            for engine in engines[shift:] + engines[:shift]:
                command = [os.path.join(args.bin, engine), f"--width={width}", f"--n={args.n}", f"--dir={args.dir}"] + args.option
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(f"{engine}: {done.stderr}")
                for line in map(json.loads, done.stdout.splitlines()):
                    times.setdefault((engine, line["phase"]), []).append(line.get("ns_per_op", line.get("bytes")))
            print(f"width {width}, round {number + 1} of {args.rounds}", file=sys.stderr)
        print(f"\n| {width} bytes | " + " | ".join(PHASES) + " | bytes a record |\n|---" + "|---" * (len(PHASES) + 1) + "|")
        for engine in engines:
            cells = [f"{statistics.median(times[engine, phase]):.1f}" for phase in PHASES]
            size = statistics.median(times[engine, "size"])
            cells.append(f"{size / (args.n + args.n // 10):.1f}" if size < 1 << 60 else "-")
            print(f"| {engine} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
