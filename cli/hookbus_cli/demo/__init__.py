"""``hookbus demo``: one agent session on a bus of its own, with real tools, real hook processes and a real failure."""

from hookbus_cli.demo.run import run_demo

__all__ = ["run_demo"]
