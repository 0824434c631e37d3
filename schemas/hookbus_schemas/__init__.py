"""The contract of hookbus: models, subjects, codec. No I/O; everything else is built on it."""

from hookbus_schemas.arguments import InvalidArguments, parse_arguments
from hookbus_schemas.codec import decode, decode_event, digest, encode, encode_plain_allow, encoding_of
from hookbus_schemas.context import ResolvedPath, ToolHookContext
from hookbus_schemas.decision import Decision, HookDecision, Verdict
from hookbus_schemas.errors import (
    BusUnavailable,
    ConfigError,
    HookbusError,
    InvalidMessage,
    PayloadTooLarge,
    PermissionRefused,
)
from hookbus_schemas.event import ChainLink, Outcome, ToolAfterEvent, ToolDeniedEvent, ToolEvent
from hookbus_schemas.hook import Answer, Hook, ToolHook, ToolHookWithContext
from hookbus_schemas.registration import Encoding, Enforcement, FailurePolicy, HookRegistration

__all__ = [
    "Answer",
    "BusUnavailable",
    "ChainLink",
    "ConfigError",
    "Decision",
    "Encoding",
    "Enforcement",
    "FailurePolicy",
    "Hook",
    "HookDecision",
    "HookRegistration",
    "HookbusError",
    "InvalidArguments",
    "InvalidMessage",
    "Outcome",
    "PayloadTooLarge",
    "PermissionRefused",
    "ResolvedPath",
    "ToolAfterEvent",
    "ToolDeniedEvent",
    "ToolEvent",
    "ToolHook",
    "ToolHookContext",
    "ToolHookWithContext",
    "Verdict",
    "decode",
    "decode_event",
    "digest",
    "encode",
    "encode_plain_allow",
    "encoding_of",
    "parse_arguments",
]
