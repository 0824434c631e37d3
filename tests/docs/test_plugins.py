"""docs/plugins.md is true: its plugin is the example, its settings are read, its commands answer as it shows."""

import re
import shlex
import shutil
from pathlib import Path

from cli.running import one_by_one
from docs.test_hooks import blocks
from hookbus_subscribers import PluginSettings
from plugging import needs_node

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "plugin"


def test_the_plugin_of_the_page_is_the_example() -> None:
    """To the letter."""
    shown = [block for _, block in blocks(PAGE, "json", "js")]
    assert shown == [(EXAMPLE / name).read_text() for name in ("openclaw.plugin.json", "index.mjs")]


def test_the_settings_of_the_page_are_those_that_there_are() -> None:
    """Each has a row."""
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("### Settings")[2].partition("\n### ")[0], flags=re.MULTILINE)
    assert rows == list(PluginSettings.model_fields)


@needs_node
async def test_the_commands_answer_as_the_page_shows(tmp_path: Path) -> None:
    """With the settings before them, where the example is."""
    (_, settings), (_, console) = blocks(PAGE, "toml", "console")
    (tmp_path / "hookbus.toml").write_text(settings)
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "plugin")
    lines = console.splitlines()
    commands = [tuple(shlex.split(line.removeprefix("$ hookbus "))) for line in lines[::2]]
    ended = await one_by_one(tmp_path, *commands)
    assert [(one.code, one.out.splitlines()[-1]) for one in ended] == list(zip((0, 1), lines[1::2], strict=True))
