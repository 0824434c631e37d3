"""The commands, and what may be said before their names."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, cast

import typer

from hookbus_cli import check, contracts, events, hooks, show, up, whatif
from hookbus_cli.command import Options

UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""Every slip in a command line; typer names only some of its kinds."""

app = typer.Typer(
    name="hookbus",
    help="Tool-call hooks on a message bus: ask every hook before an agent's tool runs, record every call after it.",
    epilog="Begin with `hookbus demo`, then `hookbus up` in one terminal and the rest in others.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", epilog=show.EPILOG)(show.demo)
app.command("up", epilog=up.UP_EPILOG)(up.up)
app.command("serve", epilog=up.SERVE_EPILOG)(up.serve)
app.command("check", epilog=check.EPILOG)(check.check)
app.command("whatif", epilog=whatif.EPILOG)(whatif.whatif)
app.add_typer(hooks.app, name="hooks")
app.add_typer(contracts.app, name="contracts")
app.add_typer(events.app, name="events")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hookbus {version('hookbus')}")
        raise typer.Exit


@app.callback()
def before(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="Settings file; hookbus.toml in this folder by default.", show_default=False)
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="NATS servers; the embedded server by default.", show_default=False)
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Folder of the embedded server; .hookbus by default.", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log all, and show tracebacks.")] = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keep what was said before the name of the command."""
    context.obj = Options(config, url, state_dir, verbose)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, by default that of this process; a slip in it is one line, as every error."""
    try:
        code = app(arguments, prog_name="hookbus", standalone_mode=False)
    except UsageError as error:
        if message := " ".join(error.format_message().split()):  # none when help was shown instead
            where = error.ctx.command_path if error.ctx is not None else "hookbus"
            print(f"hookbus: {message.rstrip('.')}; see {where} --help", file=sys.stderr)  # noqa: T201 - rich would wrap
        code = error.exit_code
    sys.exit(code)
