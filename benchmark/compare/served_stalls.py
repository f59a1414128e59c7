#!/usr/bin/env python3
"""Waits of single requests beside the longer work of a server: hako-server, and redis-server, under the load of served_table.cc.

    served_stalls.py --server build/package/bin/hako-server --bin build/compare/benchmark/compare --dir /on/a/disk [--kinds hkh hkt redis]

Server and load have a processor each. The peak is what 50 clients get with one request each in flight; the load is then half of it, at
fixed times, whatever the server does. A line a work: the median, 99th and 99.9th percentile and longest time in microseconds from the
time that a request was due until its reply, and at which second the longest was. The first line shows how long the machine itself stops
a thread that only reads the clock.
"""
import argparse
import pathlib
import subprocess
import threading
import time

import served

PORT = 6390


class Server(served.Server):
    def __init__(self, args, kind):
        served.remove_files(args.dir, "stalls*")
        self.args = args
        if kind == "redis":
            command = ["redis-server", "--port", str(PORT), "--dir", args.dir, "--dbfilename", "stalls.rdb", "--save", "", "--daemonize", "no"]
        else:
            suffix, _, more = kind.partition("?")
            command = [args.server, "--port", str(PORT), "--db", f"{args.dir}/stalls.{suffix}" + (f"?{more}" if more else ""), "--appendfsync", "no",
                       "--backup-dir", args.dir]
        super().__init__(["taskset", "-c", "0", *command], PORT)

    def load(self, phase, ops, **options):
        pin = ["taskset", "-c", "1"]
        return super().load(self.args.bin / "served_table", phase, pin, ops=ops, n=self.args.n, size=self.args.size, **options)


def show(kind, work, result, note=""):
    print(f"{kind:16}{work:12}{result['ops_per_s']:10.0f}{result['p50_us']:9.0f}{result['p99_us']:9.0f}{result['p999_us']:9.0f}"
          f"{result['max_us']:9.0f}{result['latest_s']:8.2f}  {note}", flush=True)


def beside(server, start, seconds, phase, rate, **options):
    took = []

    def work():
        time.sleep(1)
        begin = time.time()
        reply = server.cli(*start)
        if start[0] == "bgsave":
            while "rdb_bgsave_in_progress:1" in server.cli("info", "persistence"):
                time.sleep(0.05)
        took.append(f"{time.time() - begin:.2f} s, {reply}")

    thread = threading.Thread(target=work)
    thread.start()
    result = server.load(phase, rate * seconds, clients=50, rate=rate, **options)
    thread.join()
    return result, took[0]


def run_kind(args, kind):
    works = args.works
    server = Server(args, kind)
    server.load("set", args.n, clients=50, depth=16)
    peak16 = server.load("update", 1_000_000, clients=50, depth=16, seed=1)["ops_per_s"]
    peak = server.load("update", 300_000, clients=50, depth=1, seed=2)
    show(kind, "peak", peak, f"depth 16: {peak16:.0f}")
    rate = args.rate or peak["ops_per_s"] / 2
    seconds = args.seconds
    plain = dict(clients=50, rate=rate)
    if "idle" in works:
        show(kind, "gets", server.load("fetch", rate * seconds, **plain))
        show(kind, "sets", server.load("update", rate * seconds, seed=3, **plain))
    if "backup" in works:
        start = ["bgsave"] if kind == "redis" else ["hako.backup", "stalls.copy"]
        show(kind, "sets, copy", *beside(server, start, seconds, "update", rate, seed=4))
        show(kind, "gets, copy", *beside(server, start, seconds, "fetch", rate, seed=4))
    if "growth" in works:
        show(kind, "growth", server.load("set", rate * seconds * 2, first=args.n, **plain))
    if "expiry" in works:
        before = int(server.cli("dbsize"))
        server.load("expiring", args.n, clients=50, depth=16, seed=5, expire=3000)
        time.sleep(2)
        show(kind, "gets, expiry", server.load("fetch", rate * seconds * 2, **plain), f"{before - int(server.cli('dbsize'))} removed")
    if "everysec" in works and kind != "redis":
        server.cli("config", "set", "appendfsync", "everysec")
        show(kind, "everysec", server.load("update", rate * seconds * 2, seed=6, **plain))
        show(kind, "  growth", server.load("set", rate * seconds * 2, first=args.n + 2_000_000, **plain))
    server.stop()
    if "checkpoint" in works and kind.startswith("hkt"):
        server = Server(args, kind + "?sync_interval=1000")
        server.load("set", args.n, clients=50, depth=16)
        show(kind, "checkpoints", server.load("update", rate * seconds * 2, seed=7, **plain))
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, type=pathlib.Path)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--dir", required=True, type=pathlib.Path)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rate", type=int, default=0, help="requests a second instead of half the peak")
    parser.add_argument("--kinds", nargs="+", default=["hkh", "hkt", "redis"])
    parser.add_argument("--works", nargs="+", default=["idle", "backup", "growth", "expiry", "everysec", "checkpoint"])
    args = parser.parse_args()
    pauses = [subprocess.run(["taskset", "-c", str(cpu), args.bin / "served_table", "--phase=pauses", "--seconds=4"], stdout=subprocess.PIPE,
                             text=True).stdout.strip() for cpu in (0, 1)]
    print("\n".join(pauses))
    print(f"{'kind':16}{'work':12}{'requests/s':>10}{'p50':>9}{'p99':>9}{'p99.9':>9}{'longest':>9}{'at s':>8}")
    for kind in args.kinds:
        run_kind(args, kind)


if __name__ == "__main__":
    main()
