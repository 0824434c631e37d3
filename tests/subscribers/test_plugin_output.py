"""What a plugin prints, and how large things may be: nothing breaks the stream, nothing grows without bound."""

import asyncio
import json
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hookbus_schemas import Decision, Verdict
from plugging import call, handling, needs_node, running_plugin, write_plugin
from support import until

pytestmark = needs_node

FAKE = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"allow": True}})
SPAWN = "require('child_process').spawnSync"
PRINTS = [
    pytest.param(f"console.log('{FAKE}')", FAKE, id="console.log"),
    pytest.param(f"process.stdout.write('{FAKE}\\n')", FAKE, id="process.stdout"),
    pytest.param(f"require('fs').writeSync(1, '{FAKE}\\n')", FAKE, id="descriptor 1"),
    pytest.param(
        "require('child_process').spawnSync('echo', ['hi'], { stdio: 'inherit' })", "hi", id="a process of its own"
    ),
    pytest.param("api.logger.warn('two words', { a: 1 })", 'warn: two words {"a":1}', id="the logger"),
]


@pytest.mark.parametrize(("code", "text"), PRINTS)
async def test_what_a_plugin_prints_is_logged_and_breaks_nothing(code: str, text: str, tmp_path: Path) -> None:
    """Even a line that looks like an answer: answers have a way of their own."""
    code = f"module.exports = (api) => api.on('tool:before', () => {{ {code}; return false; }});"
    with capture_logs() as logs:
        async with running_plugin(write_plugin(tmp_path, code)) as hook:
            assert (await hook.before_execute(call())).decision is Verdict.DENY
            await until(lambda: printed(logs))
    assert printed(logs)[0] == {"event": "plugin.printed", "log_level": "info", "hook": "plugin:p", "text": text}


def printed(logs: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """Return the lines that the plugin printed."""
    return [line for line in logs if line["event"] == "plugin.printed"]


async def test_a_flood_of_output_is_read_and_left_out_of_the_log(tmp_path: Path) -> None:
    """Answers come as ever; the log has its first lines, cut, and how many more there were."""
    flood = 'console.log("x".repeat(5_000_000)); for (let n = 0; n < 50_000; n++) console.log("line " + n);'
    with capture_logs() as logs:
        async with running_plugin(write_plugin(tmp_path, handling(f"{flood} return false;"))) as hook:
            assert (await hook.before_execute(call())).decision is Verdict.DENY
    lines = [line["text"] for line in printed(logs)]
    assert len(lines) == 200
    assert lines[0] == "x" * 2000
    assert lines[-1] == "line 198"
    (dropped,) = [line for line in logs if line["event"] == "plugin.output_dropped"]
    assert 49_000 < dropped["lines"] <= 50_001


async def test_arguments_of_ten_megabytes_are_judged_whole(tmp_path: Path) -> None:
    """Several at once, beside small ones."""
    code = handling("return { allow: false, reason: ctx.arguments.length + ctx.arguments.slice(-6) };")
    large = json.dumps({"text": 'ä"\n' * 2_500_000, "end": "é"}, ensure_ascii=False)
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        asked = [hook.before_execute(call(arguments=arguments)) for arguments in (large, "{}", large, "[1,2]")]
        decisions = await asyncio.gather(*asked)
    assert len(large.encode()) > 10_000_000
    wanted = [f"{len(text)}{text[-6:]}" for text in (large, "{}", large, "[1,2]")]
    assert [decision.reason for decision in decisions] == wanted


async def test_a_request_that_is_too_large_is_no_answer_and_no_harm(tmp_path: Path) -> None:
    """So it is with requests that pile up before a process that does not read."""
    async with running_plugin(write_plugin(tmp_path, handling("return false"))) as hook:
        refused = await hook.before_execute(call(arguments="x" * 64 * 1024 * 1024))
        assert (await hook.before_execute(call())).decision is Verdict.DENY
    assert (refused.decision, refused.reason_code) == (Verdict.ERROR, "plugin_unavailable")
    assert "are over the 67108864 allowed" in refused.reason


async def test_a_long_reason_is_cut_and_stays_a_deny(tmp_path: Path) -> None:
    """A half surrogate pair at its end too, which no UTF-8 can hold."""
    code = handling('return { allow: false, reason: "x".repeat(4095) + "\\u{1F600}".repeat(1_000_000) };')
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        denied = await hook.before_execute(call())
    assert denied.decision is Verdict.DENY
    assert denied.reason[:4095] == "x" * 4095
    assert len(denied.reason) == 4096


async def test_a_line_that_is_too_long_ends_the_process(tmp_path: Path) -> None:
    """What the bridge itself writes is short: such a line is the plugin's."""
    write = 'process._getActiveHandles().forEach((one) => one.remoteAddress ?? one.write?.("x".repeat(2_000_000)));'
    async with running_plugin(write_plugin(tmp_path, handling(f"{write} await new Promise(() => {{}});"))) as hook:
        ended = await hook.before_execute(call())
    problem = "broke the bridge's stream: a line of over 1048576 bytes"
    assert ended == Decision.error(f"the plugin gave no answer: {problem}", reason_code="plugin_unavailable")


async def test_of_five_hundred_calls_at_once_each_gets_its_own_answer(tmp_path: Path) -> None:
    """In whatever order the plugin decides."""
    code = handling("""await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
      return { allow: false, reason: ctx.arguments };""")
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        decisions = await asyncio.gather(*(hook.before_execute(call(arguments=str(n))) for n in range(500)))
    assert [decision.reason for decision in decisions] == [str(n) for n in range(500)]
