"""For whom an agent works."""

from dataclasses import dataclass, fields

from hookbus_schemas import ConfigError


@dataclass(frozen=True, slots=True)
class Session:
    """Who and what a call belongs to; hooks judge by it and the record keeps it.

    Attributes:
        id: the conversation or job.
        channel_id: where it takes place.
        sender_id: the person or system that asked for it.
        correlation_id: ties it to records of other systems.
        agent_id: which agent of several.
    """

    id: str = ""
    channel_id: str = ""
    sender_id: str = ""
    correlation_id: str = ""
    agent_id: str = ""

    def __post_init__(self) -> None:
        """Check that the record can hold it.

        Raises:
            ConfigError: a field cannot be written in UTF-8; the message names it.
        """
        for field in fields(self):
            try:
                getattr(self, field.name).encode()
            except UnicodeEncodeError as error:
                raise ConfigError(f"session: {field.name} cannot be written in UTF-8") from error
