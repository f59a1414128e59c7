#!/usr/bin/env python3
"""Runs the engines of this folder against each other and says whether hako's figures are met.

    compare.py --bin build/compare/benchmark/compare            everything: 5 rounds of a million records
    compare.py --bin ... --only 'HashDBM Get' --rounds 7        the figures whose name matches, and the runs they need
    compare.py --bin ... --engines tkrzw_hash,lmdb --figures none   only these engines, medians without figures
    compare.py --list                                           the figures

One process an engine and workload. A round runs each process once, engine after engine; who goes first changes from round to round. A ratio
is taken between two runs of the same round, and reported as the median, least and greatest over the rounds. Nothing is discarded. Runs of
one thread are pinned to one CPU. Before the rounds, every engine proves on a small workload that it returns the right bytes.
"""
import argparse
import collections
import datetime
import glob
import json
import mmap
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

WORKLOADS = ["seq8", "rnd8", "uniq16x100"]
PHASES = ["fill", "get", "absent", "update", "scan", "scan100", "remove"]
HAKO = ["hako_hash", "hako_hash_presized", "hako_tiny", "hako_tiny_presized"]
ORDERED = ["hako_baby", "tkrzw_baby", "btree_map"]
NO_LOG = ["hako_hash_none", "hako_tree_none"]  # durability kNone
TREES = ["hako_tree", "tkrzw_tree"]  # in order and in a file, as lmdb is
PEERS = ["tkrzw_hash", "tkrzw_tiny", "cdb", "lmdb", "kc_hash", "kc_stash", "flat_hash_map", "cuckoo", "tbb"]
CONCURRENT = HAKO + TREES + ["hako_baby", "tkrzw_hash", "tkrzw_tiny", "tkrzw_baby", "kc_hash", "kc_stash", "cuckoo", "tbb", "null"]

# One process to run. scale multiplies --n; phases () = all.
Run = collections.namedtuple("Run", "engine workload scale threads phases latency", defaults=(1, 1, (), False))

# A speed: `base`'s time over `ours`' in one phase, at least `need` (None: only reported). A quantity: a field of a phase of `ours`, divided by the records or not,
# at most `need` (None: only reported).
Speed = collections.namedtuple("Speed", "name ours base phase need")
Quantity = collections.namedtuple("Quantity", "name ours phase field per_record unit need")

PHASE_NAMES = {"fill": "Set new", "get": "Get", "absent": "Get absent", "update": "Set existing", "scan": "scan", "scan100": "scan of 100",
               "remove": "Remove"}


def figures():
    result = []

    def speed(ours, base, phase, need, workloads=WORKLOADS):
        dbm = {"hash": "HashDBM", "tiny": "TinyDBM", "baby": "BabyDBM", "tree": "TreeDBM"}[ours.split("_")[1]]
        presized = " presized" if ours.endswith("presized") else ""
        for workload in workloads:
            needed = need.get(workload) if isinstance(need, dict) else need
            result.append(Speed(f"{dbm}{presized} {PHASE_NAMES[phase]} {workload} / {base}", Run(ours, workload), Run(base, workload), phase, needed))

    for ours in HAKO[:2]:
        speed(ours, "tkrzw_hash", "get", {"seq8": 4, "rnd8": 4, "uniq16x100": 3})
        speed(ours, "tkrzw_hash", "absent", 5)
        speed(ours, "tkrzw_hash", "fill", 2.5)
        speed(ours, "tkrzw_hash", "update", 3)
        speed(ours, "tkrzw_hash", "remove", 4)
        speed(ours, "tkrzw_hash", "scan", 3)
        speed(ours, "cdb", "get", 1)
    for ours in HAKO[2:]:
        speed(ours, "tkrzw_tiny", "get", 3)
        speed(ours, "tkrzw_tiny", "fill", 2.5)
        speed(ours, "tkrzw_tiny", "update", 2.5)
        speed(ours, "tkrzw_tiny", "remove", 2.5)
        speed(ours, "flat_hash_map", "get", 1)
    for phase in PHASES:
        points = {"seq8": 2.5, "rnd8": 3.5, "uniq16x100": {"get": 3, "fill": 2.5, "update": 2.5}.get(phase)}
        scans = {"scan": 1, "scan100": 2}.get(phase)
        speed("hako_baby", "tkrzw_baby", phase, scans if scans else None if phase == "absent" else points)
        speed("hako_baby", "btree_map", phase, scans if scans else {"rnd8": 3, "uniq16x100": 3} if phase in ("get", "fill", "update") else None)
    for phase in PHASES:
        points = {"seq8": {"get": 2, "fill": 2}.get(phase), "rnd8": 4 if phase == "get" else 3.5,
                  "uniq16x100": {"get": 3.5, "fill": 3, "update": 3}.get(phase)}
        speed("hako_tree", "tkrzw_tree", phase, {"absent": None, "scan": None, "scan100": 8}.get(phase, points))
    for phase in ("get", "fill"):
        speed("hako_tree", "lmdb", phase, {"rnd8": 1.8, "uniq16x100": 1.8})
    speed("hako_tree", "lmdb", "scan100", 1)
    for phase in ("fill", "update"):
        speed("hako_hash", "hako_hash_none", phase, .99, ["rnd8", "uniq16x100"])
        speed("hako_tree", "hako_tree_none", phase, 1 / 1.15, ["rnd8", "uniq16x100"])
    for phase in ("get", "fill", "remove"):
        many = Run("hako_baby", "rnd8", scale=10, phases=("get", "remove"))
        result.append(Speed(f"BabyDBM 10x records {PHASE_NAMES[phase]} rnd8 / 1x", many, Run("hako_baby", "rnd8"), phase, .45))
    for workload in WORKLOADS:
        for engine in ORDERED:
            need = {"seq8": 18, "rnd8": 22}.get(workload) if engine == "hako_baby" else None
            name = {"hako_baby": "BabyDBM", "tkrzw_baby": "Tkrzw BabyDBM"}.get(engine, engine)
            result.append(Quantity(f"{name} memory {workload}", Run(engine, workload, phases=("none",)), "fill", "anon_bytes", True, "B/record", need))
    for dbm, ours in (("HashDBM", "hako_hash"), ("TinyDBM", "hako_tiny"), ("BabyDBM", "hako_baby")):
        for workload in WORKLOADS:
            for phase, need in (("get", 1.8), ("fill", 1.5), ("update", 1.5)):
                result.append(Speed(f"{dbm} 2 threads {PHASE_NAMES[phase]} {workload} / 1 thread", Run(ours, workload, threads=2),
                                    Run(ours, workload), phase, need))
        if ours not in HAKO:
            continue
        grown = Run(ours, "seq8", scale=10, phases=("none",))
        result.append(Speed(f"{dbm} 10x records grown / {ours}_presized", grown, grown._replace(engine=ours + "_presized"), "fill", .75))
        result.append(Quantity(f"{dbm} 10x records grown, longest Set", grown._replace(latency=True), "fill", "max_ns", False, "us", None))
    for workload in ("seq8", "rnd8"):
        for dbm, engine in (("TreeDBM", "hako_tree"), ("Tkrzw TreeDBM", "tkrzw_tree")):
            result.append(Quantity(f"{dbm} file {workload}", Run(engine, workload, phases=("none",)), "close", "file_bytes", True, "B/record", None))
        closed = Run("hako_hash", workload, phases=("none",))
        result.append(Quantity(f"HashDBM file {workload}", closed, "close", "file_bytes", True, "B/record", 34))
        result.append(Quantity(f"TinyDBM memory {workload}", Run("hako_tiny", workload, phases=("none",)), "fill", "anon_bytes", True, "B/record", 30))
    result.append(Quantity("Tkrzw TinyDBM memory seq8", Run("tkrzw_tiny", "seq8", phases=("none",)), "fill", "anon_bytes", True, "B/record", None))
    return result


def runs_of(figure):
    return [figure.ours, figure.base] if isinstance(figure, Speed) else [figure.ours]


def label(run):
    parts = [run.engine, run.workload]
    if run.scale != 1:
        parts.append(f"{run.scale}x records")
    if run.threads != 1:
        parts.append(f"{run.threads} threads")
    if run.latency:
        parts.append("latency")
    if run.phases:
        parts.append("fill only" if run.phases == ("none",) else "+".join(run.phases))
    return ", ".join(parts)


class Runner:
    def __init__(self, args, directory):
        self.args, self.dir = args, directory
        self.errors = []

    def execute(self, run, n, verify=False):
        """The phases of one process by name, or None if it failed."""
        command = [os.path.join(self.args.bin, run.engine), f"--workload={run.workload}", f"--n={n}", f"--dir={self.dir}",
                   f"--threads={run.threads}", f"--seed={self.args.seed}"]
        command += [f"--phase={phase}" for phase in run.phases]
        command += ["--latency"] if run.latency else []
        command += ["--verify"] if verify else []
        if self.args.cpu != "none" and run.threads == 1:
            command = ["taskset", "-c", self.args.cpu] + command
        settle()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            self.errors.append(f"{label(run)}: status {done.returncode}: {done.stderr.strip()}")
            print(f"  FAILED {self.errors[-1]}", file=sys.stderr)
            return None
        return {line["phase"]: line for line in map(json.loads, done.stdout.splitlines())}

    def rounds(self, runs):
        """results[run] = [phases or None, one a round]."""
        groups = collections.OrderedDict()  # engines that are compared run side by side
        for run in runs:
            groups.setdefault((run.scale, run.latency, run.workload), []).append(run)
        results = {run: [] for run in runs}
        for number in range(self.args.rounds):
            start = time.time()
            for group in groups.values():
                shift = number % len(group)
                for run in group[shift:] + group[:shift]:
                    results[run].append(self.execute(run, self.args.n * run.scale))
            print(f"round {number + 1} of {self.args.rounds}: {time.time() - start:.0f} s, load {os.getloadavg()[0]:.2f}", file=sys.stderr)
        return results


def settle():
    """Lets the kernel finish writing back, for two seconds at most."""
    for _ in range(20):
        with open("/proc/meminfo") as info:
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in info}
        if kilobytes["Dirty"] + kilobytes["Writeback"] < 16384:
            return
        time.sleep(.1)


def touch_memory(gigabytes):
    """A virtual machine may have to get its memory from the host first: let no engine pay for that."""
    if gigabytes == 0:
        return
    block = bytes(1 << 21)
    with mmap.mmap(-1, gigabytes << 30) as memory:
        for offset in range(0, gigabytes << 30, len(block)):
            memory[offset:offset + len(block)] = block


def check_agreement(results, errors):
    """Each program checks its sums against the workload; here they are held against each other."""
    seen = {}
    for run, rounds in results.items():
        if run.engine == "null":
            continue
        for phases in filter(None, rounds):
            for name in ("get", "scan", "scan100"):
                if name in phases and (name == "get" or "update" in phases):
                    key = (run.workload, run.scale, name)
                    first = seen.setdefault(key, (phases[name]["checksum"], run.engine))
                    if first[0] != phases[name]["checksum"]:
                        errors.append(f"{label(run)}: {name}: checksum differs from that of {first[1]}")


def values(results, run, phase, field):
    """One a round; None where there is none."""
    return [phases[phase].get(field) if phases and phase in phases else None for phases in results.get(run, [])]


def median(numbers):
    numbers = [number for number in numbers if number is not None]
    return statistics.median(numbers) if numbers else None


def judge(figure, results, n, clock):
    """(ours and base, values by round, median, verdict)"""
    if isinstance(figure, Speed):
        if figure.ours.threads > 1:
            clock = "ns_per_op"
        ours = values(results, figure.ours, figure.phase, clock)
        base = values(results, figure.base, figure.phase, clock)
        by_round = [b / a for a, b in zip(ours, base) if a and b]
        middle = median(by_round)
        met = middle is not None and (figure.need is None or middle >= figure.need)
        sides = (median(ours), median(base))
    else:
        phase_n = n * figure.ours.scale
        found = [value for value in values(results, figure.ours, figure.phase, figure.field) if value is not None]
        if figure.per_record and figure.ours.workload == "rnd8":  # fewer records than operations
            phase_n = median(values(results, figure.ours, "fill", "records"))
        by_round = [value / phase_n if figure.per_record else value / 1000 if figure.unit == "us" else value for value in found]
        middle = median(by_round)
        met = figure.need is None or (middle is not None and middle <= figure.need)
        sides = (middle, None)
    verdict = "no data" if middle is None else "-" if figure.need is None else "met" if met else "MISSED"
    return sides, by_round, middle, verdict


def print_medians(results, workloads, clock):
    for workload in workloads:
        plain = [run for run in results if run.workload == workload and run.scale == 1 and not run.latency and not run.phases]
        if not plain:
            continue
        print(f"\n{workload + ': ns per operation, medians':42}" + "".join(f"{PHASE_NAMES[phase]:>14}" for phase in PHASES) +
              f"{'memory B/rec':>14}{'file B/rec':>12}{'close ms':>10}")
        for run in sorted(plain, key=lambda run: (run.threads, run.engine)):
            cells = []
            for phase in PHASES:
                number = median(values(results, run, phase, clock))
                cells.append(f"{number:14.1f}" if number is not None else f"{'-':>14}")
            records = median(values(results, run, "fill", "records"))
            for field, width in (("rss_bytes", 14), ("file_bytes", 12)):
                number = median(values(results, run, "fill", field))
                cells.append(f"{number / records:{width}.1f}" if number and records else f"{'-':>{width}}")
            close = median(values(results, run, "close", "ns_per_op"))
            cells.append(f"{close / 1e6:10.1f}" if close is not None else f"{'-':>10}")
            name = run.engine + (f", {run.threads} threads" if run.threads > 1 else "")
            print(f"  {name:40}" + "".join(cells))


def number_text(number):
    if number is None:
        return "-"
    return f"{number:.2f}" if number < 1000 else f"{number:.0f}"


def beside(figure):
    """The tables told beforehand how many records come are shown beside the figures, not judged."""
    return " presized " in figure.name


def print_figures(chosen, results, n, clock):
    verdicts = collections.Counter()
    print(f"\n{'figure (median over rounds; ratio = base time / hako time)':62}{'hako':>11}{'base':>10}{'need':>9}{'median':>10}{'min':>10}{'max':>10}")
    for figure in sorted(chosen, key=beside):
        sides, by_round, middle, verdict = judge(figure, results, n, clock)
        if isinstance(figure, Speed):
            need, unit = ("" if figure.need is None else f">={figure.need}x"), ""
        else:
            need, unit = ("" if figure.need is None else f"<={figure.need}"), figure.unit
        if beside(figure):
            verdict = f"({verdict.lower()})"
        verdicts[verdict] += 1
        low, high = (min(by_round), max(by_round)) if by_round else (None, None)
        print(f"{figure.name:62}{number_text(sides[0]):>11}{number_text(sides[1]):>10}{need:>9}{number_text(middle):>10}{number_text(low):>10}"
              f"{number_text(high):>10}  {verdict} {unit}")
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()) if verdict != "-" and verdict[0] != "("))
    return verdicts["MISSED"] + verdicts["no data"]


def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def host_facts(directory):
    cpuinfo = read("/proc/cpuinfo") or ""
    model = re.search(r"model name\s*:\s*(.*)", cpuinfo)
    caches = {}
    for cache in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        caches[f"L{read(cache + '/level')} {read(cache + '/type')}"] = read(cache + "/size")
    mount = subprocess.run(["findmnt", "-no", "FSTYPE,SOURCE,OPTIONS", "-T", directory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    here = os.path.dirname(os.path.abspath(__file__))
    commit = subprocess.run(["git", "-C", here, "describe", "--always", "--dirty"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": model.group(1) if model else platform.processor(),
        "cpus": os.cpu_count(),
        "caches": caches,
        "memory_kb": int(re.search(r"MemTotal:\s*(\d+)", read("/proc/meminfo")).group(1)),
        "kernel": platform.release(),
        "file_system": mount.stdout.strip() or None,
        "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "clock": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "glibc_tunables": os.environ.get("GLIBC_TUNABLES"),
        "commit": commit.stdout.strip() or None,
    }


def stolen_seconds():
    return int(read("/proc/stat").splitlines()[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def calibration(args):
    """The constants of the machine, measured by the program `calibrate` where it was built."""
    for program in (os.path.join(args.bin, "calibrate"), os.path.join(args.bin, "..", "calibrate")):
        if args.calibrate and os.access(program, os.X_OK):
            done = subprocess.run([program, "--json", f"--dir={args.dir}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            return json.loads(done.stdout) if done.returncode == 0 else None
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", help="where the engines' programs are")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="the files go to a new folder here (%(default)s)")
    parser.add_argument("--n", type=int, default=1000000, help="operations a phase (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a regular expression: only these figures and the runs they need")
    parser.add_argument("--figures", choices=["all", "none"], default="all")
    parser.add_argument("--engines", default="", help="only these engines, between commas")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="with --figures none: threads of each run")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall",
                        help="cpu: processor time instead, for a look on a machine that is busy; not for 2 threads (%(default)s)")
    parser.add_argument("--cpu", default=str(os.cpu_count() - 1), help="where runs of one thread are pinned; none = nowhere (%(default)s)")
    parser.add_argument("--touch-gb", type=int, default=4, help="memory to touch and release first (%(default)s)")
    parser.add_argument("--calibrate", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--verify", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", help="everything measured goes here (compare.json in --bin)")
    parser.add_argument("--list", action="store_true", help="list the figures and stop")
    args = parser.parse_args()

    workloads = args.workloads.split(",")
    chosen = [figure for figure in figures() if re.search(args.only, figure.name) and figure.ours.workload in workloads]
    if args.list:
        print("\n".join(figure.name for figure in chosen))
        return 0
    if not args.bin:
        parser.error("--bin is missing")
    wanted = args.engines.split(",") if args.engines else ["null"] + HAKO + NO_LOG + ORDERED + TREES + PEERS
    engines = [engine for engine in wanted if os.access(os.path.join(args.bin, engine), os.X_OK)]
    missing = [engine for engine in wanted if engine not in engines]
    if missing:
        print("not built: " + ", ".join(missing), file=sys.stderr)
    args.json = args.json or os.path.join(args.bin, "compare.json")
    if args.figures == "none":
        chosen = []
    runs = [] if args.only else [Run(engine, workload, threads=args.threads if args.figures == "none" else 1) for workload in workloads
                                 for engine in engines if args.threads == 1 or engine in CONCURRENT]
    for figure in chosen:
        runs += [run for run in runs_of(figure) if run not in runs and run.engine in engines]

    directory = tempfile.mkdtemp(prefix="hako-compare-", dir=args.dir)
    try:
        runner = Runner(args, directory)
        facts = host_facts(directory)
        touch_memory(args.touch_gb)
        constants = calibration(args)
        if args.verify:
            for engine, workload in dict.fromkeys((run.engine, run.workload) for run in runs):
                runner.execute(Run(engine, workload), min(args.n, 50000), verify=True)
        stolen, started = stolen_seconds(), time.time()
        results = runner.rounds(runs)
        facts.update(load_after=os.getloadavg()[0], elapsed_s=time.time() - started, stolen_s=stolen_seconds() - stolen)
    finally:
        shutil.rmtree(directory)

    clock = "ns_per_op" if args.clock == "wall" else "cpu_ns_per_op"
    check_agreement(results, runner.errors)
    print(f"{facts['cpu']}, {facts['cpus']} CPUs, kernel {facts['kernel']}, {facts['file_system']}; n = {args.n}, {args.rounds} rounds, "
          f"{facts['elapsed_s']:.0f} s of which {facts['stolen_s']:.1f} s stolen, load {facts['load_after']:.2f}"
          + ("; PROCESSOR TIME, not wall clock" if args.clock == "cpu" else ""))
    print_medians(results, workloads, clock)
    bad = print_figures(chosen, results, args.n, clock) if chosen else 0
    for error in runner.errors:
        print("ERROR " + error)
    judged = [dict(figure=figure.name, need=figure.need, **dict(zip(("sides", "by_round", "median", "verdict"), judge(figure, results, args.n, clock))))
              for figure in chosen]
    with open(args.json, "w") as file:
        json.dump({"host": facts, "calibration": constants, "arguments": vars(args), "figures": judged, "errors": runner.errors,
                   "runs": [dict(run._asdict(), rounds=rounds) for run, rounds in results.items()]}, file, indent=1)
    print(f"all of it: {args.json}")
    return 1 if bad or runner.errors else 0


if __name__ == "__main__":
    sys.exit(main())
