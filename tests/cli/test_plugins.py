"""Plugins by the command: served beside the built-in hooks or alone, registered, asked and told."""

import json
from pathlib import Path

from cli.running import hookbus, one_by_one, running
from hookbus_broker import BusSettings
from hookbus_executor import Executor, Session
from hookbus_schemas import Outcome
from plugging import needs_node, write_plugin
from support import until

pytestmark = needs_node

CODE = """const fs = require("fs");
module.exports = (api) => {
  api.on("tool:before", (ctx) => ({ allow: ctx.toolName !== "drop", reason: api.config.why }));
  api.on("tool:after", (ctx) => fs.appendFileSync("told", ctx.toolName + " " + ctx.result + "\\n"));
};"""
SETTINGS = '[plugins]\npaths = ["plugins"]\n[plugins.entries.guard]\nconfig = { why = "it is guarded" }\n'
FAILS_OPEN = (
    "warning: plugin:guard fails open: a call runs when it gives no usable answer; "
    "`hookbus hooks add plugin:guard --replace --failure-policy deny` stops it"
)


async def test_up_serves_and_registers_the_plugins_that_the_settings_name(tmp_path: Path, bus_url: str) -> None:
    """It is asked, its reason is heard, it is told of what ran; and it fails open, which is said once."""
    folder = write_plugin(tmp_path / "plugins" / "guard", CODE, id="guard", description="It guards.")
    (tmp_path / "hookbus.toml").write_text(SETTINGS)
    executor = Executor("e1", bus=BusSettings(url=bus_url))
    for name in ("look", "drop"):
        executor.tool(name=name)(lambda: "ran")
    async with running(tmp_path, "up", HOOKBUS_URL=bus_url) as up:
        assert "plugin:guard" in await up.says("hooks: AuditLog")
        assert (await up.says("warning: ")).rstrip() == FAILS_OPEN
        async with executor:
            looked = await executor.execute("look", {}, session=Session("s"))
            dropped = await executor.execute("drop", {}, session=Session("s"))
        await until((folder / "told").exists)
        whatif = await hookbus(tmp_path, "whatif", "plugin:plugins/guard", "--json", HOOKBUS_URL=bus_url)
        listed = json.loads((await hookbus(tmp_path, "hooks", "list", "--json", HOOKBUS_URL=bus_url)).out)
    tried = json.loads(whatif.out)
    assert (tried["asked"], tried["denied"]["tools"], tried["unanswered"]["tools"]) == (2, {}, {})
    assert looked.outcome is Outcome.COMPLETED
    assert dropped.text == "Tool execution denied by hook: plugin:guard: it is guarded"
    assert (folder / "told").read_text() == "look ran\n"
    about = {hook["name"]: hook for hook in listed}["plugin:guard"]
    assert (about["order"], about["failure_policy"], about["description"]) == (100, "allow", "It guards.")


async def test_a_plugin_is_served_by_its_folder_and_registered_by_its_name(tmp_path: Path, bus_url: str) -> None:
    """Whoever serves it is told how; whoever registers it is told that it fails open, unless it does not."""
    write_plugin(tmp_path / "guard", CODE, id="guard")
    async with running(tmp_path, "serve", "plugin:guard", HOOKBUS_URL=bus_url) as serve:
        await serve.says("serving: plugin:guard")
        add = ("hooks", "add", "plugin:guard")
        commands = [add, (*add, "--replace", "--failure-policy", "deny"), ("hooks", "show", "plugin:guard")]
        opened, closed, shown = await one_by_one(tmp_path, *commands, HOOKBUS_URL=bus_url)
    assert opened.out.splitlines() == ["plugin:guard registered, revision 1", FAILS_OPEN]
    assert closed.out.splitlines() == ["plugin:guard registered, revision 2"]
    assert json.loads(shown.out)["failure_policy"] == "deny"


async def test_a_plugin_that_cannot_run_stops_the_start_with_one_line(tmp_path: Path, bus_url: str) -> None:
    """No hook of the process is served: the operator sees it before an agent does."""
    write_plugin(tmp_path / "broken", "throw new Error('no luck')", id="broken")
    (tmp_path / "hookbus.toml").write_text('[plugins]\ndeny = ["denied"]\n')
    write_plugin(tmp_path / "denied", CODE, id="denied")
    slips = {
        "plugin:broken": f"plugin:broken cannot be loaded from {tmp_path / 'broken' / 'index.js'}: Error: no luck",
        "plugin:nowhere": "nowhere is no plugin: it has no openclaw.plugin.json",
        "plugin:denied": "plugin:denied may not run: look at plugins.allow and plugins.deny",
    }
    commands = [("serve", target) for target in slips]
    for ended, words in zip(await one_by_one(tmp_path, *commands, HOOKBUS_URL=bus_url), slips.values(), strict=True):
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.splitlines()[-1] == f"hookbus: {words}"
