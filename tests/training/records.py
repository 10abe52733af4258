"""What a metrics.jsonl holds."""

import json
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records, a torn last line left out."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
