#!/usr/bin/env python3
"""Runs the programs of short_scans.h in turn and compares their times.

    short_scans.py --program hako=build/.../short_scans_hako_tree --program lmdb=build/.../short_scans_lmdb --rounds 7 'scan50 1' 'ycsb_e 2'
    short_scans.py ... 'load rnd 1' 'load rnd 2'        # each load is a command of every round

Each program is started once and, unless the commands are loads, filled with all records in random order first. A round gives each command
to each program in turn; who goes first changes from round to round. A ratio is taken within a round, of the first program's time to each
other's; above 1 the first is faster. Times are of the processors (cpu) and of the clock (wall).
"""
import argparse
import json
import statistics
import subprocess
import sys


class Program:
    def __init__(self, text, options):
        self.name, path = text.split("=", 1)
        self.process = subprocess.Popen([path] + options, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def obey(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name}: no answer to {command}")
        return json.loads(line)


def spread(numbers):
    return f"{statistics.median(numbers):10.2f} ({min(numbers):.2f} - {max(numbers):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--option", action="append", default=[], help="for the programs, as --option=--n=100000")
    parser.add_argument("commands", nargs="+")
    args = parser.parse_args()
    programs = [Program(text, args.option) for text in args.program]
    for program in programs:
        if not any(command.startswith("load") for command in args.commands):
            program.obey("load rnd 1")
    results = {(command, program.name): [] for command in args.commands for program in programs}
    for number in range(args.rounds):
        shift = number % len(programs)
        for command in args.commands:
            for program in programs[shift:] + programs[:shift]:
                results[command, program.name].append(program.obey(command))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    for command in args.commands:
        print(f"{command}: us an operation, median (least - most); {programs[0].name} is faster by")
        first = results[command, programs[0].name]
        for program in programs:
            lines = results[command, program.name]
            row = f"  {program.name:10}"
            for clock, field in (("cpu", "cpu_ns_per_op"), ("wall", "ns_per_op")):
                ratios = [line[field] / ours[field] for line, ours in zip(lines, first)]
                row += f"  {clock} {spread([line[field] / 1000 for line in lines])} {statistics.median(ratios):.2f}x"
            system = statistics.median(line["sys_ns_per_op"] / 1000 for line in lines)
            print(row + f"  system {system:.2f}, {statistics.median(line['switches'] for line in lines):.0f} switches")
    for program in programs:
        program.process.stdin.close()
        program.process.wait()


if __name__ == "__main__":
    main()
