"""Which events a command is about: options that several commands share."""

from typing import Annotated

import typer

from hookbus_schemas import Outcome

Since = Annotated[
    str | None, typer.Option(help="Such as 10m, 2h, 2026-11-30T10:00; all by default.", show_default=False)
]
Until = Annotated[str | None, typer.Option(help="The same; to the end by default.", show_default=False)]
OfSession = Annotated[str | None, typer.Option("--session", help="Of this session alone.", show_default=False)]
OfTool = Annotated[str | None, typer.Option("--tool", help="Of tools that match this glob.", show_default=False)]
OfSender = Annotated[str | None, typer.Option("--sender", help="Of this sender alone.", show_default=False)]
OfOutcome = Annotated[Outcome | None, typer.Option("--outcome", help="That ended so.", show_default=False)]
OfExecutor = Annotated[str | None, typer.Option("--executor", help="Of this executor alone.", show_default=False)]
