#!/usr/bin/env python3
"""Runs the programs of recovery.h: loads in random order beside LMDB, and openings after a kill.

    recovery.py --bin build/compare/benchmark/compare --dir /on/a/real/disk              # all
    recovery.py ... --rounds 3 load                                                      # loads only
    recovery.py ... open                                                                 # kills and openings only

`load`: a round loads all records into a new database of each engine, who goes first changes from round to round, and a ratio is taken within
a round. `open`: each database is loaded, its process ends as by a kill, and another process opens it and checks it. A scan is measured with a
positional file, whose index is always made again, once cached and once read from the device; a replay with a log of SET_AGAIN Sets.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

LOADS = {"hako_tree, kProcess": ("hako_tree", ["--durability=process"]), "hako_tree, kNone": ("hako_tree", ["--durability=none"]),
         "lmdb": ("lmdb", [])}
SET_AGAIN = 400000  # 58 MiB of log, which starts no checkpoint


class Program:
    def __init__(self, args, engine, options=()):
        self.name = engine
        self.file = os.path.join(args.dir, f"recovery.{os.getpid()}")
        command = [os.path.join(args.bin, "recovery_" + engine), f"--file={self.file}", f"--n={args.n}", f"--cache={args.cache}", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def obey(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else sys.exit(f"{self.name}: no answer to {command}")

    def kill(self):
        self.process.stdin.write("exit\n")
        self.process.stdin.close()
        self.process.wait()

    def remove(self):
        for file in glob.glob(glob.escape(self.file) + "*"):
            os.remove(file)


def spread(numbers):
    return f"{statistics.median(numbers):.2f} ({min(numbers):.2f} - {max(numbers):.2f})"


def loads(args):
    results = {name: [] for name in LOADS}
    for number in range(args.rounds):
        names = list(LOADS)
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            os.sync()
            program = Program(args, *LOADS[name])
            results[name].append(program.obey("load"))
            program.kill()
            program.remove()
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    print(f"Set new, {args.n} records of 16 + 100 bytes in random order, cache {args.cache} MiB: median (least - most)")
    for name, lines in results.items():
        ratios = [lmdb["ns_per_op"] / line["ns_per_op"] for line, lmdb in zip(lines, results["lmdb"])]
        median = {field: statistics.median(line[field] for line in lines) for field in ("cpu_ns_per_op", "written", "device_written")}
        print(f"  {name:20} {spread([line['ns_per_op'] for line in lines])} ns, processor {median['cpu_ns_per_op']:.0f} ns; {spread(ratios)} times "
              f"LMDB's speed; bytes a record: written {median['written']:.0f}, device {median['device_written']:.0f}")


def evict(file):
    """Has the kernel drop what it caches of the file."""
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def reopen(args, engine, options, commands=(), num_set=0):
    """Milliseconds to open what the process before has left, and bytes of the database; then obeys and is killed."""
    program = Program(args, engine, options)
    ms = program.obey("open")["ms"]
    size = os.stat(program.file).st_blocks * 512
    program.obey(f"check {num_set}")
    for command in commands:
        program.obey(command)
    program.kill()
    return ms, size


def judge(name, value, unit, need, at_most):
    met = value <= need if at_most else value >= need
    print(f"  {name:66} {value:10.2f} {unit:9} {'<=' if at_most else '>='} {need:<6} {'met' if met else 'MISSED'}")


def openings(args):
    print(f"opening {args.n} records of 16 + 100 bytes after a kill")
    again = f"set {SET_AGAIN}"

    def load(engine, options, *commands):
        program = Program(args, engine, options)
        for command in ("load", *commands):
            program.obey(command)
        program.kill()
        return program

    loaded = load("hako_hash", [])
    judge("HashDBM, mapped", reopen(args, "hako_hash", [])[0], "ms", 100, True)
    loaded.remove()

    loaded = load("hako_tree", [])
    large = ["--checkpoint=8192"]
    judge("TreeDBM, kProcess, after the load", reopen(args, "hako_tree", large, ["sync", again])[0], "ms", 1000, True)
    ms = reopen(args, "hako_tree", large, num_set=SET_AGAIN)[0]
    judge(f"TreeDBM, kProcess, {SET_AGAIN} Sets after a checkpoint", ms, "ms", 1000, True)
    judge("  replayed", SET_AGAIN / ms / 1e3, "M ops/s", 1, False)
    loaded.remove()

    loaded = load("hako_hash_pos", ["--durability=none"], "sync")
    scan, size = reopen(args, "hako_hash_pos", ["--durability=none"])
    judge("HashDBM, positional: scan, cached", size / scan / 1e3, "MB/s", 500, False)
    evict(loaded.file)
    cold, size = reopen(args, "hako_hash_pos", ["--durability=none"])
    judge("HashDBM, positional: scan, from the device", size / cold / 1e3, "MB/s", 500, False)
    reopen(args, "hako_hash_pos", [], ["sync", again])
    both = reopen(args, "hako_hash_pos", [], num_set=SET_AGAIN)[0]
    judge(f"HashDBM, positional, kProcess: replay of {SET_AGAIN} Sets", SET_AGAIN / max(both - scan, .01) / 1e3, "M ops/s", 1, False)
    loaded.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the databases are (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of loads (%(default)s)")
    parser.add_argument("--n", type=int, default=10000000, help="records (%(default)s)")
    parser.add_argument("--cache", type=int, default=4096, help="MiB for pages of a tree (%(default)s)")
    parser.add_argument("what", nargs="*", choices=["load", "open", []], help="(both)")
    args = parser.parse_args()
    mount = subprocess.run(["findmnt", "-no", "FSTYPE,SOURCE", "-T", args.dir], stdout=subprocess.PIPE, text=True)
    print(f"file system: {mount.stdout.strip()}")
    if "load" in args.what or not args.what:
        loads(args)
    if "open" in args.what or not args.what:
        openings(args)


if __name__ == "__main__":
    main()
