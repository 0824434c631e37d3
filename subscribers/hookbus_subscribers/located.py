"""The paths of a call as a hook on another machine may judge them: where the executor says that each leads."""

from collections.abc import Mapping
from dataclasses import dataclass

from hookbus_schemas import ToolHookContext
from hookbus_schemas.path_arguments import path_texts


@dataclass(frozen=True, slots=True)
class Located:
    """One path of a call, with one place that it may mean.

    Attributes:
        argument: that holds it, or holds the command line whose output or input it is.
        given: as the model wrote it.
        real: on the executor's machine, links followed; None where nobody can tell, so that it may be anywhere.
    """

    argument: str
    given: str
    real: str | None


def located(context: ToolHookContext, values: Mapping[str, object]) -> tuple[Located, ...]:
    """Return each path of the call; one that the executor did not resolve leads nobody knows where.

    Args:
        context: the call.
        values: what its ``arguments_json`` parses to.
    """
    resolved = tuple(Located(path.argument, path.given, path.real) for path in context.resolved_paths)
    seen = {(path.argument, path.given) for path in resolved}
    unseen = [found for found in path_texts(context, values) if found not in seen]
    return (*resolved, *(Located(argument, given, None) for argument, given in unseen))


def within(real: str, root: str) -> bool:
    """Tell whether a real path is the root or below it; ``<root>-evil`` is not."""
    return real == root or real.startswith(root.rstrip("/") + "/")
