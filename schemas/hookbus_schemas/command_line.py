"""A command line of bash, read without running it: what it would start and which files it would open.

Both sides read it here, so that they read it the same way: the executor resolves the files on its machine, the hook
Autonomy holds each command against the operator's globs. What is not certain is said to be unclear, and denied.
"""

from dataclasses import dataclass

from hookbus_schemas.bash_given import Given
from hookbus_schemas.bash_reading import Reading
from hookbus_schemas.bash_syntax import Unclear

LIMIT_BYTES = 262_144
"""The longest text that is read, with those within it; the longest argument that Linux takes is half of it."""

LEVELS = 8
"""How many shells may be given text by one another."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What bash would do with a text.

    Attributes:
        commands: every simple command that could be started, each by itself, its name without quotes, one space
            between words that are otherwise as written, and no redirections. One with assignments before it is listed
            twice: with them and without. A bare assignment and a redirection without a command are listed as written.
        files: the targets of redirections, without quotes.
        unclear: why the text cannot be read for certain; then nothing else is said, and a caller denies.
    """

    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unclear: str | None = None


def parse(text: str) -> CommandLine:
    """Read a command line as bash would, whatever it holds."""
    try:
        return _parse(text)
    except Unclear as why:
        return CommandLine(unclear=str(why))


def _parse(text: str) -> CommandLine:
    commands: list[str] = []
    files: list[str] = []
    level = [Given(text, plain=False)]
    length = 0
    for _ in range(LEVELS):
        length += sum(len(given.text) for given in level)
        if length > LIMIT_BYTES:
            raise Unclear(f"it is longer than {LIMIT_BYTES} bytes")
        readings = [_read(given) for given in level]
        for reading in readings:
            commands += reading.commands
            files += reading.files
        level = [given for reading in readings for given in reading.texts]
        if not level:
            return CommandLine(tuple(commands), tuple(files))
    raise Unclear(f"shells are given text by one another more than {LEVELS} times")


def _read(given: Given) -> Reading:
    try:
        source = given.text.encode()
    except UnicodeEncodeError:
        raise Unclear("it holds half a character (a lone surrogate)") from None
    if b"\0" in source:
        raise Unclear("it holds a NUL character")
    if len(source) > LIMIT_BYTES:
        raise Unclear(f"it is longer than {LIMIT_BYTES} bytes")
    reading = Reading(source, plain=given.plain)
    reading.read()
    return reading
