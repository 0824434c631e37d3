"""A file that is there whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hookbus_schemas import HookbusError


class Unwritable(HookbusError, OSError):
    """A file cannot be written: no such folder, no permission, no space."""


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """Write a file under a hidden name beside it, and give it its own name when all of it is on the disk.

    Whatever ends the writing before leaves the file that was there, and removes the new one. A process that is killed
    leaves the hidden one, ``.NAME.xxxxxxxx.part``.

    Raises:
        Unwritable: it cannot be written, or the name is that of something else than a file.
    """
    real = Path(os.path.realpath(target))  # what a link leads to is replaced, not the link
    if real.exists() and not real.is_file():
        raise Unwritable(f"{target} is there and no file: choose another name")
    unseen = real.with_name(f".{real.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with unseen.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unseen.replace(real)
    except HookbusError:
        raise
    except OSError as error:
        raise Unwritable(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        unseen.unlink(missing_ok=True)
