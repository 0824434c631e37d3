"""Python held to the golden vectors, those of released versions among them."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hookbus_schemas import (
    ConfigError,
    Decision,
    Encoding,
    HookRegistration,
    InvalidMessage,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHookContext,
    decode,
    decode_event,
    digest,
    encode,
    encoding_of,
    subjects,
)

VECTORS = Path(__file__).parents[2] / "schemas" / "vectors"
JSON_BODIES = "json_bodies"
MESSAGES = ("contexts", "decisions", "events", "registrations")
RELEASED = sorted(path for path in (VECTORS / "released").iterdir() if path.is_dir())
FOLDERS = [VECTORS, *RELEASED]

Read = ToolHookContext | Decision | ToolAfterEvent | ToolDeniedEvent | HookRegistration


def _load(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def _rows(*, valid: bool) -> list[Any]:
    return [
        pytest.param(folder, row | {"file": name}, id=f"{folder.name}-{name}-{row['kind']}-{row['name']}")
        for folder in FOLDERS
        for name in (*MESSAGES, JSON_BODIES)
        for row in _load(folder, name)
        if row["valid"] is valid
    ]


def _encoding(row: dict[str, Any]) -> Encoding:
    return Encoding.JSON if row["file"] == JSON_BODIES else Encoding.MSGPACK


def _read(row: dict[str, Any], body: bytes | None = None) -> Read:
    body = bytes.fromhex(row["body_hex"]) if body is None else body
    match row["kind"]:
        case "context":
            return decode(ToolHookContext, body, _encoding(row))
        case "decision":
            return decode(Decision, body, _encoding(row))
        case "event":
            return decode_event(body)
        case _:
            return HookRegistration.from_json(body)


def _holds(now: Any, then: Any) -> bool:
    """Tell whether all that was said is still said; there may be more."""
    if isinstance(then, dict) and isinstance(now, dict):
        return all(key in now and _holds(now[key], value) for key, value in then.items())
    if isinstance(then, list) and isinstance(now, list):
        return len(now) == len(then) and all(map(_holds, now, then))
    return type(now) is type(then) and bool(now == then)


@pytest.mark.parametrize(("folder", "row"), _rows(valid=True))
def test_a_valid_body_means_what_the_vector_says(folder: Path, row: dict[str, Any]) -> None:
    """In the vectors of today exactly, in older ones at least."""
    value = _read(row).model_dump(mode="json")
    assert _holds(value, row["value"])
    assert folder in RELEASED or value == row["value"]


@pytest.mark.parametrize(("folder", "row"), _rows(valid=True))
def test_what_was_read_is_written_and_read_again(folder: Path, row: dict[str, Any]) -> None:
    """Nothing is lost on the way through."""
    message = _read(row)
    again = message.to_json() if isinstance(message, HookRegistration) else encode(message, _encoding(row))
    assert _read(row, again) == message


@pytest.mark.parametrize(("folder", "row"), _rows(valid=False))
def test_a_broken_body_is_refused_in_one_short_line(folder: Path, row: dict[str, Any]) -> None:
    """Only `InvalidMessage`, of a length that a log can hold whatever was sent."""
    with pytest.raises(InvalidMessage) as caught:
        _read(row)
    assert len(str(caught.value)) < 500


def test_every_kind_has_vectors_of_both_sorts_with_names_of_their_own() -> None:
    """So that no test above is empty."""
    for name in MESSAGES:
        rows = _load(VECTORS, name)
        assert {row["kind"] for row in rows} == {name[:-1]}
        assert {row["valid"] for row in rows} == {True, False}
        assert len({row["name"] for row in rows}) == len(rows)
    in_json = _load(VECTORS, JSON_BODIES)
    assert {(row["kind"], row["valid"]) for row in in_json} == set(product(("context", "decision"), (True, False)))
    assert len({(row["kind"], row["name"]) for row in in_json}) == len(in_json)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_first_byte_tells_the_encoding(name: str) -> None:
    """Of every body that is valid in either."""
    wanted = Encoding.JSON if name == "registrations" else Encoding.MSGPACK
    valid = [bytes.fromhex(row["body_hex"]) for row in _load(VECTORS, name) if row["valid"]]
    assert {encoding_of(body) for body in valid} == {wanted}
    in_json = [bytes.fromhex(row["body_hex"]) for row in _load(VECTORS, JSON_BODIES) if row["valid"]]
    assert {encoding_of(body) for body in in_json} == {Encoding.JSON}


def test_each_released_version_has_every_file() -> None:
    """A folder beneath ``released/`` is complete, and the page there says so while there is none."""
    for folder in RELEASED:
        assert {path.name for path in folder.glob("*.json")} >= {f"{name}.json" for name in MESSAGES}
    says_none = "There is no release yet." in (VECTORS / "released" / "README.md").read_text()
    assert says_none is (not RELEASED)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_names_and_tokens_are_those_of_the_vectors(folder: Path) -> None:
    """Both ways, and what is no name or no token is refused."""
    vectors = _load(folder, "subjects")
    for row in vectors["tokens"]:
        assert (subjects.token(row["name"]), subjects.name(row["token"])) == (row["token"], row["name"])
    for row in vectors["bad_names"]:
        with pytest.raises(ConfigError):
            subjects.token(row["name"])
    for row in vectors["bad_tokens"]:
        with pytest.raises(InvalidMessage):
            subjects.name(row["token"])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_subjects_of_a_request_are_those_of_the_vectors(folder: Path) -> None:
    """Asked on, answered on, subscribed to, recorded on."""
    vectors = _load(folder, "subjects")
    for row in vectors["requests"]:
        hook, executor = row["hook"], row["executor"]
        assert row["subject"] == subjects.before(hook, executor)
        assert row["reply_prefix"] == subjects.reply_prefix_for(row["subject"]) == subjects.reply_prefix(executor, hook)
        assert row["hook_subscribes"] == subjects.before_filter(hook)
        assert row["queue_group"] == subjects.queue_group(hook)
        assert row["executor_subscribes"] == subjects.reply_filter(executor)
        assert (row["after"], row["denied"]) == (subjects.after(executor, hook), subjects.denied(executor, hook))
    for subject in vectors["bad_requests"]:
        with pytest.raises(InvalidMessage):
            subjects.reply_prefix_for(subject)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_digests_are_those_of_the_vectors(folder: Path) -> None:
    """SHA-256 in lower-case hexadecimal."""
    for row in _load(folder, "digests"):
        assert digest(bytes.fromhex(row["body_hex"])) == row["digest"]
