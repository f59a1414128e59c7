#!/usr/bin/env python3
"""Compares engines where data is larger than memory or goes past the page cache, beside fio on the same file.

    large.py w3a --bin build/compare/benchmark/compare --dir /data    hash, 100,000 x 4000 B, direct I/O, blocks of 512 and of 4096 bytes
    large.py w3b --bin ... --dir /data                                tree, 1,000,000 x 100 B, direct I/O, 1000 pages cached
    large.py scan --bin ... --dir /data                               all records of a file 4 times its cache
    large.py large --bin ... --dir /data --rounds 1                   8 GB in a memory cgroup of 512 MB (10 GB of disk)

A run is one file: it is made, goes through its steps, each a process of its own with the page cache dropped before it, and is removed. fio
takes its turn as a step, on the file as it lies. A round takes each run once; who goes first changes from round to round. A ratio is taken
between two steps of the same round, and reported as the median, least and greatest over the rounds. A step that writes lasts until a hard
synchronization is done. Reads are the engine's own count of device reads, or where it has none its system calls, or of a mapped file
those of the block device, which others may disturb. The comparison of speed in memory is compare.py.
"""
import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # no cache folder among the sources
from compare import host_facts, number_text, settle, stolen_seconds

Step = collections.namedtuple("Step", "name command")  # phases and flags of an engine's program, or "fio" and its options
Run = collections.namedtuple("Run", "name engine options steps")
# ours and base: (run, step); several bases: the best of them in each round. No base: `field` itself, at most `need`. need None: only reported.
Figure = collections.namedtuple("Figure", "name ours bases need field", defaults=("ops_per_s",))

FILL = Step("fill", "--phase=fill --phase=sync")
FILL_SEQ = Step("fill", "--phase=fill_seq --phase=sync")
GET = Step("get", "--phase=get")
SET = Step("set", "--phase=set --phase=sync")
SCAN = Step("scan", "--phase=scan")
FIO_READ = Step("fio read QD1", "fio --readonly --rw=randread --bs=4k --ioengine=psync")
FIO_READ_2 = Step("fio read QD1 2 jobs", FIO_READ.command + " --numjobs=2 --group_reporting")
FIO_READ_32 = Step("fio read QD32", "fio --readonly --rw=randread --bs=4k --ioengine=io_uring --iodepth=32")
FIO_SCAN = Step("fio scan", "fio --readonly --rw=read --bs=1M --ioengine=psync")  # over and over
FIO_WRITE = Step("fio write QD1", "fio --rw=randwrite --bs=4k --ioengine=psync")  # spoils the file


def multi(group):
    return Step(f"get_multi {group}", f"--phase=get_multi --group={group}")


def w3a(args):
    """Tkrzw's page cache has a size of its own, about 1 MB."""
    runs, figures = [], []
    two = Step("get 2 threads", "--phase=get --threads=2")
    steps = [FILL, GET, two, multi(32), multi(64)]
    with_fio = [FILL, GET, FIO_READ, two, FIO_READ_2, multi(32), FIO_READ_32, multi(64)]
    for block in (512, 4096):
        options = (f"--records={args.records or 100000} --key_size=8 --value_size=4000 --block_size={block} --align_pow=12 "
                   f"--cache_bytes={args.cache_bytes or 4 << 20}")
        hako, single, tkrzw = f"hako {block}", f"hako {block} no batching", f"tkrzw {block}"
        runs += [Run(hako, "hako_hash", options, with_fio), Run(single, "hako_hash", options + " --no_batching", [FILL, GET]),
                 Run(tkrzw, "tkrzw_hash", options, steps)]
        figures += [Figure(f"Set {block} / Tkrzw", (hako, "fill"), [(tkrzw, "fill")], 5),
                    Figure(f"Get {block} / Tkrzw", (hako, "get"), [(tkrzw, "get")], 1),
                    Figure(f"Get {block} / fio QD1", (hako, "get"), [(hako, "fio read QD1")], .9),
                    Figure(f"Reads per Get {block}", (hako, "get"), [], 1.05, "reads_per_op"),
                    Figure(f"Get {block}, 2 threads / 1", (hako, "get 2 threads"), [(hako, "get")], 1.7),
                    Figure(f"fio {block}, 2 jobs / 1", (hako, "fio read QD1 2 jobs"), [(hako, "fio read QD1")], None),
                    Figure(f"Set {block}, batching on / off", (hako, "fill"), [(single, "fill")], None),
                    Figure(f"Get {block}, batching on / off", (hako, "get"), [(single, "get")], None),
                    Figure(f"Reads per Get {block}, batching off", (single, "get"), [], None, "reads_per_op"),
                    Figure(f"Reads per Get {block}, Tkrzw", (tkrzw, "get"), [], None, "reads_per_op")]
        for group in (32, 64):
            figures += [Figure(f"GetMulti {group} {block} / fio QD32", (hako, f"get_multi {group}"), [(hako, "fio read QD32")], .85),
                        Figure(f"GetMulti {group} {block} / Tkrzw", (hako, f"get_multi {group}"), [(tkrzw, f"get_multi {group}")], 5)]
    return runs, figures


def w3b(args):
    """Tkrzw caches its buckets, some 4 MB, beside the 1000 pages; hako's bytes are for pages and page map together."""
    pages = 1000 * 4060
    options = f"--records={args.records or 1000000} --key_size=8 --value_size=100 --page_size=4060 --block_size=1024 --cache_bytes=0"
    ours = options + f" --buffer_pool_bytes={pages + (4 << 20)}"
    runs = [Run("hako", "hako_tree", ours, [FILL, GET, FIO_READ]), Run("tkrzw", "tkrzw_tree", options + f" --buffer_pool_bytes={pages}", [FILL, GET])]
    figures = [Figure("Set / Tkrzw", ("hako", "fill"), [("tkrzw", "fill")], 3),
               Figure("Get / Tkrzw", ("hako", "get"), [("tkrzw", "get")], 1.3),
               Figure("Get / fio QD1", ("hako", "get"), [("hako", "fio read QD1")], None),
               Figure("Reads per page miss", ("hako", "get"), [], 1.05, "reads_per_miss"),
               Figure("Reads per Get", ("hako", "get"), [], None, "reads_per_op"),
               Figure("Reads per Get, Tkrzw", ("tkrzw", "get"), [], None, "reads_per_op")]
    return runs, figures


def scan(args):
    """By the bytes of the file, as fio reads all of it; and by those of keys and values alone, where what else is in the file counts against
    the engine. In direct I/O three records of 16 + 1000 bytes lie in each 4 KiB."""
    cache = args.cache_bytes or 256 << 20
    runs, figures = [], []
    for name, key, value, options in (("hash", 16, 1000, f"--cache_bytes={cache}"),
                                      ("tree", 16, 100, f"--page_size=8130 --cache_bytes=0 --buffer_pool_bytes={cache}")):
        options += f" --records={args.records or 4 * cache // (key + value)} --key_size={key} --value_size={value}"
        ours, base = f"hako {name}", f"tkrzw {name}"
        runs += [Run(ours, f"hako_{name}", options, [FILL_SEQ, SCAN, FIO_SCAN]), Run(base, f"tkrzw_{name}", options, [FILL_SEQ, SCAN])]
        figures += [Figure(f"Scan of {name}, bytes of the file / fio", (ours, "scan"), [(ours, "fio scan")], .8, "file_bytes_per_s"),
                    Figure(f"Scan of {name}, keys and values / fio", (ours, "scan"), [(ours, "fio scan")], None, "bytes_per_s"),
                    Figure(f"Scan of {name} / Tkrzw", (ours, "scan"), [(base, "scan")], None)]
    part = f" --buffer_pool_bytes={cache // 4} --records={(args.records or 4 * cache // (key + value)) // 4}"  # it takes long to fill
    runs += [Run("hako tree at random", "hako_tree", options + part, [FILL, SCAN, FIO_SCAN])]
    figures.append(Figure("Scan of tree, filled at random / fio", ("hako tree at random", "scan"), [("hako tree at random", "fio scan")], None,
                          "file_bytes_per_s"))
    return runs, figures


def large(args):
    """Tkrzw is told to read a record of this size at once; its cache cannot be made larger."""
    cache = args.cache_bytes or 128 << 20
    options = f"--records={args.records or 8000000} --key_size=16 --value_size=1000 --block_size=4096 --cache_bytes={cache}"
    steps = [FILL_SEQ, GET, SET]
    peers = [Run("tkrzw mmap", "tkrzw_hash", options + " --mmap=1", steps),
             Run("tkrzw direct", "tkrzw_hash", options + " --min_read_size=1100", steps),
             Run("lmdb", "lmdb", options, steps), Run("rocksdb", "rocksdb", options, steps)]
    with_fio = [FILL_SEQ, GET, FIO_READ, SET, FIO_WRITE]
    tree = f"--page_size=8130 --buffer_pool_bytes={2 * cache} " + options.replace(f"--cache_bytes={cache}", "--cache_bytes=0")
    runs = [Run("hako hash", "hako_hash", options, with_fio), Run("hako tree", "hako_tree", tree, with_fio)]
    figures = []
    for run in runs:
        needs = (.95, 2) if run.engine == "hako_hash" else (None, None)
        figures += [Figure(f"Get, {run.name} / fio QD1", (run.name, "get"), [(run.name, "fio read QD1")], needs[0]),
                    Figure(f"Set, {run.name} / best peer", (run.name, "set"), [(peer.name, "set") for peer in peers], needs[1]),
                    Figure(f"Set, {run.name} / fio QD1", (run.name, "set"), [(run.name, "fio write QD1")], None),
                    Figure(f"Reads per Get, {run.name}", (run.name, "get"), [], None, "reads_per_op")]
        figures += [Figure(f"{name}, {run.name} / {peer.name}", (run.name, step), [(peer.name, step)], None)
                    for peer in peers for name, step in (("Fill", "fill"), ("Get", "get"), ("Set", "set"))]
    return runs + peers, figures


MODES = {mode.__name__: mode for mode in (w3a, w3b, scan, large)}


def drop_caches():
    """Page cache only. Says once where it may not."""
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("1")
    except OSError as error:
        note(f"the page cache is NOT dropped between steps: {error}")


def note(text, seen=set()):
    if text not in seen:
        seen.add(text)
        print("NOTE " + text, file=sys.stderr)


@contextlib.contextmanager
def memory_limit(megabytes):
    """A memory cgroup below the one we are in. Yields what a child calls to enter it, or None where there is no limit."""
    if not megabytes:
        yield None
        return
    with open("/proc/self/cgroup") as file:
        own = {controllers: path for _, controllers, path in (line.strip().split(":", 2) for line in file)}
    first, second = "/sys/fs/cgroup/memory" + own.get("memory", "/"), "/sys/fs/cgroup" + own.get("", "/")
    for parent, limit in ((first, "memory.limit_in_bytes"), (second, "memory.max")):
        group = os.path.join(parent, f"hako-large-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            with open(os.path.join(group, limit), "w") as file:
                file.write(str(megabytes << 20))
        except OSError:
            os.rmdir(group)
            continue
        break
    else:
        note("NO MEMORY LIMIT: no cgroup can be made here. These figures are not of data larger than memory")
        yield None
        return

    def enter():
        with open(os.path.join(group, "cgroup.procs"), "w") as file:
            file.write("0")

    try:
        yield enter
    finally:
        drop_caches()
        for _ in range(50):  # the child's memory is given back first
            with contextlib.suppress(OSError):
                os.rmdir(group)
                break
            time.sleep(.1)
        else:
            note(f"{group} is left behind")


def block_device_reads(path):
    device = os.stat(path).st_dev
    try:
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat") as file:
            return int(file.read().split()[0])
    except OSError:
        return None


def fio(step, path, args):
    """What a step of fio came to, in the fields of an engine's."""
    command = ["fio", "--name=beside", f"--filename={path}", "--direct=1", "--time_based", f"--runtime={args.fio_runtime}", "--norandommap",
               "--randrepeat=0", "--output-format=json"] + step.command.split()[1:]
    before = block_device_reads(path)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or done.stdout.strip())
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    result = job["write" if "write" in step.command else "read"]
    reads, ops = block_device_reads(path), result["total_ios"]
    if "randread" in step.command and before is not None and reads - before < .9 * ops:
        note(f"{step.name}: {reads - before} reads of the device for {ops} of fio's: the file has holes")
    quantiles = result["clat_ns"].get("percentile", {})
    return {"ops_per_s": result["iops"], "bytes_per_s": result["bw_bytes"], "file_bytes_per_s": result["bw_bytes"],
            "p50_us": quantiles.get("50.000000", 0) / 1e3}


def engine(run, step, path, seed, args):
    command = [os.path.join(args.bin, "large_" + run.engine), f"--path={path}", f"--ops={args.ops}", f"--seed={seed}"]
    command += run.options.split() + step.command.split() + (["--drawn"] if FILL in run.steps and step != FILL else [])
    command += ["--latency"] if args.latency else []
    with memory_limit(args.limit_mb) as enter:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=enter)
        if done.returncode != 0:
            raise RuntimeError(f"status {done.returncode}: {done.stderr.strip()}")
    lines = {line["phase"]: line for line in map(json.loads, done.stdout.splitlines())}
    result = dict(next(line for name, line in lines.items() if name not in ("open", "sync", "close")), lines=lines)
    seconds = result["ops"] * result["ns_per_op"] / 1e9 + (lines["sync"]["ns_per_op"] / 1e9 if "sync" in lines else 0)
    sizes = dict(option.lstrip("-").split("=") for option in run.options.split() if "=" in option)
    counters, mapped = result["counters"], run.engine == "lmdb" or "--mmap=1" in run.options
    reads = counters.get("device_reads") or result["blk_reads" if mapped else "io_reads"]
    written = sum(line["blk_written_bytes" if mapped else "io_write_bytes"] for line in lines.values())
    result["ops_per_s"] = result["ops"] / seconds
    result["bytes_per_s"] = result["ops_per_s"] * (int(sizes["key_size"]) + int(sizes["value_size"]))
    result["file_bytes_per_s"] = max(line["file_bytes"] for line in lines.values()) / seconds
    result["reads_per_op"] = reads / result["ops"]
    result["written_per_op"] = written / result["ops"]
    if counters.get("device_reads", 0) > counters.get("second_reads", 0):
        result["reads_per_miss"] = reads / (reads - counters["second_reads"])
    return result


def take(run, directory, seed, args, errors):
    """The steps of a run by name; those after a failure are missing."""
    path, results = os.path.join(directory, "database"), {}
    for step in run.steps:
        settle()
        drop_caches()
        try:
            results[step.name] = fio(step, path, args) if step.command.startswith("fio ") else engine(run, step, path, seed, args)
        except (RuntimeError, OSError) as error:
            errors.append(f"{run.name}: {step.name}: {error}")
            print("  FAILED " + errors[-1], file=sys.stderr)
            break
    for name in os.listdir(directory):
        name = os.path.join(directory, name)
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
    return results


def values(results, where, field):
    run, step = where
    return [steps.get(step, {}).get(field) for steps in results.get(run, [])]


def judge(figure, results):
    """(one value a round, verdict)"""
    by_round = values(results, figure.ours, figure.field)
    if figure.bases:
        bases = zip(*(values(results, base, figure.field) for base in figure.bases))
        by_round = [ours / max(filter(None, base)) if ours and any(base) else None for ours, base in zip(by_round, bases)]
    by_round = [value for value in by_round if value is not None]
    if not by_round:
        return by_round, "no data"
    if figure.need is None:
        return by_round, "-"
    middle = statistics.median(by_round)
    return by_round, "met" if (middle >= figure.need if figure.bases else middle <= figure.need) else "MISSED"


def print_medians(runs, results):
    columns = (("ops_per_s", 12, 1), ("us/op", 10, 1), ("p50_us", 10, 1), ("p99_us", 10, 1), ("p999_us", 10, 1), ("reads_per_op", 14, 1),
               ("written_per_op", 16, 1), ("cpu_ns_per_op", 15, 1), ("MB/s", 10, 1e6), ("rss MB", 9, 1e6), ("file MB", 9, 1e6))
    fields = {"us/op": "ops_per_s", "MB/s": "bytes_per_s", "rss MB": "rss_bytes", "file MB": "file_bytes"}
    print(f"\n{'medians':46}" + "".join(f"{name:>{width}}" for name, width, _ in columns))
    for run in runs:
        for step in run.steps:
            cells = []
            for name, width, unit in columns:
                found = [value for value in values(results, (run.name, step.name), fields.get(name, name)) if value is not None]
                number = statistics.median(found) / unit if found else None
                cells.append(f"{number_text(1e6 / number if name == 'us/op' and number else number):>{width}}")
            print(f"  {run.name + ', ' + step.name:44}" + "".join(cells))


def print_figures(figures, results):
    bad = 0
    print(f"\n{'figure (median over rounds)':46}{'need':>9}{'median':>10}{'min':>10}{'max':>10}")
    for figure in figures:
        by_round, verdict = judge(figure, results)
        bad += verdict in ("MISSED", "no data")
        need = "" if figure.need is None else f"{'>=' if figure.bases else '<='}{figure.need}"
        numbers = (statistics.median(by_round), min(by_round), max(by_round)) if by_round else (None,) * 3
        print(f"{figure.name:46}{need:>9}" + "".join(f"{number_text(number):>10}" for number in numbers) + f"  {verdict}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--bin", required=True, help="where the engines' programs are")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="the files go to a new folder here; not a tmpfs (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--records", type=int, help="instead of the mode's own number")
    parser.add_argument("--ops", type=int, default=100000, help="of a step at random (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each has its own")
    parser.add_argument("--cache-bytes", type=int, help="of the block cache, instead of the mode's own")
    parser.add_argument("--limit-mb", type=int, help="memory of a process and of its page cache; 0 = no limit (512 in mode large, else 0)")
    parser.add_argument("--fio-runtime", type=int, default=4, help="seconds of each step of fio (%(default)s)")
    parser.add_argument("--latency", action="store_true", help="quantiles, for some 50 ns an operation")
    parser.add_argument("--only", default="", help="a regular expression: only these runs, and the figures that need no others")
    parser.add_argument("--json", help="everything measured goes here (large-MODE.json in --bin)")
    args = parser.parse_args()
    args.json = args.json or os.path.join(args.bin, f"large-{args.mode}.json")
    if args.limit_mb is None:
        args.limit_mb = 512 if args.mode == "large" else 0

    runs, figures = MODES[args.mode](args)
    missing = sorted({run.engine for run in runs if not os.access(os.path.join(args.bin, "large_" + run.engine), os.X_OK)})
    if missing:
        note("not built: " + ", ".join(missing))
    runs = [run for run in runs if run.engine not in missing and re.search(args.only, run.name)]
    names = {run.name for run in runs}
    figures = [figure._replace(bases=[base for base in figure.bases if base[0] in names]) for figure in figures
               if figure.ours[0] in names and (not figure.bases or any(base[0] in names for base in figure.bases))]

    errors, results = [], {run.name: [] for run in runs}
    directory = tempfile.mkdtemp(prefix="hako-large-", dir=args.dir)
    try:
        facts = host_facts(directory)
        stolen, started = stolen_seconds(), time.time()
        for number in range(args.rounds):
            start, shift = time.time(), number % len(runs)
            for run in runs[shift:] + runs[:shift]:
                results[run.name].append(take(run, directory, args.seed + number, args, errors))
            print(f"round {number + 1} of {args.rounds}: {time.time() - start:.0f} s, load {os.getloadavg()[0]:.2f}", file=sys.stderr)
        facts.update(load_after=os.getloadavg()[0], elapsed_s=time.time() - started, stolen_s=stolen_seconds() - stolen)
    finally:
        shutil.rmtree(directory)

    print(f"{facts['cpu']}, {facts['cpus']} CPUs, kernel {facts['kernel']}, {facts['file_system']}; {args.mode}, {args.rounds} rounds, "
          f"memory limit {args.limit_mb or 'no'} MB, {facts['elapsed_s']:.0f} s of which {facts['stolen_s']:.1f} s stolen, "
          f"load {facts['load_after']:.2f}")
    print_medians(runs, results)
    bad = print_figures(figures, results)
    for error in errors:
        print("ERROR " + error)
    judged = [dict(figure._asdict(), **dict(zip(("by_round", "verdict"), judge(figure, results)))) for figure in figures]
    with open(args.json, "w") as file:
        json.dump({"host": facts, "arguments": vars(args), "figures": judged, "errors": errors,
                   "runs": [dict(name=run.name, engine=run.engine, options=run.options, rounds=results[run.name]) for run in runs]}, file, indent=1)
    print(f"all of it: {args.json}")
    return 1 if bad or errors else 0


if __name__ == "__main__":
    sys.exit(main())
