"""What is not recorded: hooks judge the real call, the record holds less."""

import asyncio
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.conftest import World
from hookbus_executor import ExecutorSettings
from hookbus_executor.redaction import REDACTED, Redactor
from hookbus_schemas import ConfigError, Decision, Outcome, ToolHookContext, ToolHookWithContext

KEY = "AKIA" + "ABCDEFGH12345678"
SECRETS = [
    pytest.param(KEY, id="AWS"),
    pytest.param("ghp_" + "a1" * 18, id="GitHub"),
    pytest.param("github_pat_" + "a1" * 20, id="GitHub, fine-grained"),
    pytest.param("glpat-" + "a1" * 10, id="GitLab"),
    pytest.param("sk-ant-" + "a1" * 20, id="model API"),
    pytest.param("sk_live_" + "a1" * 12, id="Stripe"),
    pytest.param("xoxb-" + "1" * 12, id="Slack"),
    pytest.param("AIza" + "a" * 35, id="Google"),
    pytest.param("npm_" + "a1" * 18, id="npm"),
    pytest.param("pypi-" + "a1" * 30, id="PyPI"),
    pytest.param("eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", id="JSON web token"),
    pytest.param("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----", id="private key"),
    pytest.param("-----BEGIN PRIVATE KEY-----\nMIIEcut", id="private key cut"),
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_text_that_looks_like_a_secret_is_taken_out(secret: str) -> None:
    """Wherever it stands, and what is around it stays."""
    redactor = Redactor()
    assert redactor.text(f"use {secret}") == f"use {REDACTED}"
    assert json.loads(redactor.arguments(json.dumps({"a": [{"b": f"x {secret}"}]}))) == {"a": [{"b": f"x {REDACTED}"}]}


def test_parts_of_a_text_go_and_the_rest_says_where() -> None:
    """A URL keeps its host, a header its kind."""
    redactor = Redactor()
    assert redactor.text("get https://ann:hunter2@host/x") == f"get https://{REDACTED}@host/x"
    assert redactor.text("Authorization: Bearer " + "a1" * 10) == f"Authorization: {REDACTED}"


@pytest.mark.parametrize("name", ["password", "DB_PASSWORD", "apiKey", "api-key", "x-Authorization", "client_secret"])
def test_a_field_with_a_telling_name_is_taken_out(name: str) -> None:
    """Whatever its value is, however deep, and however its name is written."""
    given_arguments = {"a": {name: {"deep": [1]}, "user": "ann"}, "b": 1}
    redacted = json.loads(Redactor().arguments(json.dumps(given_arguments)))
    assert redacted == {"a": {name: REDACTED, "user": "ann"}, "b": 1}


@given(st.dictionaries(st.text("abc", max_size=3), st.text(max_size=30) | st.integers(), max_size=4))
def test_harmless_arguments_stay_as_they_are(values: dict[str, object]) -> None:
    """To the letter, as an executor writes them."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    assert Redactor().arguments(text) == text


def test_arguments_that_are_no_object_are_taken_out_whole_where_a_name_tells() -> None:
    """Nobody knows where the secret is."""
    redactor = Redactor()
    assert redactor.arguments('{"password": "x') == REDACTED
    assert redactor.arguments(f"see {KEY}") == f"see {REDACTED}"


REDACTING = "import sys; from hookbus_executor.redaction import Redactor; Redactor().text(sys.stdin.read())"


class Judge(ToolHookWithContext):
    """Keeps what it was asked, and quotes it."""

    name = "judge"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def before_execute(self, context: ToolHookContext) -> Decision:
        """Deny what says so."""
        self.asked.append(context.arguments_json)
        return Decision.deny(f"no {KEY}") if "deny" in context.arguments_json else Decision.allow()


async def test_hooks_judge_the_real_arguments_and_the_record_holds_none_of_the_secrets(world: World) -> None:
    """Neither in arguments, nor in results, nor in the words of hooks; the caller gets all."""
    executor, judge = await world.executor(), Judge()
    executor.add_hook(judge)

    @executor.tool
    async def login(password: str, note: str = "") -> str:
        return f"{note} {password} {KEY}"

    async with executor:
        ran = await executor.execute("login", {"password": "hunter2"})
        denied = await executor.execute("login", {"password": "hunter2", "note": "deny"})
        await executor.flush()
    assert (ran.text, denied.reason) == (f" hunter2 {KEY}", f"no {KEY}")
    assert judge.asked == ['{"password":"hunter2"}', '{"password":"hunter2","note":"deny"}']
    events = await world.events()
    recorded = [json.loads(event.context.arguments_json) for event in events]
    assert recorded == [{"password": REDACTED}, {"password": REDACTED, "note": "deny"}]
    assert all(KEY not in event.model_dump_json() for event in events)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param('{"password":"x","note":"\\ud800"}', id="half of a surrogate pair"),
        pytest.param('{"password":"x","note":1e999}', id="infinite"),
    ],
)
async def test_a_refused_call_whose_arguments_cannot_be_written_anew_is_recorded(world: World, given: str) -> None:
    """Nothing of it reaches the caller but the refusal."""
    executor = await world.executor()

    @executor.tool
    async def login(password: str, note: str = "") -> str:
        return password + note

    async with executor:
        denied = await executor.execute("login", given)
        await executor.flush()
    (event,) = await world.events()
    assert (denied.outcome, event.context.arguments_json) == (Outcome.DENIED, REDACTED)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param("-----BEGIN PRIVATE KEY-----", id="private keys"),
        pytest.param("-eyJaaaaaaaaaa", id="JSON web tokens"),
    ],
)
async def test_a_text_of_nothing_but_beginnings_of_secrets_does_not_hold_up_the_loop(piece: str) -> None:
    """A tool's result may be an attacker's, and other calls wait meanwhile."""
    text = piece * (4_000_000 // len(piece))
    worker = asyncio.create_subprocess_exec(sys.executable, "-c", REDACTING, stdin=asyncio.subprocess.PIPE)
    process = await worker
    try:
        async with asyncio.timeout(30):
            await process.communicate(text.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0


def test_a_pattern_that_is_none_names_the_setting() -> None:
    """At the start."""
    with pytest.raises(ConfigError, match=r"executor\.redact_patterns"):
        ExecutorSettings(redact_patterns=("(",))
