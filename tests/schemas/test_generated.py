"""The language-neutral contract is what the models say, and says what the models do."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import generate
from hookbus_schemas import subjects
from json_schemas import MODELS

SCHEMAS = Path(__file__).parents[2] / "schemas"
STEMS = {"context": "tool_hook_context", "decision": "decision", "registration": "hook_registration"}


def _rows(*names: str) -> list[dict[str, Any]]:
    return [row for name in names for row in json.loads((SCHEMAS / "vectors" / f"{name}.json").read_text())]


def _schema(stem: str) -> dict[str, Any]:
    loaded = json.loads((SCHEMAS / "json" / f"{stem}.schema.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def _schema_of(row: dict[str, Any], value: Any) -> dict[str, Any]:
    after = row["kind"] == "event" and value.get("type") == "tool:after"
    return _schema(STEMS.get(row["kind"], "tool_after_event" if after else "tool_denied_event"))


def _document() -> Any:
    return yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text())


def test_what_is_checked_in_is_what_the_models_say() -> None:
    """Run ``make contract`` when this fails."""
    assert generate.stale(SCHEMAS) == []


def test_check_names_the_files_that_differ(tmp_path: Path) -> None:
    """A changed file, a missing one, and one that nothing writes."""
    generate.write(tmp_path)
    assert generate.stale(tmp_path) == []
    (tmp_path / "asyncapi.yaml").write_text("changed")
    (tmp_path / "vectors" / "digests.json").unlink()
    (tmp_path / "json" / "stray.schema.json").write_text("{}")
    wanted = [Path("asyncapi.yaml"), Path("json/stray.schema.json"), Path("vectors/digests.json")]
    assert generate.stale(tmp_path) == wanted


@pytest.mark.parametrize(("arguments", "code"), [(["--check"], 0), (["--wrong"], 2)])
def test_the_script_ends_with_a_code(arguments: list[str], code: int) -> None:
    """As the Makefile runs it."""
    done = subprocess.run([sys.executable, str(SCHEMAS / "generate.py"), *arguments], capture_output=True, check=False)
    assert (done.returncode, bool(done.stderr)) == (code, code != 0)


@pytest.mark.parametrize("stem", MODELS)
def test_each_schema_is_one_and_says_what_its_fields_are(stem: str) -> None:
    """Valid as JSON Schema 2020-12, with an id, a title, and a description of every field."""
    schema = _schema(stem)
    Draft202012Validator.check_schema(schema)
    assert (schema["$id"], schema["title"]) == (f"urn:hookbus:v1:{stem}", MODELS[stem].__name__)
    silent = [name for name, field in schema["properties"].items() if not field.get("description")]
    assert silent == []


@pytest.mark.parametrize("stem", MODELS)
def test_each_field_that_may_be_left_out_has_its_default_in_the_schema(stem: str) -> None:
    """So that a reader of another language can fill it in from the schema alone."""
    schema = _schema(stem)
    for part in (schema, *(inner for inner in schema.get("$defs", {}).values() if "properties" in inner)):
        left_out = set(part["properties"]) - set(part.get("required", []))
        assert [name for name in left_out if "default" not in part["properties"][name]] == []


def test_the_schemas_take_every_valid_vector() -> None:
    """The value of each, and it with a field that is not known."""
    rows = [row for row in _rows("contexts", "decisions", "events", "registrations", "json_bodies") if row["valid"]]
    assert rows
    for row in rows:
        schema = Draft202012Validator(_schema_of(row, row["value"]))
        schema.validate(row["value"])
        schema.validate({**row["value"], "added_later": 1})


def test_the_schemas_refuse_broken_registrations() -> None:
    """All but those whose JSON is broken, so that no schema sees it."""
    refused = set()
    for row in _rows("registrations"):
        try:
            value = json.loads(bytes.fromhex(row["body_hex"]).decode())
        except (ValueError, RecursionError):
            continue
        if not Draft202012Validator(_schema_of(row, value)).is_valid(value):
            refused.add(row["name"])
    broken = {row["name"] for row in _rows("registrations") if not row["valid"]}
    assert refused <= broken
    assert broken - refused == {
        "not JSON", "nothing", "invalid UTF-8", "5000 deep", "field twice", "half a surrogate pair",
    }  # fmt: skip


@pytest.mark.parametrize("decision", ["maybe", "timeout", "unavailable", "Allow", "", None, True, 1])
def test_the_schema_of_an_answer_is_closed(decision: object) -> None:
    """Allow, deny and error, and nothing else."""
    assert not Draft202012Validator(_schema("decision")).is_valid({"decision": decision})
    assert Draft202012Validator(_schema("decision")).is_valid({"decision": "error"})


def test_every_reference_of_the_document_resolves() -> None:
    """Within it, or to a file beside it."""
    document, found = _document(), list(_references(_document()))
    assert len(found) > 20
    for reference in found:
        if not reference.startswith("#/"):
            assert (SCHEMAS / reference).is_file()
            continue
        place = document
        for part in reference[2:].split("/"):
            place = place[part]
        assert isinstance(place, dict)


def _references(part: Any) -> Any:
    if isinstance(part, dict):
        yield from (value for key, value in part.items() if key == "$ref")
    if isinstance(part, dict | list):
        for value in part.values() if isinstance(part, dict) else part:
            yield from _references(value)


def test_every_subject_is_a_channel() -> None:
    """And no channel is anything else, but for the one that a request's reply subject stands for."""
    written = {
        subjects.before("{hook}", "{executor}"),
        subjects.reply_prefix("{executor}", "{hook}") + "{token}",
        subjects.after("{executor}", "{tool}"),
        subjects.denied("{executor}", "{tool}"),
        f"{subjects.HOOKS_CHANGED}.{{hook}}",
    }
    channels = _document()["channels"]
    assert {channel["address"] for channel in channels.values()} == {
        None, *(text.replace("=7B", "{").replace("=7D", "}") for text in written),
    }  # fmt: skip
    for channel in channels.values():
        assert set(channel.get("parameters", {})) == {
            part.strip("{}") for part in (channel["address"] or "").split(".") if part.startswith("{")
        }


def test_requests_are_answered_and_replicas_share_a_queue() -> None:
    """By the reply subject of the message; AsyncAPI wants that channel without an address."""
    document = _document()
    operations = document["operations"]
    asked = {name: operation["reply"] for name, operation in operations.items() if "reply" in operation}
    assert set(asked) == {"askHook", "decide"}
    for reply in asked.values():
        assert reply["address"]["location"].startswith("$message.header#/")
        assert document["channels"][reply["channel"]["$ref"].rpartition("/")[2]]["address"] is None
    assert operations["decide"]["bindings"]["nats"]["queue"] == "{hook}"
    assert {tag["name"] for operation in operations.values() for tag in operation["tags"]} == {
        "executor", "hook", "consumer",
    }  # fmt: skip
