"""What a report about a problem needs: versions, devices, threads, speed, what is missing."""

import json
import os
import platform
import sys
from importlib import metadata
from typing import Any

import regard
from regard import machine
from regard.engine import native
from regard.engine.native import EngineError
from regard.signals import load_torch

REQUIRED = (
    "torch",
    "numpy",
    "tokenizers",
    "safetensors",
    "pydantic",
    "cyclopts",
    "rich",
    "sacrebleu",
    "jaxtyping",
)
OPTIONAL = {
    "zstandard": "to read .zst files: python -m pip install 'regard[zst]'",
    "tensorboard": "to write TensorBoard events: python -m pip install 'regard[tensorboard]'",
    "sentencepiece": "for vocabularies of SentencePiece: "
    "python -m pip install 'regard[sentencepiece]'",
    "matplotlib": "for the plots of regard compare: python -m pip install 'regard[compare]'",
    "ctranslate2": "to export to CTranslate2: python -m pip install 'regard[ctranslate2]'",
}

VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "REGARD_ISA",
    "REGARD_KERNELS",
    "REGARD_MALLOC",
)

Findings = dict[str, Any]


def examine(*, measure: bool = True) -> Findings:
    """Look at this machine and this installation.

    Args:
        measure: also measure float32 against bfloat16, as training does (a second or so).
    """
    findings: Findings = {
        "regard": regard.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "packages": {name: _version(name) for name in REQUIRED},
        "extras": {name: _version(name) for name in OPTIONAL},
        "cpu": machine.cpu_model(),
        "cores": {
            "machine": os.cpu_count(),
            "usable": machine.usable_cores(),
            "container_limit": machine.container_cores(),
        },
        "memory": machine.memory(),
        "engine": _examine_engine(),
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name in VARIABLES
        },
    }
    return findings | _examine_torch(measure)


def to_json(findings: Findings) -> str:
    """The findings as JSON text."""
    return json.dumps(findings, indent=2, ensure_ascii=False)


def format_findings(findings: Findings) -> str:
    """The findings as plain text to paste, one `name  value` a line, what is missing last."""
    cores, memory = findings["cores"], findings["memory"]
    rows = [(name, findings[name]) for name in ("regard", "python", "system")]
    rows += [
        (name, version or "MISSING")
        for name, version in (findings["packages"] | findings["extras"]).items()
    ]
    limit = cores["container_limit"]
    rows += [
        ("cpu", findings["cpu"]),
        (
            "cores",
            f"{cores['usable']} usable of {cores['machine']}"
            + (f", limited to {limit:g} by the container" if limit else ""),
        ),
        ("memory", ", ".join(f"{value:.1f} GiB {name}" for name, value in memory.items())),
        *findings["environment"].items(),
        ("engine", findings["engine"]["isa"] or f"none: {findings['engine']['problem']}"),
    ]
    if "torch_problem" in findings:
        rows.append(("torch", f"cannot be imported: {findings['torch_problem']}"))
    else:
        rows.append(("threads", str(findings["threads"])))
        rows.append(("training kernels", findings["kernels"]))
        rows.append(("float32 products", findings["float32_products"]))
        rows += [("gpu", gpu) for gpu in findings["gpus"]] or [("gpu", "none that torch can use")]
    if "speed" in findings:
        rows.append(("precision", findings["speed"]["summary"]))
    missing = [f"  {name}, {use}" for name, use in _missing(findings).items()]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:{width}}  {value}" for name, value in rows]
    return "\n".join(lines + (["", "missing", *missing] if missing else []))


def _missing(findings: Findings) -> dict[str, str]:
    """What is not installed, and what it would be for."""
    uses = dict.fromkeys(REQUIRED, "needed: python -m pip install regard") | OPTIONAL
    found = findings["packages"] | findings["extras"]
    return {name: use for name, use in uses.items() if found[name] is None}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _examine_engine() -> dict[str, str]:
    """What instructions the engine runs on, or why there is none."""
    try:
        return {"isa": native.isa(), "problem": ""}
    except EngineError as error:
        return {"isa": "", "problem": native.absence() or str(error)}


def _examine_torch(measure: bool) -> Findings:
    """Threads, GPUs and speed; or why torch does not start, which a report must still say."""
    try:
        load_torch()
        import torch  # noqa: PLC0415 - a broken torch is a finding, not a crash
    except (ImportError, OSError) as error:
        return {"torch_problem": str(error)}
    cuda = torch.cuda
    gpus = [
        f"{cuda.get_device_name(index)}, "
        f"{cuda.get_device_properties(index).total_memory / 2**30:.0f} GiB"
        for index in range(cuda.device_count() if cuda.is_available() else 0)
    ]
    from regard.kernels import native as kernels  # noqa: PLC0415 - import torch
    from regard.kernels import products  # noqa: PLC0415

    findings: Findings = {
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "kernels": kernels.summary(),
        "float32_products": products.summary(),
    }
    if measure:
        from regard.training.devices import choose_device  # noqa: PLC0415 - imports torch
        from regard.training.precision import choose_precision  # noqa: PLC0415

        device = choose_device("auto")
        choice = choose_precision("auto", device)
        findings["speed"] = {
            "device": device.type,
            "precision": choice.name,
            "float32_gflops": choice.float32_gflops,
            "bfloat16_gflops": choice.bfloat16_gflops,
            "summary": str(choice),
        }
    return findings
