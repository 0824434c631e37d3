"""The demo as a picture: an SVG that needs no font from the network."""

import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from hookbus_schemas import ConfigError

WIDTH = 118
"""Columns of the picture."""

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

_FORMAT = (
    re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    .replace("font-family: Fira Code, monospace", f"font-family: {FONTS}")
    .replace("font-family: arial", "font-family: Arial, sans-serif")
)


def target(path: Path) -> Path:
    """Return the file to write, whatever the working directory becomes.

    Raises:
        ConfigError: there is no folder for it.
    """
    absolute = path.absolute()
    if not absolute.parent.is_dir():
        raise ConfigError(f"--svg {path}: there is no folder {absolute.parent}")
    return absolute


def recorder() -> Console:
    """Return a console that only records."""
    return Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")


def save(console: Console, path: Path) -> None:
    """Write what the console recorded."""
    svg = console.export_svg(title="hookbus demo", code_format=_FORMAT, unique_id="hookbus")
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
