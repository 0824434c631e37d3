"""docs/hooks.md is true: its settings are those of the hooks, its commands and its agent print what it shows."""

import asyncio
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from cli.running import environment, one_by_one, running
from hookbus_broker import Section
from hookbus_schemas.contract import Contract
from hookbus_subscribers import AutonomySettings, SemanticKernelSettings

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
SETTINGS: dict[str, type[Section]] = {"Autonomy": AutonomySettings, "SemanticKernelPolicy": SemanticKernelSettings}
"""The hooks whose section has a table of settings."""


def section(hook: str) -> str:
    """Return the part of the page that is about a hook."""
    return PAGE.partition(f"\n## {hook}\n")[2].partition("\n## ")[0]


def blocks(text: str, *languages: str) -> list[tuple[str, str]]:
    """Return the code blocks in these languages, each with its language, in their order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(language, block) for language, block in found if language in languages]


def examples() -> list[tuple[str, str]]:
    """Return each block of commands with the settings that stand before it."""
    pairs, settings = [], ""
    for language, block in blocks(PAGE, "toml", "console"):
        if language == "toml":
            settings = block
        else:
            pairs.append((settings, block))
    return pairs


@pytest.mark.parametrize(("settings", "console"), examples(), ids=lambda block: block.splitlines()[1][:40])
async def test_the_commands_answer_as_the_page_shows(settings: str, console: str, tmp_path: Path) -> None:
    """Each command, with the settings before it, ends with the line below it."""
    (tmp_path / "hookbus.toml").write_text(settings)
    lines = console.splitlines()
    commands = [tuple(shlex.split(line.removeprefix("$ hookbus "))) for line in lines[::2]]
    ended = await one_by_one(tmp_path, *commands)
    assert [one.err for one in ended] == [""] * len(commands)
    assert [one.out.splitlines()[-1] for one in ended] == lines[1::2]


def test_the_contract_is_one_and_its_fields_are_all_there_are() -> None:
    """Each has a row, the two for people share one."""
    ((_, block),) = blocks(section("ContractScope"), "json")
    contract = Contract.from_json(block.encode())
    assert set(json.loads(block)) == set(Contract.model_fields)
    assert contract.max_tool_calls == 100
    rows = re.findall(r"^\| (`.+?`) \|", section("ContractScope"), flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(Contract.model_fields)


@pytest.mark.parametrize(("hook", "settings"), SETTINGS.items(), ids=SETTINGS)
def test_the_settings_are_those_of_the_hook(hook: str, settings: type[Section]) -> None:
    """Each has a row; a default that is written as in the file is the default."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section(hook), flags=re.MULTILINE))
    assert list(rows) == list(settings.model_fields)
    written = {name: default.strip("`") for name, default in rows.items() if default.startswith("`")}
    read = tomllib.loads("".join(f"{name} = {default}\n" for name, default in written.items()))
    assert settings(**read) == settings()


async def test_the_agent_prints_and_the_audit_log_writes_what_the_page_shows(tmp_path: Path) -> None:
    """A tool that declares its parameters, asked about by the hooks that `hookbus up` serves."""
    *_, (_, settings), (_, agent) = blocks(section("Autonomy"), "toml", "python")
    ((_, shown),) = blocks(section("Autonomy"), "text")
    (tmp_path / "hookbus.toml").write_text(settings)
    (tmp_path / "agent.py").write_text(agent)
    async with running(tmp_path, "up") as up:
        await up.says("hooks: ")
        printed = await _run(tmp_path, "agent.py")
        assert [line for line in printed if line in shown.splitlines()] == shown.splitlines()
        lines = [json.loads(line) for line in (tmp_path / "up.log").read_text().splitlines()]
    logged = {line["event"]: line for line in lines if line["event"].startswith("tool_call.")}
    ((_, block),) = blocks(section("AuditLog"), "json")
    for said in map(json.loads, block.splitlines()):
        assert list(said) == list(logged[said["event"]])


async def _run(folder: Path, program: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, cwd=folder, env=environment(), stdin=-1, stdout=-1
    )
    try:
        async with asyncio.timeout(20):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return printed.decode().splitlines()
