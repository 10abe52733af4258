"""The list of a folder's files with their sums, which makes damage visible, its own included."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from regard.errors import RunFolderError
from regard.weights.files import FileRecord, damage, read_file, write_file

MANIFEST: Final = "manifest.json"
_VERSION: Final = 1


@dataclass(frozen=True)
class Manifest:
    """What a folder's files must be.

    `pending` are files on their way in: while it has a name, the file is right if it is what
    `files` says or what `pending` says, so that a crash between two renames harms nothing.
    """

    files: Mapping[str, FileRecord] = field(default_factory=dict)
    pending: Mapping[str, FileRecord] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As JSON, ending with the sum of all that stands before it."""
        body: dict[str, Any] = {
            "format": _VERSION,
            "files": _records(self.files),
            "pending": _records(self.pending),
        }
        body["sha256"] = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        return (json.dumps(body, indent=2) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Manifest":
        """Read it back; a manifest changed by so much as a blank is refused.

        Raises:
            RunFolderError: it is damaged, or a later version of regard wrote it.
        """
        try:
            body = json.loads(data)
            version = body["format"]
            manifest = cls(_from_records(body["files"]), _from_records(body["pending"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            version, manifest = _VERSION, None
        if isinstance(version, int) and version > _VERSION:
            raise RunFolderError(
                f"the folder has format {version}; this version of regard reads up to {_VERSION}",
                where=where,
                hint="Update regard: python -m pip install --upgrade regard",
            )
        if manifest is None or manifest.to_bytes() != data:
            raise RunFolderError(
                "the file is damaged: its bytes are not those that were written (SHA-256)",
                where=where,
                hint="Copy the folder again from where it came from.",
            )
        return manifest

    def problem(self, folder: Path, name: str) -> str:
        """What is wrong with a file of the folder; an empty string if nothing is."""
        found = [damage(folder / name, record) for record in self.expected(name)]
        return "" if not found or "" in found else found[0]

    def expected(self, name: str) -> list[FileRecord]:
        """The contents that a file may have; none if the folder should have no such file."""
        return [group[name] for group in (self.files, self.pending) if name in group]

    def settled(self, folder: Path) -> "Manifest":
        """The same with nothing pending: each pending file arrived, or it did not."""
        files = dict(self.files)
        for name, record in self.pending.items():
            if not damage(folder / name, record):
                files[name] = record
        return Manifest(files)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder.

    Raises:
        RunFolderError: it is missing or damaged.
    """
    path = folder / MANIFEST
    return Manifest.from_bytes(read_file(path), str(path))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder, in one step.

    Raises:
        RunFolderError: it can't be written.
    """
    write_file(folder / MANIFEST, manifest.to_bytes())


def _records(files: Mapping[str, FileRecord]) -> dict[str, dict[str, int | str]]:
    return {
        name: {"size": record.size, "sha256": record.sha256}
        for name, record in sorted(files.items())
    }


def _from_records(found: Mapping[str, Mapping[str, Any]]) -> dict[str, FileRecord]:
    return {
        str(name): FileRecord(int(record["size"]), str(record["sha256"]))
        for name, record in found.items()
    }
