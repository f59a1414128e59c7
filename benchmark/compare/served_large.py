#!/usr/bin/env python3
"""A hako-server whose data is eight times its memory, beside fio on the same file.

    served_large.py --server build/package/bin/hako-server --bin build/compare/benchmark/compare --dir /on/a/disk

The server runs in a memory cgroup (version 1, as root) of an eighth of its file, and reads past the page cache. A loop thread
reads the records together that its clients ask for at the same time. A line a depth: that many clients have one request each
in flight, and fio has that many jobs. Requests a second of gets and of sets of random keys, those of fio with reads and with
writes of 4 KiB, and the ratios, the medians of the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

from served import Server, remove_files

PORT = 6391
GROUP = pathlib.Path("/sys/fs/cgroup/memory/served_large")


def start(args, threads, limited):
    command = [args.server, "--port", str(PORT), "--threads", str(threads), "--appendfsync", "no",
               "--db", f"{args.dir}/large.{args.kind}?direct,{args.options}"]
    enter = (lambda: (GROUP / "cgroup.procs").write_text(str(os.getpid()))) if limited else None
    return Server(command, PORT, enter)


def load(args, server, phase, ops, clients, depth=1, seed=0):
    options = dict(ops=ops, n=args.n, size=args.size, clients=clients, depth=depth, seed=seed)
    return server.load(args.bin / "served_table", phase, **options)["ops_per_s"]


def fio(file, rw, jobs, seconds):
    command = ["fio", "--name=x", f"--filename={file}", f"--rw={rw}", "--bs=4k", "--direct=1", "--ioengine=psync", "--thread", f"--numjobs={jobs}",
               "--group_reporting", "--time_based", f"--runtime={seconds}", "--output-format=json"]
    job = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)["jobs"][0]
    return job["read" if rw == "randread" else "write"]["iops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, type=pathlib.Path)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--dir", required=True, type=pathlib.Path)
    parser.add_argument("--kind", default="hkh")
    parser.add_argument("--options", default="block_cache_bytes=32mi", help="more options of the database")
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a value")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--threads", type=int, default=2, help="loop threads, at most one a client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    args = parser.parse_args()
    remove_files(args.dir, "large*")
    server = start(args, 1, False)
    load(args, server, "set", args.n, 50, 16)
    server.stop()
    file = args.dir / f"large.{args.kind}"
    other = args.dir / "large.fio"  # fio's writes would damage a database
    subprocess.run(["cp", file, other], check=True)
    GROUP.mkdir(exist_ok=True)
    limit = file.stat().st_size // 8
    (GROUP / "memory.limit_in_bytes").write_text(str(limit))
    print(f"file {file.stat().st_size / 1e6:.0f} MB, memory {limit / 1e6:.0f} MB")
    print(f"{'depth':>5}{'get':>10}{'read':>10}{'ratio':>7}{'set':>10}{'write':>10}{'ratio':>7}")
    for depth in args.depths:
        results = []
        for number in range(args.rounds):
            server = start(args, min(depth, args.threads), True)
            load(args, server, "fetch", 2000 * depth, depth)
            rate = load(args, server, "fetch", 2000 * depth, depth, seed=number)
            get = load(args, server, "fetch", rate * args.seconds, depth, seed=number + 10)
            read = fio(file, "randread", depth, args.seconds)
            set_ = load(args, server, "update", rate * args.seconds / 2, depth, seed=number + 20)
            server.stop()
            results.append((get, read, set_, fio(other, "randwrite", depth, args.seconds)))
        get, read, set_, write = (statistics.median(column) for column in zip(*results))
        ratios = [statistics.median(r[i] / r[i + 1] for r in results) for i in (0, 2)]
        print(f"{depth:5}{get:10.0f}{read:10.0f}{ratios[0]:7.2f}{set_:10.0f}{write:10.0f}{ratios[1]:7.2f}", flush=True)
    remove_files(args.dir, "large*")


if __name__ == "__main__":
    main()
