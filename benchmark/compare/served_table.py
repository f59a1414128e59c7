#!/usr/bin/env python3
"""Rows of a table, and records of a hash database, over the network: hako-server under the load of served_table.cc.

    served_table.py --server build/package/bin/hako-server --bin build/compare/benchmark/compare --dir /on/a/disk

A line a phase and number of clients: requests a second; the median, 99th percentile and longest time of a request; and the multiple of what Mikio
Hirabayashi published for Tokyo Tyrant in 2009 on a machine of that time, of one client (TYRANT below): these are not measured here. Depth
is the number of requests that a client has in flight.
"""
import argparse
import pathlib

from served import Server, remove_files

PORT = 6392
TYRANT = {"put": 9_800, "get": 19_619, "search": 18_587, "set": 24_319, "fetch": 24_384}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, type=pathlib.Path)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--dir", required=True, type=pathlib.Path)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--ops", type=int, default=300_000, help="requests of each phase but the first put and set, which have n")
    parser.add_argument("--appendfsync", default="everysec")
    args = parser.parse_args()
    remove_files(args.dir, "served.hktb*", "served.hkh*")
    server = Server([args.server, "--port", str(PORT), "--table", args.dir / "served.hktb", "--db", args.dir / "served.hkh",
                     "--appendfsync", args.appendfsync], PORT)

    def run(phase, clients=1, depth=1, ops=args.ops):
        result = server.load(args.bin / "served_table", phase, clients=clients, depth=depth, n=args.n, ops=ops)
        if result is None:
            return
        print(f"{phase:8}{clients:8}{depth:7}{result['ops_per_s']:12.0f}{result['p50_us']:10.1f}{result['p99_us']:10.1f}{result['max_us']:10.1f}"
              f"{result['ops_per_s'] / TYRANT[phase]:10.1f}x", flush=True)

    try:
        print(f"{'phase':8}{'clients':>8}{'depth':>7}{'requests/s':>12}{'p50 us':>10}{'p99 us':>10}{'max us':>10}   of Tokyo Tyrant's in 2009")
        run("index")
        run("put", 50, 16, args.n)
        run("set", 50, 16, args.n)
        for clients, depth in [(1, 1), (1, 16), (50, 1), (50, 16)]:
            for phase in TYRANT:
                run(phase, clients, depth, args.ops if clients * depth > 1 else args.ops // 5)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
