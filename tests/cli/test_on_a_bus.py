"""The commands on a bus that somebody else runs, named by ``HOOKBUS_URL``: slips, odd names, readers that leave."""

import asyncio
import json
from pathlib import Path

import nats

from cli.running import COMMAND, environment, hookbus, one_by_one, running
from hookbus_schemas import ToolDeniedEvent, ToolHookContext, encode
from hookbus_subscribers import BUILT_IN

NONE_REQUIRED = {"HOOKBUS_EXECUTOR_REQUIRED_HOOKS": "[]"}
UNKNOWN = "hook ghost is not registered: `hookbus hooks list` shows those that are"


async def test_a_slip_changes_no_registration(tmp_path: Path, bus_url: str) -> None:
    """Each is one line that says what to do, with exit code 2; the hook that there was stays as it was."""
    (tmp_path / "field.json").write_text('{"tools": ["*"], "timeout": 5}')
    (tmp_path / "broken.json").write_text('{"tools": ')
    assert (await hookbus(tmp_path, "hooks", "add", "guard", HOOKBUS_URL=bus_url)).code == 0
    slips = {
        ("show", "ghost"): UNKNOWN,
        ("enforce", "ghost"): UNKNOWN,
        ("shadow", "ghost"): UNKNOWN,
        ("remove", "ghost"): UNKNOWN,
        ("add", "guard", "--order", "1"): "hook guard is registered already: change it with --replace",
        ("add", "other", "--file", "field.json"): "timeout is not a field; there are order, tools",
        ("add", "other", "--file", "broken.json"): "registration: ",
        ("add", "other", "--file", "field.json", "--order", "1"): "give either --file or the fields",
        ("add", "other", "--events", "sometimes"): "should be 'before' or 'after'",
        ("add", " "): "a hook's name should be text that is not blank",
        ("add", "x" * 300): "longer than 256",
    }
    commands = [("hooks", *arguments) for arguments in slips]
    for ended, says in zip(await one_by_one(tmp_path, *commands, HOOKBUS_URL=bus_url), slips.values(), strict=True):
        (line,) = ended.err.splitlines()
        assert (ended.code, ended.out, line[:9]) == (2, "", "hookbus: ")
        assert says in line
    hooks = json.loads((await hookbus(tmp_path, "hooks", "list", "--json", HOOKBUS_URL=bus_url)).out)
    assert [(hook["name"], hook["order"], hook["revision"]) for hook in hooks] == [("guard", 100, 1)]


async def test_a_record_that_is_not_whole_is_named_with_exit_code_1(tmp_path: Path, bus_url: str) -> None:
    """An event that no executor of this version published has no place in a chain."""
    assert (await hookbus(tmp_path, "hooks", "add", "guard", HOOKBUS_URL=bus_url)).code == 0
    context = ToolHookContext(
        tool_name="t", arguments_json="{}", call_id="c", executor_id="e 1", sent_at_ms=0, deadline_ms=0
    )
    event = ToolDeniedEvent(event_id="forged", at_ms=0, context=context, denied_by="guard")
    client = await nats.connect(bus_url)
    await client.jetstream().publish("tool.denied.e=201.t", encode(event))
    await client.close()
    verified = await hookbus(tmp_path, "events", "verify", HOOKBUS_URL=bus_url)
    assert verified.code == 1
    assert verified.out.splitlines() == [
        "unchained: no place in a chain: executor e 1, chain , event forged, stored as 1",
        "not clean: 1 events in 0 chains, 1 findings; good up to 0 in the stream",
    ]


async def test_a_key_that_another_tool_wrote_is_shown_and_removed(tmp_path: Path, bus_url: str) -> None:
    """It denies every call, so an operator must see it and be able to end that; the hook of its name stays."""
    assert (await hookbus(tmp_path, "hooks", "add", "a.b", HOOKBUS_URL=bus_url)).code == 0
    keys = ["a.b", "=ZZ", "ä", "x" * 300]
    client = await nats.connect(bus_url)
    for key in keys:
        await client.jetstream().publish(f"$KV.HOOKS.{key}", b"{}")
    await client.close()
    listed = json.loads((await hookbus(tmp_path, "hooks", "list", "--json", HOOKBUS_URL=bus_url)).out)
    assert [hook["name"] for hook in listed if "problem" in hook] == ["=ZZ", "a.b", "x" * 256, "ä"]
    commands = [("hooks", "remove", key[:256]) for key in keys]
    ended = await one_by_one(tmp_path, *commands, HOOKBUS_URL=bus_url)
    assert [one.code for one in ended] == [0] * 4
    left = json.loads((await hookbus(tmp_path, "hooks", "list", "--json", HOOKBUS_URL=bus_url)).out)
    assert [(hook["name"], "problem" in hook) for hook in left] == [("a.b", False)]


async def test_a_narrow_list_of_hooks_says_all(tmp_path: Path, bus_url: str) -> None:
    """It wraps where the terminal ends; nothing is cut."""
    await hookbus(tmp_path, "hooks", "add", "a-hook-with-a-long-name", "--owner", "payments", HOOKBUS_URL=bus_url)
    listed = await hookbus(tmp_path, "hooks", "list", HOOKBUS_URL=bus_url, COLUMNS="60")
    assert "…" not in listed.out
    _, head, *body = listed.out.splitlines()
    name = "".join(line[: head.index("order")].strip() for line in body)
    owner = "".join(line[head.index("owner") :].strip() for line in body)
    assert (name, owner) == ("a-hook-with-a-long-name", "payments")


async def test_the_built_in_hooks_are_listed_whole_in_80_characters(tmp_path: Path, bus_url: str) -> None:
    """No name and no word is broken."""
    async with running(tmp_path, "up", HOOKBUS_URL=bus_url) as up:
        await up.says("up: ")
        listed = await hookbus(tmp_path, "hooks", "list", HOOKBUS_URL=bus_url, COLUMNS="80")
    words = {word for line in listed.out.splitlines() for word in line.split()}
    assert {*BUILT_IN, "semantic_kernel", "enforcement", "enforce", "hookbus"} <= words


async def test_what_others_wrote_is_shown_as_it_is(tmp_path: Path, bus_url: str) -> None:
    """Brackets are no markup, colons no emoji, and no control character reaches the terminal."""
    tools, owner = ("--tools", "db_[a-z]"), ("--owner", "[/x]:fire:\x1b[2J")
    added = await hookbus(tmp_path, "hooks", "add", "[red]a", *tools, *owner, HOOKBUS_URL=bus_url)
    assert added.out == "[red]a registered, revision 1\n"
    listed = await hookbus(tmp_path, "hooks", "list", HOOKBUS_URL=bus_url, COLUMNS="200")
    (row,) = (line for line in listed.out.splitlines() if "[red]a" in line)
    assert "db_[a-z]" in row
    assert r"[/x]:fire:\x1b[2J" in row
    checked = await hookbus(tmp_path, "check", "db_[/]", "{}", HOOKBUS_URL=bus_url, COLUMNS="40", **NONE_REQUIRED)
    assert checked.code == 0
    checked = await hookbus(tmp_path, "check", "db_[a-z]", "{}", HOOKBUS_URL=bus_url, COLUMNS="40", **NONE_REQUIRED)
    assert checked.code == 1
    assert checked.out.splitlines()[-1] == "denied by [red]a: unavailable: no replica of it is running"


async def test_calls_are_checked_on_the_bus_that_runs(tmp_path: Path, bus_url: str) -> None:
    """Its hooks are asked, and none that a bus of the command's own would have; bytes that are no text are no call."""
    await hookbus(tmp_path, "hooks", "add", "guard", HOOKBUS_URL=bus_url)
    (tmp_path / "calls.jsonl").write_bytes(b'{"id": 1, "tool": "shell"}\n{"id": 2, "tool": "\xff"}\n')
    for source, stdin in (("calls.jsonl", ""), ("-", '{"id": 1, "tool": "shell"}\n?\n')):
        ended = await hookbus(tmp_path, "check", "--calls", source, stdin=stdin, HOOKBUS_URL=bus_url, **NONE_REQUIRED)
        assert (ended.code, ended.err) == (0, "")
        first, second = map(json.loads, ended.out.splitlines())
        assert [decision["hook"] for decision in first["decisions"]] == ["guard"]
        assert first["reason"] == "unavailable: no replica of it is running"
        assert (second["allowed"], second["reason"][:18]) == (False, "line 2 is no call:")


async def test_a_call_is_answered_before_the_next_is_written(tmp_path: Path, bus_url: str) -> None:
    """Whoever writes line by line, and waits for each answer, gets it."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "check", "--calls", "-", cwd=tmp_path, env=environment(HOOKBUS_URL=bus_url), stdin=-1, stdout=-1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            for number in range(3):
                process.stdin.write(b'{"id": %d, "tool": "shell"}\n' % number)
                assert json.loads(await process.stdout.readline())["id"] == number
            process.stdin.close()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_reader_that_has_left_is_no_error(tmp_path: Path, bus_url: str) -> None:
    """As behind ``| head``: nothing on standard error, and a deny is still a deny."""
    await hookbus(tmp_path, "hooks", "add", "guard", HOOKBUS_URL=bus_url)
    (tmp_path / "calls.jsonl").write_text('{"id": 1, "tool": "shell"}\n' * 2000)
    assert await read_by_nobody(tmp_path, bus_url, "check", "--calls", "calls.jsonl") == (b"0\n", b"")
    assert await read_by_nobody(tmp_path, bus_url, "check", "shell", "{}") == (b"1\n", b"")
    assert await read_by_nobody(tmp_path, bus_url, "check", "shell", "{}", "--json") == (b"1\n", b"")
    assert await read_by_nobody(tmp_path, bus_url, "hooks", "list") == (b"0\n", b"")


async def read_by_nobody(folder: Path, bus_url: str, *arguments: str) -> tuple[bytes, bytes]:
    """Return the exit code, as text, and the standard error of a command whose output nobody reads."""
    shell = ("sh", "-c", 'exec 3>&1; { "$@"; echo $? >&3; } | exec true', "sh")
    process = await asyncio.create_subprocess_exec(
        *shell, *COMMAND, *arguments, cwd=folder, env=environment(HOOKBUS_URL=bus_url), stdout=-1, stderr=-1
    )
    async with asyncio.timeout(30):
        return await process.communicate()


async def test_a_wrong_setting_is_named_with_where_it_stands(tmp_path: Path) -> None:
    """In the file, and in the environment."""
    (tmp_path / "hookbus.toml").write_text("[bus]\nconnect_timeout = 'soon'\n")
    ended = await hookbus(tmp_path, "hooks", "list")
    assert (ended.code, ended.err.count("\n"), ended.err[:40]) == (2, 1, "hookbus: bus.connect_timeout is 'soon': ")
    (tmp_path / "hookbus.toml").write_text("[bus\n")
    assert (await hookbus(tmp_path, "hooks", "list")).err.startswith("hookbus: hookbus.toml is not TOML: ")
    (tmp_path / "hookbus.toml").unlink()
    ended = await hookbus(tmp_path, "hooks", "list", HOOKBUS_CONNECT_TIMEOUT="soon")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "HOOKBUS_CONNECT_TIMEOUT" in ended.err
