"""Does the engine stay as it is: its memory, its answers, its neighbours, its rest?

    python benchmarks/engine_steady.py [RUN --text FILE] [--quick] [--json steady.json]
    python benchmarks/engine_steady.py --only memory,cold

A run (the tiny one of the tests if none is given) and lines to go through it again and again:

- lines: 100,000 through `regard translate` in a pipe, hostile ones among them, on 1, 2 and 4
  threads. Every line must be answered; memory is the most that was resident in the last half
  against the most until a tenth was answered, and 1 is flat;
- hostile: a call on 200 lines with a hostile one among them, against the 200 and the hostile one
  each in a call of its own. 1 or less says that neighbours wait for the hostile line's own work;
- ctrl-c: seconds from the signal to the end of a `regard translate` that was at work;
- idle: CPU seconds of an engine in ten seconds after a call, on 4 threads;
- memory: resident MB after 64 sentences with a beam of 4, and the most there ever was, `base` in
  int8 with random weights, against CTranslate2 with the same weights;
- cold: seconds of a new process that imports, loads and translates a line, `base` in int8,
  against CTranslate2.
"""

import argparse
import itertools
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
PARTS = ("lines", "hostile", "ctrl-c", "idle", "memory", "cold")
NEIGHBOURS = 200

Row = dict[str, object]


def main() -> None:
    options = parse()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as aside:
        for part in options.only.split(","):
            for row in measure(part, options, Path(aside)):
                peer = "" if row["peer"] is None else f"{row['peer']:>10,.3f}"
                print(
                    f"{row['name']!s:44} {row['ours']:10,.3f} {peer:10} {row['unit']}", flush=True
                )
                rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", default=GOLDEN / "run")
    parser.add_argument("--text", type=Path, help="lines for the run")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--only", default=",".join(PARTS), help="some of " + ", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="2,000 lines, a few tries")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        sys.exit()
    if options.quick:
        options.lines = min(options.lines, 2000)
    text = options.text or GOLDEN / "pairs.tsv"
    raw = text.read_text(encoding="utf-8").split("\n")
    options.texts = [line.split("\t")[0] for line in raw if line.strip()]
    return options


def measure(part: str, options: argparse.Namespace, aside: Path) -> Iterator[Row]:
    match part:
        case "lines":
            for threads in map(int, options.threads.split(",")):
                yield from steady(options, threads)
        case "hostile":
            yield from neighbours(options)
        case "ctrl-c":
            yield interrupted(options)
        case "idle":
            run = str(options.run)
            yield row("idle engine, 4 threads", in_child("idle", run, options.dtype)["cpu"], None,
                      "CPU s in 10 s")  # fmt: skip
        case "memory":
            yield from against_peer(aside, ("resident", "peak"), "MB", tries=1)
        case "cold":
            tries = 3 if options.quick else 9
            yield from against_peer(aside, ("seconds",), "s", tries=tries)
        case _:
            sys.exit(f"--only: {part} is none of {', '.join(PARTS)}")


def hostile_lines() -> dict[str, str]:
    planes = "".join(chr(plane << 16 | 0x41) for plane in range(17))
    corners = "\u0000\u202e\u200d\ufeff\ufffd\u0301" + chr(0x10FFFF)
    return {
        "1 MB without a space": "x" * 1_000_000,
        "1 MB of spaces": " " * 1_000_000,
        "every plane of Unicode": (planes + corners) * 40,
    }


def translating(options: argparse.Namespace, threads: int) -> "subprocess.Popen[bytes]":
    """`regard translate` with pipes at both ends."""
    command = [sys.executable, "-m", "regard", "translate", str(options.run)]
    return subprocess.Popen(
        [*command, "--dtype", options.dtype, "--threads", str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def endless(options: argparse.Namespace) -> Iterator[str]:
    """The lines in random order, again and again; every tenth part has a hostile one early on."""
    draw = random.Random(1)
    hostile = itertools.cycle(hostile_lines().values())
    for number in itertools.count(1):
        bad = number % (options.lines // 10) == options.lines // 100
        yield next(hostile) if bad else draw.choice(options.texts)


def steady(options: argparse.Namespace, threads: int) -> Iterator[Row]:
    process = translating(options, threads)
    assert process.stdin and process.stdout
    stdin, began = process.stdin, time.perf_counter()

    def feed() -> None:
        for line in itertools.islice(endless(options), options.lines):
            stdin.write(f"{line}\n".encode())
        stdin.close()

    threading.Thread(target=feed, daemon=True).start()
    answered, warm, late, sampled = 0, 0.0, 0.0, 0.0
    for _ in process.stdout:
        answered += 1
        if time.perf_counter() - sampled > 0.02:
            sampled = time.perf_counter()
            resident = memory(process.pid, "VmRSS")
            if answered <= options.lines // 10:
                warm = max(warm, resident)
            elif answered > options.lines // 2:
                late = max(late, resident)
    if process.wait() != 0 or answered != options.lines:
        sys.exit(f"{answered} answers to {options.lines} lines, exit code {process.returncode}")
    seconds = time.perf_counter() - began
    name = f"{options.lines:,} lines, {threads} threads"
    yield row(f"{name}: answered", answered, options.lines, "lines")
    yield row(f"{name}: resident, last half against first tenth", late, warm, "MB")
    yield row(f"{name}: rate", answered / seconds, None, "lines/s")


def neighbours(options: argparse.Namespace) -> Iterator[Row]:
    """How long the others wait because of one, beyond what it takes alone."""
    import regard  # noqa: PLC0415 - not for those that measure a start

    draw = random.Random(2)
    texts = [draw.choice(options.texts) for _ in range(NEIGHBOURS)]
    translator = regard.load(options.run, engine="native", dtype=options.dtype, threads=2)

    def seconds(lines: Sequence[str]) -> float:
        began = time.perf_counter()
        if len(translator.translate(lines)) != len(lines):
            sys.exit("not every line was answered")
        return time.perf_counter() - began

    seconds(texts)
    for name, hostile in hostile_lines().items():
        mixed = [*texts[: NEIGHBOURS // 2], hostile, *texts[NEIGHBOURS // 2 :]]
        tries = [(seconds(mixed), seconds(texts) + seconds([hostile])) for _ in range(3)]
        together, apart = (median(each) for each in zip(*tries, strict=True))
        yield row(f"{NEIGHBOURS} lines and {name}", together, apart, "s, together and apart")


def interrupted(options: argparse.Namespace) -> Row:
    """The longest of some tries, each interrupted a little later than the one before."""
    longest = 0.0
    for number in range(3 if options.quick else 10):
        process = translating(options, 2)
        assert process.stdin and process.stdout
        stdin = process.stdin
        threading.Thread(target=flood, args=(stdin, options), daemon=True).start()
        process.stdout.readline()
        time.sleep(0.02 * number)
        process.send_signal(signal.SIGINT)
        began = time.perf_counter()
        threading.Thread(target=process.stdout.read, daemon=True).start()
        code = process.wait(timeout=60)
        longest = max(longest, time.perf_counter() - began)
        if code != 130:
            sys.exit(f"exit code {code} after Ctrl-C, 130 expected")
    return row("Ctrl-C to the end of the process", longest, None, "s at most")


def flood(stdin, options: argparse.Namespace) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    try:
        for line in endless(options):
            stdin.write(f"{line}\n".encode())
    except (BrokenPipeError, ValueError):
        pass


def against_peer(aside: Path, keys: Sequence[str], unit: str, *, tries: int) -> Iterator[Row]:
    """Our child and CTranslate2's in turns, both with the weights of one random `base` model."""
    if not (aside / "run").exists():
        in_child("prepare", str(aside))
    found = [
        (in_child("ours", str(aside / "run")), in_child("peer", str(aside / "peer")))
        for _ in range(tries)
    ]
    for key in keys:
        ours, peer = (median(pair[side][key] for pair in found) for side in (0, 1))
        yield row(f"base 64x4 int8, {key}" if unit == "MB" else "base int8, a cold line", ours,
                  peer, unit)  # fmt: skip


def in_child(name: str, *arguments: str) -> dict[str, float]:
    """What `child` prints in a process of its own; `seconds` is added where it says `ready`."""
    began = time.perf_counter()
    command = [sys.executable, __file__, "--child", name, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        first = process.stdout.readline()
        seconds = time.perf_counter() - began
        rest = process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    found: dict[str, float] = json.loads(rest or first)
    return found | {"seconds": seconds}


def child(name: str, *arguments: str) -> None:
    """A measurement that needs a new process: first `ready` after one line, then JSON."""
    match name:
        case "idle":
            import regard  # noqa: PLC0415

            path, dtype = arguments
            translator = regard.load(path, engine="native", dtype=dtype, threads=4)
            translator.translate(["the light is on now."] * 64)
            began = time.process_time()
            time.sleep(10)
            print(json.dumps({"cpu": time.process_time() - began}))
        case "prepare":
            prepare(Path(arguments[0]))
            print("{}")
        case "ours":
            from regard import load  # noqa: PLC0415

            opened = load(arguments[0], engine="native", dtype="int8", threads=2)
            opened.translate(SENTENCE)
            print("ready", flush=True)
            opened.translate([SENTENCE] * 64, beam=4)
            report()
        case "peer":
            import ctranslate2  # noqa: PLC0415

            there = ctranslate2.Translator(
                arguments[0], compute_type="int8", inter_threads=1, intra_threads=2
            )
            tokens = Path(arguments[0], "sentence").read_text(encoding="utf-8").split("\n")
            lengths = {"min_decoding_length": 32, "max_decoding_length": 32}
            there.translate_batch([tokens], beam_size=4, **lengths)
            print("ready", flush=True)
            there.translate_batch([tokens] * 64, beam_size=4, **lengths)
            report()


SENTENCE = " ".join(["abcdefghi"] * 4)


def prepare(aside: Path) -> None:
    """A random `base` model as our run folder, with forced lengths, and as CTranslate2's."""
    from translate import exported, random_run  # noqa: PLC0415 - the benchmark beside this one

    from regard.recipes.write import format_recipe  # noqa: PLC0415
    from regard.text.vocabulary import framed  # noqa: PLC0415
    from regard.weights.foreign.ctranslate2_vocabulary import vocabulary_tokens  # noqa: PLC0415
    from regard.weights.run_folder import RunFolder  # noqa: PLC0415

    run = random_run("base")
    decoding = run.recipe.decoding.model_copy(update={"min_tokens": 32, "max_tokens": 32})
    recipe = run.recipe.model_copy(update={"decoding": decoding})
    with RunFolder.create(aside / "run") as folder:
        folder.write_recipe(format_recipe(recipe))
        folder.write_tokenizers(run.tokenizers.source.to_bytes())
        folder.write_model(run.model.state_dict())
    exported(run, aside / "peer")
    names = vocabulary_tokens(run.tokenizers.source)
    ids = framed(run.tokenizers.source, run.tokenizers.source.encode_batch([SENTENCE])[0])
    Path(aside, "peer", "sentence").write_text("\n".join(names[each] for each in ids[:-1]))


def report() -> None:
    pid = os.getpid()
    print(json.dumps({"resident": memory(pid, "VmRSS"), "peak": memory(pid, "VmHWM")}))


def memory(pid: int, name: str) -> float:
    """A size from a process's status, in MB; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def row(name: str, ours: float, peer: float | None, unit: str) -> Row:
    ratio = ours / peer if peer else None
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit,
            "python": platform.python_version()}  # fmt: skip


if __name__ == "__main__":
    main()
