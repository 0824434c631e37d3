"""The table ``[plugins]``: which plugins there are, and what each is given."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hookbus_broker import Section


class PluginEntry(BaseModel):
    """What one plugin is given.

    Attributes:
        config: its configuration, as its ``configSchema`` has it.
        environment: names of variables of this process that it is given too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    config: dict[str, Any] = Field(default={})
    environment: tuple[str, ...] = ()


class PluginSettings(Section, table="plugins"):
    """Which plugins in JavaScript run, and what each is given."""

    paths: tuple[Path, ...] = ()
    """Folders of plugins, or folders that hold such folders; a relative one begins where hookbus runs. Default none."""

    allow: tuple[str, ...] | None = None
    """Ids of the plugins that may run; each must be there. Default all."""

    deny: tuple[str, ...] = ()
    """Ids of plugins that may not run, whatever ``allow`` says. Default none."""

    entries: dict[str, PluginEntry] = Field(default={}, repr=False)
    """For ids of plugins their ``config``, and the ``environment``: names of variables given to them. Default none."""
