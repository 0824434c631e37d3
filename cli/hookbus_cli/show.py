"""``hookbus demo``."""

from pathlib import Path
from typing import Annotated

import typer

from hookbus_cli.command import command, out

EPILOG = "Example: hookbus demo --svg docs/demo.svg"


@command()
async def demo(
    context: typer.Context,  # noqa: ARG001 - the command's options
    svg: Annotated[Path | None, typer.Option(help="Write what is shown as a picture, too.", show_default=False)] = None,
) -> int:
    """Watch one agent session with real tools and hooks, on a bus of its own; some seconds, nothing is left behind."""
    from hookbus_cli.demo import run_demo

    return await run_demo(out, svg=svg)
