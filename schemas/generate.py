"""Writes the language-neutral form of the contract from the models: JSON Schemas, AsyncAPI and golden vectors.

``python schemas/generate.py`` writes; with ``--check`` it names the files that differ and exits with 1.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from asyncapi_document import asyncapi
from hookbus_schemas import Decision, Encoding, HookRegistration, ToolHookContext, decode, decode_event
from json_schemas import MODELS, json_schema
from vector_bodies import Vector
from vector_names import digest_vectors, glob_vectors, subject_vectors
from vector_table import VECTORS

FOLDER = Path(__file__).parent
_HEAD = "# Written by schemas/generate.py; do not edit.\n"


def files() -> dict[Path, str]:
    """Return what each generated file must hold, by its path beneath ``schemas/``."""
    kinds = sorted({vector.kind for vector in VECTORS})
    return {
        **{Path(f"json/{stem}.schema.json"): _json(json_schema(stem)) for stem in MODELS},
        Path("asyncapi.yaml"): _HEAD + yaml.safe_dump(asyncapi(), sort_keys=False, allow_unicode=True, width=120),
        **{Path(f"vectors/{kind}s.json"): _rows(v for v in VECTORS if v.kind == kind and not v.json) for kind in kinds},
        Path("vectors/json_bodies.json"): _rows(v for v in VECTORS if v.json),
        Path("vectors/subjects.json"): _json(subject_vectors()),
        Path("vectors/globs.json"): _json(glob_vectors()),
        Path("vectors/digests.json"): _json(digest_vectors()),
    }


def meaning(kind: str, body: bytes, encoding: Encoding = Encoding.MSGPACK) -> dict[str, Any]:
    """Return what a body says, as JSON.

    Raises:
        InvalidMessage: it is not valid.
    """
    if kind == "registration":
        return HookRegistration.from_json(body).model_dump(mode="json")
    if kind == "event":
        return decode_event(body).model_dump(mode="json")
    return decode(ToolHookContext if kind == "context" else Decision, body, encoding).model_dump(mode="json")


def stale(folder: Path) -> list[Path]:
    """Return the files beneath the folder that are not as they must be, those that nothing generates among them."""
    wanted = files()
    there = {path.relative_to(folder) for part in ("json", "vectors") for path in (folder / part).glob("*.json")}
    return sorted(there - set(wanted) | {path for path, text in wanted.items() if _read(folder / path) != text})


def write(folder: Path) -> None:
    """Write every file beneath the folder."""
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: generate.py [--check]\n")
        return 2
    if not arguments:
        write(FOLDER)
    differing = stale(FOLDER)
    for path in differing:
        sys.stderr.write(f"schemas/{path} is not what the models say: run make contract\n")
    return 1 if differing else 0


def _rows(vectors: Iterable[Vector]) -> str:
    return _json([_row(vector) for vector in vectors])


def _row(vector: Vector) -> dict[str, object]:
    encoding = Encoding.JSON if vector.json else Encoding.MSGPACK
    row = {"name": vector.name, "kind": vector.kind, "body_hex": vector.body.hex(), "valid": vector.valid}
    value = {"value": meaning(vector.kind, vector.body, encoding)} if vector.valid else {}
    return {**row, **value, "why": vector.why}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
